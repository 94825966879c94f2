package cli_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// An operator has a conversation summarized, and undoes it.
func TestCompact(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	asked := ""
	app := cli.App{
		Name: "app",
		Agents: []*flue.Agent{{Name: "echo", Render: func(r *flue.Render) string {
			flue.UseModel(r, "s/m", flue.ModelOptions{Compaction: &flue.Compaction{KeepRecentTokens: 100}})
			return ""
		}}},
		Providers: map[string]model.Provider{"s": script.New(script.Func(func(req *model.Request) script.Turn {
			asked = req.Messages[len(req.Messages)-1].Blocks[0].Text
			return script.Say("the gist of it")
		}))},
	}
	do := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := cli.Run(t.Context(), app, append(args, "--db", file), strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	if code, _, errs := do("compact", "echo", "a"); code == 0 || !strings.Contains(errs, "there is no file") {
		t.Errorf("without a file: exit code %d, %s", code, errs)
	}
	for range 4 {
		if code, _, errs := do("run", "--id", "a", "-m", strings.Repeat("word ", 100)); code != 0 {
			t.Fatal(errs)
		}
	}
	if code, out, errs := do("compact", "echo", "a", "--instructions", "Keep every number."); code != 0 || !strings.Contains(out, "is made, by s/m: about") || !strings.Contains(asked, "Keep every number.") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if _, out, _ := do("inspect", "echo", "a"); !strings.Contains(out, "for manual") {
		t.Errorf("inspect shows\n%s", out)
	}
	if code, out, errs := do("compact", "echo", "a", "--undo"); code != 0 || !strings.Contains(out, "is undone") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	for want, args := range map[string][]string{
		"there is no summary in effect":   {"compact", "echo", "a", "--undo"},
		"--undo writes no summary":        {"compact", "echo", "a", "--undo", "--instructions", "x"},
		"give the name of an agent":       {"compact", "echo"},
		"there is no conversation nobody": {"compact", "echo", "nobody"},
	} {
		if code, out, errs := do(args...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d\n%s%s", args, code, out, errs)
		}
	}
}

// A script that stands in for a model that has no key does not sum up what that model
// has said.
func TestCompactIsNotForADemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	app := cli.App{
		Name: "app",
		Agents: []*flue.Agent{{Name: "echo", Render: func(r *flue.Render) string {
			flue.UseModel(r, "anthropic/claude-haiku-4-5", flue.ModelOptions{Compaction: &flue.Compaction{KeepRecentTokens: 100}})
			return ""
		}}},
		Demo: script.New(script.Func(func(*model.Request) script.Turn { return script.Say("the script") })),
	}
	t.Setenv("ANTHROPIC_API_KEY", "")
	do := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := cli.Run(t.Context(), app, append(args, "--db", file), strings.NewReader(""), &out, &errs)
		return code, out.String() + errs.String()
	}
	for range 4 {
		if code, said := do("run", "--id", "a", "-m", strings.Repeat("word ", 100)); code != 0 {
			t.Fatal(said)
		}
	}
	if code, said := do("compact", "echo", "a"); code == 0 || !strings.Contains(said, "set ANTHROPIC_API_KEY") {
		t.Errorf("exit code %d, %s", code, said)
	}
	if _, said := do("inspect", "echo", "a"); strings.Contains(said, "for manual") {
		t.Errorf("inspect shows\n%s", said)
	}
}
