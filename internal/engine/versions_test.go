package engine_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// The journals below testdata/journals were written by earlier states of this
// program, a directory each, and are never written again: users have such. To
// keep those of the present state, name a new directory:
//
//	go test ./internal/engine -run TestKeepJournals -journals 0.3
var journalsVersion = flag.String("journals", "", "keep the journals of this version below testdata/journals")

// An oldBatch is a batch of a kept journal: a line of its file, which has the
// epoch before the payload.
type oldBatch struct {
	epoch   int64
	payload []byte
	batch   journal.Batch
}

// TestKeepJournals writes the journals of all scenarios, each with its state.
func TestKeepJournals(t *testing.T) {
	if *journalsVersion == "" {
		t.Skip("writes journals only when it is given a version")
	}
	dir := filepath.Join("testdata", "journals", *journalsVersion)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sc := range scenarios() {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			sc.script(w)
			durable := memstore.New()
			e := w.start(t, durable)
			abortSent := false
			sc.live(t, e, faultstore.New(durable), time.Now(), make(map[int]bool), &abortSent)
			stop(t, e)
			var out bytes.Buffer
			var kept []oldBatch
			for b, err := range store.Batches(t.Context(), durable, chat, -1) {
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&out, "%d %s\n", b.Epoch, b.Payload)
				kept = append(kept, decoded(t, b.Epoch, b.Payload))
			}
			name := filepath.Join(dir, strings.ReplaceAll(sc.name, " ", "-"))
			if err := os.WriteFile(name+".jsonl", out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name+".state", []byte(digest(foldOld(t, kept))), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func decoded(t *testing.T, epoch int64, payload []byte) oldBatch {
	t.Helper()
	b, err := journal.Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	return oldBatch{epoch, bytes.Clone(payload), b}
}

func foldOld(t *testing.T, batches []oldBatch) *fold.State {
	t.Helper()
	st := &fold.State{Head: -1}
	for i, b := range batches {
		for _, r := range b.batch.Records {
			if err := st.Apply(r); err != nil {
				t.Fatalf("batch %d: %v", i, err)
			}
		}
		st.Advance(int64(i))
	}
	return st
}

// digest is what a state says, in words that outlive the types that say it.
func digest(st *fold.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "phase %s, %d waiting, head %d\n", st.Phase, len(st.Queue), st.Head)
	fmt.Fprintf(&b, "tokens %d in, %d out\n", st.Usage.Input, st.Usage.Output)
	for _, name := range slices.Sorted(maps.Keys(st.Vars)) {
		fmt.Fprintf(&b, "state %s = %s\n", name, st.Vars[name])
	}
	for _, it := range st.Context {
		switch {
		case it.Entry != nil:
			fmt.Fprintf(&b, "%s %s: %q\n", it.Entry.Purpose, it.Entry.ID, it.Entry.Message.Body)
		case it.Turn != nil:
			for _, block := range it.Turn.Blocks {
				fmt.Fprintf(&b, "%s: %q %s %s\n", block.Kind, block.Text, block.Call, block.Arguments)
			}
		}
		for _, o := range it.Outcomes {
			fmt.Fprintf(&b, "outcome of %s: %q\n", o.Call, o.Content)
		}
	}
	return b.String()
}

// oldJournals calls fn with each journal that is kept.
func oldJournals(t *testing.T, fn func(t *testing.T, path string, batches []oldBatch)) {
	files, err := filepath.Glob(filepath.Join("testdata", "journals", "*", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d journals: %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(filepath.Dir(path))+"/"+strings.TrimSuffix(filepath.Base(path), ".jsonl"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var batches []oldBatch
			lines := bufio.NewScanner(bytes.NewReader(data))
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				epoch, payload, ok := bytes.Cut(lines.Bytes(), []byte(" "))
				n, err := strconv.ParseInt(string(epoch), 10, 64)
				if !ok || err != nil {
					t.Fatalf("line %d: %v", len(batches)+1, err)
				}
				batches = append(batches, decoded(t, n, payload))
			}
			fn(t, strings.TrimSuffix(path, ".jsonl"), batches)
		})
	}
}

