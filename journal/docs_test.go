package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// The example of the documentation is a journal, as this package writes it.
func TestDocumentedJournal(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "journal.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(text), "## An example")
	if !ok {
		t.Fatal("there is no example")
	}
	st := &fold.State{Head: -1}
	batches := 0
	for line := range strings.Lines(example) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, `{"v"`) {
			continue
		}
		b, err := journal.Decode([]byte(line))
		if err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		for _, r := range b.Records {
			if err := st.Apply(r); err != nil {
				t.Fatalf("%v\n%s", err, line)
			}
		}
		again, err := journal.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != line {
			t.Errorf("this is written as\n%s\nnot as\n%s", again, line)
		}
		batches++
	}
	if batches != 7 || st.Phase != fold.Idle || st.Unsettled() {
		t.Errorf("%d batches end in phase %s", batches, st.Phase)
	}
}

// Every kind of record is documented.
func TestDocumentedKinds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "journal.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range lives() {
		for _, r := range b.Records {
			if _, unknown := r.(*journal.Unknown); !unknown && !strings.Contains(string(text), "\n| `"+string(r.Kind())+"` |") {
				t.Errorf("the kind %s is not in docs/journal.md", r.Kind())
			}
		}
	}
}
