package cli_test

import (
	"errors"
	"log/slog"
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

// A summary that could not be had is seen: that it was asked for, what it took, and
// when the next one is.
func TestInspectShowsFailedSummaries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	db, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := script.New(script.Func(func(req *model.Request) script.Turn {
		if strings.HasPrefix(req.System, "You write the summary") {
			return script.Fail(&model.Error{Class: model.Auth, Status: 401, Message: "no such key", Usage: model.Usage{Input: 12_345}})
		}
		return script.Say("fine")
	}))
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{{Name: "echo", Render: func(r *flue.Render) string {
			flue.UseModel(r, "s/m", flue.ModelOptions{Compaction: &flue.Compaction{KeepRecentTokens: 100}})
			return ""
		}}},
		Providers: map[string]model.Provider{"s": p}, Store: db, Log: slog.New(slog.DiscardHandler),
		Catalog: func(string, string) (model.Info, bool) {
			return model.Info{Cost: model.Cost{Input: 1, Output: 1}}, true
		},
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
	var failed *flue.SubmissionError
	if _, err := in.Compact(t.Context()); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	shown := must(t, file, "inspect", "echo", "a")
	if !strings.Contains(shown, "summaries  1 summary in a row could not be had; the next is asked for when it is needed, not before 20") || !strings.Contains(shown, "13601 tokens in") || !strings.Contains(shown, "no more than $0.0123") {
		t.Errorf("inspect shows\n%s", shown)
	}
	if f := objects(t, must(t, file, "inspect", "echo", "a", "--json"))[0]["failedSummaries"].(map[string]any); f["failures"].(float64) != 1 || f["next"] == "" {
		t.Errorf("inspect --json shows %v", f)
	}
	records := must(t, file, "inspect", "echo", "a", "--records")
	for _, want := range []string{"summarizing", "manual, of s/m, about", "unsummarized", "manual, failed (auth), the next not before 20", "s/m, 1 model call, 12345 tokens in and 0 out, no more than $0.0123"} {
		if !strings.Contains(records, want) {
			t.Errorf("the records lack %q:\n%s", want, records)
		}
	}
}
