package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/sqlite"
)

// What the model is shown in place of older messages can be seen: how large it is
// without bodies, and the summary with them.
func TestInspectShowsCompactions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	db, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := script.New(script.Func(func(*model.Request) script.Turn { return script.Say("the gist of it") }))
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{{Name: "echo", Render: func(r *flue.Render) string {
			flue.UseModel(r, "s/m", flue.ModelOptions{Compaction: &flue.Compaction{KeepRecentTokens: 100}})
			return ""
		}}},
		Providers: map[string]model.Provider{"s": p}, Store: db,
	})
	if err != nil {
		t.Fatal(err)
	}
	in := rt.Instance("echo", "a")
	for range 4 {
		r, err := in.Dispatch(t.Context(), flue.User(strings.Repeat("word ", 100)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Read(t.Context(), r.Submission); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	shown := must(t, file, "inspect", "echo", "a")
	if !strings.Contains(shown, "compacted") || !strings.Contains(shown, "for manual") || strings.Contains(shown, "gist") {
		t.Errorf("inspect shows\n%s", shown)
	}
	if c := objects(t, must(t, file, "inspect", "echo", "a", "--json"))[0]["compaction"].(map[string]any); c["tokensBefore"].(float64) <= c["tokensAfter"].(float64) {
		t.Errorf("inspect --json shows %v", c)
	}
	if records := must(t, file, "inspect", "echo", "a", "--records"); !strings.Contains(records, "compacted") || strings.Contains(records, "gist") {
		t.Errorf("the records are\n%s", records)
	}
	if records := must(t, file, "inspect", "echo", "a", "--records", "--bodies"); !strings.Contains(records, "the gist of it") {
		t.Errorf("the records are\n%s", records)
	}
}