// A journal means what it meant to the version that wrote it.
func TestOldJournalsFold(t *testing.T) {
	oldJournals(t, func(t *testing.T, path string, batches []oldBatch) {
		want, err := os.ReadFile(path + ".state")
		if err != nil {
			t.Fatal(err)
		}
		if got := digest(foldOld(t, batches)); got != string(want) {
			t.Errorf("it folds to\n%swant\n%s", got, want)
		}
	})
}

// Work that an earlier version left at any point is taken up and ended: nothing
// that it had begun is done again, and the conversation goes on.
func TestOldJournalsResume(t *testing.T) {
	oldJournals(t, func(t *testing.T, path string, batches []oldBatch) {
		for n := 2; n <= len(batches); n++ {
			synctest.Test(t, func(t *testing.T) { resumeOld(t, scenarioOf(path), batches[:n]) })
			if t.Failed() {
				t.Fatalf("when it ends after %d batches", n)
			}
		}
	})
}

// scenarioOf returns the scenario of which a journal was kept.
func scenarioOf(path string) scenario {
	for _, sc := range scenarios() {
		if strings.ReplaceAll(sc.name, " ", "-") == filepath.Base(path) {
			return sc
		}
	}
	return scenario{}
}

func resumeOld(t *testing.T, sc scenario, batches []oldBatch) {
	w := newWorld()
	sc.script(w)
	s := memstore.New()
	submissions, calls := install(t, s, batches)
	e := w.start(t, s.Reopen())
	defer stop(t, e)
	time.Sleep(time.Second)
	for _, id := range submissions {
		if got := settled(t, e, chat, id); got == journal.Failed && foldOld(t, batches).Unsettled() {
			t.Errorf("%s settled %s", id, got)
		}
	}
	for _, call := range calls {
		if n := w.count("tool:" + call); n > 0 {
			t.Errorf("call %s, which the earlier version had begun, was run %d times", call, n)
		}
	}
	if got := settled(t, e, chat, send(t, e, chat, "and now")); got != journal.Completed {
		t.Errorf("the next message settled %s", got)
	}
	for _, effect := range w.did() {
		if strings.HasPrefix(effect, "malformed") {
			t.Error(effect)
		}
	}
}

// install writes the batches of a journal into a store, as their writers did. It
// returns the submissions and the calls that they hold, but for calls that are
// known not to have begun.
func install(t *testing.T, s *memstore.Store, batches []oldBatch) (submissions, calls []string) {
	t.Helper()
	var lease store.Lease
	var birth *store.Birth
	if err := s.Renew(t.Context(), "old", time.Hour); err != nil {
		t.Fatal(err)
	}
	for i, b := range batches {
		var err error
		switch r := b.batch.Records[0].(type) {
		case *journal.Born:
			birth = &store.Birth{UID: r.UID, Incarnation: r.Incarnation, Payload: b.payload}
		case *journal.Admitted:
			_, err = s.Admit(t.Context(), &store.Admission{
				Address: chat, Submission: r.Submission, Identity: []byte(r.Message.Body), AcceptedAt: b.batch.At, Payload: b.payload, Birth: birth,
			})
			submissions = append(submissions, r.Submission)
		case *journal.Abort:
			_, err = s.Abort(t.Context(), chat, b.payload)
		default:
			if lease.Epoch == 0 || b.epoch != batches[i-1].epoch && batches[i-1].epoch != 0 {
				if lease, err = s.Take(t.Context(), "old", chat); err != nil {
					t.Fatal(err)
				}
			}
			write := store.Write{Payload: b.payload}
			for _, r := range b.batch.Records {
				switch r := r.(type) {
				case *journal.Settled:
					write.Settle = append(write.Settle, store.Settlement{Submission: r.Submission, Outcome: r.Outcome})
				case *journal.Called:
					calls = append(calls, r.Calls...)
				case *journal.TurnDone:
					for _, block := range r.Blocks {
						if block.Kind == journal.ToolCall && !r.Named {
							calls = append(calls, block.Call)
						}
					}
				}
			}
			_, err = s.Append(t.Context(), lease, write)
		}
		if err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
	return submissions, calls
}
