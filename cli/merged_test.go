package cli_test

import (
	"path/filepath"
	"testing"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// What was merged is shown as what it is, and is no damage.
func TestInspectMergedText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	must(t, file, "run", "--id", "a", "-m", "say hello")
	st, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	addr := store.Address{Agent: "echo", ID: "a"}
	in, err := st.Instance(t.Context(), addr)
	if err == nil {
		err = st.Renew(t.Context(), "n", 1<<40)
	}
	if err != nil {
		t.Fatal(err)
	}
	lease, err := st.Take(t.Context(), "n", addr)
	if err != nil {
		t.Fatal(err)
	}
	// Records that may be passed over, in the place of text.
	opt := encoded(t, &journal.Unknown{Name: "later", Optional: true, Data: []byte(`{}`)})
	for range 4 {
		if _, err := st.Append(t.Context(), lease, store.Write{Payload: opt}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Prune(t.Context(), lease, []store.Run{{From: in.Head + 1, To: in.Head + 3, Payload: opt}}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	shows(t, must(t, file, "inspect", "echo", "a", "--records"), `later .*\(merged, batches \d+ to \d+\)$`)
	all := objects(t, must(t, file, "inspect", "echo", "a", "--records", "--json"))
	if last := all[len(all)-1]; last["last"] != nil || last["offset"] != float64(in.Head+4) {
		t.Errorf("the last record is %v", last)
	}
	if merged := all[len(all)-2]; merged["last"] != float64(in.Head+3) || merged["offset"] != float64(in.Head+1) {
		t.Errorf("the one before it is %v", merged)
	}
	if checked := objects(t, must(t, file, "inspect", "--json", "--check")); checked[0]["phase"] != "idle" {
		t.Errorf("it is said to be %v", checked[0])
	}
}

func encoded(t *testing.T, r journal.Record) []byte {
	t.Helper()
	data, err := journal.Encode(journal.Batch{Records: []journal.Record{r}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
