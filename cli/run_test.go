package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// runApp runs the program of testApp in this process.
func runApp(ctx context.Context, t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	log := newWatched()
	code = cli.Run(ctx, testApp(), args, strings.NewReader(""), &out, log)
	return code, out.String(), log.String()
}

// The end of the context does what Ctrl-C does.
func TestRunAbortsWithItsContext(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Setenv("TEST_MARK", filepath.Join(dir, "mark"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		waitForFile(t, filepath.Join(dir, "mark"))
		cancel()
	}()
	code, stdout, stderr := runApp(ctx, t, "run", "--db", filepath.Join(dir, "a.db"), "--env-file", devNull(t), "-m", "pause")
	if code != 130 || stdout != "" || !strings.Contains(stderr, "was aborted") {
		t.Errorf("exit code %d, %q, %s", code, stdout, stderr)
	}
}

// A context that has ended before there was anything to do leaves nothing.
func TestRunWithEndedContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, stdout, _ := runApp(ctx, t, "run", "--db", filepath.Join(dir, "a.db"), "--env-file", devNull(t), "-m", "say it")
	if code != 130 || stdout != "" {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}

// A journal that cannot be read ends the run with an error; it does not hang.
func TestRunOnDamagedConversation(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled ", settled), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.db")
			damage(t, path, store.Address{Agent: "echo", ID: "a"}, settled)
			ctx, cancel := context.WithTimeout(t.Context(), childPatience)
			defer cancel()
			code, stdout, stderr := runApp(ctx, t, "run", "--db", path, "--env-file", devNull(t), "--json", "--id", "a", "-m", "say it")
			if code != 1 || !strings.Contains(stdout, `"outcome":"error"`) || ctx.Err() != nil {
				t.Errorf("exit code %d, %q, %s", code, stdout, stderr)
			}
			// Other conversations go on.
			code, stdout, stderr = runApp(ctx, t, "run", "--db", path, "--env-file", devNull(t), "--id", "b", "-m", "say it")
			if code != 0 || stdout != "it\n" {
				t.Errorf("another conversation: exit code %d, %q, %s", code, stdout, stderr)
			}
		})
	}
}

// damage makes an instance whose journal holds something that is no batch.
func damage(t *testing.T, path string, addr store.Address, settled bool) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	if err := st.Renew(ctx, "n", time.Minute); err != nil {
		t.Fatal(err)
	}
	_, err = st.Admit(ctx, &store.Admission{
		Address: addr, Submission: "s", AcceptedAt: time.Now(), Payload: []byte("no batch"),
		Birth: &store.Birth{UID: "inst_1", Incarnation: "inc_1", Payload: []byte("no batch")},
	})
	if err != nil || !settled {
		check(t, err)
		return
	}
	lease, err := st.Take(ctx, "n", addr)
	check(t, err)
	_, err = st.Append(ctx, lease, store.Write{Payload: []byte("no batch"), Settle: []store.Settlement{{Submission: "s", Outcome: "completed"}}})
	check(t, err)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// devNull is an env file that sets nothing.
func devNull(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "none.env")
	check(t, os.WriteFile(path, nil, 0o600))
	return path
}
