package crashtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/linear"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// at is a moment so many seconds after noon.
func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// chronicle is a journal of batches that have records, one a second.
func chronicle(t *testing.T, batches ...store.Batch) store.Page {
	t.Helper()
	page := store.Page{Instance: store.Instance{Address: store.Address{Agent: "a", ID: "i"}}}
	for i, b := range batches {
		b.Offset = int64(i)
		page.Batches = append(page.Batches, b)
	}
	return page
}

// wrote is a batch at a second under an epoch.
func wrote(t *testing.T, second int, epoch int64, records ...journal.Record) store.Batch {
	t.Helper()
	payload, err := journal.Encode(journal.Batch{At: at(second), Records: records})
	if err != nil {
		t.Fatal(err)
	}
	return store.Batch{Epoch: epoch, Payload: payload}
}

func attempt(node string) journal.Record {
	return &journal.Attempt{Submission: "s", Ordinal: 1, Node: node}
}

func TestSuccession(t *testing.T) {
	admitted := &journal.Admitted{Submission: "s", Message: journal.Message{Kind: journal.User, Body: "x"}, Origin: "direct"}
	addr := store.Address{Agent: "a", ID: "i"}
	settled := &journal.Settled{Submission: "s", Outcome: journal.Completed}
	for _, tt := range []struct {
		name      string
		batches   []store.Batch
		handovers []handover
		wrong     int
		want      []takeover
	}{
		{
			"one owner",
			[]store.Batch{wrote(t, 0, 0, admitted), wrote(t, 1, 1, attempt("x")), wrote(t, 2, 1, settled)},
			[]handover{{store.Lease{Address: addr, Epoch: 1}, "kill", at(1)}},
			0, nil,
		},
		{
			"killed",
			[]store.Batch{wrote(t, 0, 0, admitted), wrote(t, 1, 1, attempt("x")), wrote(t, 9, 2, attempt("y"))},
			[]handover{{store.Lease{Address: addr, Epoch: 1}, "kill", at(2)}},
			0,
			[]takeover{{addr, "kill", at(2), 7 * time.Second}},
		},
		{
			"killed before it had begun",
			[]store.Batch{wrote(t, 0, 0, admitted), wrote(t, 9, 2, attempt("y"))},
			[]handover{{store.Lease{Address: addr, Epoch: 1}, "kill", at(2)}},
			0,
			[]takeover{{addr, "kill", at(2), 7 * time.Second}},
		},
		{
			"paused for less than its lease",
			[]store.Batch{
				wrote(t, 0, 0, admitted), wrote(t, 1, 1, attempt("x")), wrote(t, 4, 1, settled), wrote(t, 5, 0, admitted), wrote(t, 9, 2, attempt("y")),
			},
			[]handover{{store.Lease{Address: addr, Epoch: 1}, "pause", at(2)}},
			0, nil,
		},
		{
			"another instance",
			[]store.Batch{wrote(t, 0, 0, admitted), wrote(t, 1, 1, attempt("x")), wrote(t, 9, 2, attempt("y"))},
			[]handover{{store.Lease{Address: store.Address{Agent: "a", ID: "j"}, Epoch: 1}, "kill", at(2)}},
			0, nil,
		},
		{
			"in order",
			[]store.Batch{
				wrote(t, 0, 0, admitted), wrote(t, 1, 1, attempt("x")), wrote(t, 2, 1, &journal.Release{Submission: "s"}), wrote(t, 3, 2, attempt("y")),
			},
			nil, 0,
			[]takeover{{addr, inOrder, at(2), time.Second}},
		},
		{
			"goes on itself after its lease had lapsed, and is killed",
			[]store.Batch{
				wrote(t, 0, 0, admitted), wrote(t, 1, 2, attempt("x")), wrote(t, 2, 2, &journal.Release{Submission: "s"}), wrote(t, 9, 3, attempt("y")),
			},
			[]handover{{store.Lease{Address: addr, Epoch: 2}, "kill", at(3)}},
			0,
			[]takeover{{addr, "kill", at(3), 6 * time.Second}},
		},
		{
			"told to end",
			[]store.Batch{
				wrote(t, 0, 0, admitted), wrote(t, 1, 1, attempt("x")), wrote(t, 4, 1, &journal.Entry{}), wrote(t, 6, 2, attempt("y")),
			},
			[]handover{{store.Lease{Address: addr, Epoch: 1}, inTurn, at(2)}},
			0,
			[]takeover{{addr, inTurn, at(2), 4 * time.Second}},
		},
		{
			"told to end, and has come to its end",
			[]store.Batch{
				wrote(t, 0, 0, admitted), wrote(t, 1, 1, attempt("x")), wrote(t, 4, 1, settled), wrote(t, 5, 0, admitted), wrote(t, 6, 2, attempt("y")),
			},
			[]handover{{store.Lease{Address: addr, Epoch: 1}, inTurn, at(2)}},
			0, nil,
		},
		{"epochs fall", []store.Batch{wrote(t, 0, 2, attempt("x")), wrote(t, 1, 1, settled)}, nil, 1, nil},
		{"two nodes have an epoch", []store.Batch{wrote(t, 0, 1, attempt("x")), wrote(t, 1, 1, attempt("y"))}, nil, 1, nil},
		{"no journal", []store.Batch{{Epoch: 1, Payload: []byte("x")}}, nil, 1, nil},
	} {
		s, wrong := follow(chronicle(t, tt.batches...))
		if len(wrong) != tt.wrong {
			t.Errorf("%s: wrong are %q, want %d", tt.name, wrong, tt.wrong)
		}
		got := s.takeovers(addr, tt.handovers, map[int64]bool{1: true})
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(takeover{})); diff != "" && tt.wrong == 0 {
			t.Errorf("%s: takeovers (-want +got):\n%s", tt.name, diff)
		}
	}
}

