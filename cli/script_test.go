package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// gif is an image of one pixel.
var gif = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			for _, name := range [...]string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "PORT"} {
				e.Setenv(name, "")
			}
			e.Setenv("GORACE", "atexit_sleep_ms=0") // each program would else end a second late
			return os.WriteFile(filepath.Join(e.WorkDir, "dot.gif"), gif, 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"envelope": envelope,
			"mode":     mode,
		},
	})
}

// exits CODE COMMAND... runs a command that must end with the exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if e, ok := err.(interface{ ExitCode() int }); ok {
		code = e.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", args[1], err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// envelope FIELD VALUE... checks fields of the JSON object that is the whole of
// standard output. A value of "-" means that the field is absent.
func envelope(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 0 {
		ts.Fatalf("usage: envelope (field value)...")
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &fields); err != nil {
		ts.Fatalf("standard output is not one JSON object: %v", err)
	}
	if nested, ok := fields["error"].(map[string]any); ok {
		for name, v := range nested {
			fields["error."+name] = v
		}
	}
	for i := 0; i < len(args); i += 2 {
		got, ok := fields[args[i]]
		switch {
		case args[i+1] == "-" && ok:
			ts.Fatalf("field %s is %v, and should not be there", args[i], got)
		case args[i+1] != "-" && fmt.Sprint(got) != args[i+1]:
			ts.Fatalf("field %s is %v, want %s", args[i], got, args[i+1])
		}
	}
}

// mode PERM FILE checks the permissions of a file, where the system has any.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode perm file")
	}
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%#o", info.Mode().Perm()); got != args[0] && os.PathSeparator == '/' {
		ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
	}
}