// An effect of an owner after its successor's first append is late.
func TestLate(t *testing.T) {
	s, _ := follow(chronicle(t, wrote(t, 1, 1, attempt("x")), wrote(t, 5, 3, attempt("y")), wrote(t, 9, 4, attempt("x"))))
	owners := map[int64]string{1: "x", 2: "z", 3: "y", 4: "x"}
	for _, tt := range []struct {
		node   string
		second int
		by     time.Duration
		late   bool
	}{
		{"x", 2, 0, false},
		{"x", 6, time.Second, true},
		{"x", 10, 0, false}, // under its second epoch
		{"y", 6, 0, false},
		{"y", 11, 2 * time.Second, true},
		{"z", 4, 0, false}, // it has taken it, and written nothing
		{"z", 6, time.Second, true},
	} {
		by, late := s.late(tt.node, at(tt.second), owners)
		if by != tt.by || late != tt.late {
			t.Errorf("%s at %d: late %v by %v, want %v by %v", tt.node, tt.second, late, by, tt.late, tt.by)
		}
	}
}

// What a replica has written down is read as it was meant, whenever it was killed.
func TestHolds(t *testing.T) {
	read := func(text string) *holds {
		t.Helper()
		file := filepath.Join(t.TempDir(), "holds")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h := new(holds)
		if err := h.read("x", file); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, tt := range []struct {
		name, text string
		operations int
		legal      bool
	}{
		{"a take and an append", "1 10 take 0 a/i j\n1 20 done 1 a/i j\n2 30 append 1 a/i j\n2 40 done 1 a/i j\n", 2, true},
		{"an append under an old epoch", "1 10 take 0 a/i\n1 20 done 1 a/i\n2 21 take 0 a/i\n2 22 done 2 a/i\n3 30 append 1 a/i\n3 40 done 1 a/i\n", 3, false},
		{"one that was refused", "1 10 take 0 a/i\n1 20 done 1 a/i\n2 21 take 0 a/i\n2 22 done 2 a/i\n3 30 append 1 a/i\n3 40 fenced 1 a/i\n", 3, true},
		{"a take that was refused", "1 10 take 0 a/i\n1 20 none 0 a/i\n", 0, true},
		{"a claim", "1 10 claim 0 any\n1 20 given 3 a/i\n1 20 given 1 a/j\n1 21 done 0 any\n2 30 append 3 a/i\n2 31 done 3 a/i\n", 3, true},
		{"killed in a claim", "1 5 take 0 a/i\n1 6 done 1 a/i\n2 10 claim 0 any\n3 30 append 2 a/i\n3 31 done 2 a/i\n", 4, true},
		{"killed in an append", "1 5 take 0 a/i\n1 6 done 1 a/i\n2 10 append 1 a/i\n", 1, true},
		{"given back", "1 5 take 0 a/i\n1 6 done 1 a/i\n2 10 release 1 a/i\n2 11 done 1 a/i\n3 12 append 1 a/i\n3 13 done 1 a/i\n", 3, false},
	} {
		h := read(tt.text)
		n, err := h.judge()
		if n != tt.operations || (err == nil) != tt.legal {
			t.Errorf("%s: %d operations, want %d; legal: %v, want %v", tt.name, n, tt.operations, err, tt.legal)
		}
	}
	if got := read("1 10 take 0 a/i\n1 20 done 7 a/i\n").owners(store.Address{Agent: "", ID: ""}); got != nil {
		t.Errorf("an instance that nobody took is owned by %v", got)
	}
	if got := read("1 10 take 0 agents/a/i\n1 20 done 7 agents/a/i\n").owners(store.Address{Agent: "a", ID: "i"}); got[7] != "x" {
		t.Errorf("the owners are %v", got)
	}
	if err := new(holds).read("x", filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("a replica that was killed at once: %v", err)
	}
	if linear.Infinity < time.Now().UnixNano() {
		t.Error("the time is beyond infinity")
	}
}
