package fold_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

var errTorn = errors.New("torn")

// A book is a journal by offset. A nil batch cannot be read.
type book [][]journal.Record

func (b book) read() fold.Batches {
	return func(yield func(fold.Batch, error) bool) {
		for i, records := range b {
			batch := fold.Batch{Offset: int64(i), Records: records}
			if records == nil {
				batch.Err = errTorn
			}
			if !yield(batch, nil) {
				return
			}
		}
	}
}

// one makes a batch of each record.
func one(records ...journal.Record) book {
	var b book
	for _, r := range records {
		b = append(b, []journal.Record{r})
	}
	return b
}

func repair(from, to int64, open ...string) journal.Record {
	return &journal.Repair{From: from, To: to, Open: open}
}

func TestReplay(t *testing.T) {
	whole := running(started, delta(0, "a"), delta(0, "b"), done(journal.StopEnd), seam(journal.SeamClosed), settled("s1", "completed"))
	unread := func(at ...int) book {
		b := one(whole...)
		for _, i := range at {
			b[i] = nil
		}
		return b
	}
	// rest is what is left of a state when all that was under way has ended.
	rest := func(records ...journal.Record) *fold.State {
		st := apply(t, records...)
		st.Active, st.Joined, st.Queue, st.Response, st.Phase, st.Steps = nil, nil, nil, fold.Response{}, fold.Idle, nil
		return st
	}
	for _, tt := range []struct {
		name    string
		journal book
		damage  int64       // -1 for none
		want    *fold.State // but for its offset and what was passed over
	}{
		{"nothing", nil, -1, apply(t)},
		{"whole", one(whole...), -1, apply(t, whole...)},
		{"unread", unread(7), 7, apply(t, whole[:7]...)},
		{"the birth is unread", unread(0), 0, apply(t)},
		{"a broken rule", one(append(slices.Clone(whole[:4]), admitted("s2"))...), 4, apply(t, whole[:4]...)},
		{"a broken rule in a batch", append(one(whole[:4]...), []journal.Record{entry("s1"), admitted("s2")}), 4, apply(t, whole[:4]...)},
		{"one batch is passed over", append(unread(7), []journal.Record{repair(7, 7, "s2"), settled("s2", "failed")}), -1, rest(whole...)},
		{"the rest is passed over", append(unread(5), []journal.Record{repair(5, 10)}), -1, rest(whole[:5]...)},
		{"the repair is of something else", append(unread(7), []journal.Record{repair(8, 8)}), 7, apply(t, whole[:7]...)},
		{"the repair cannot be read", append(unread(7), nil), 7, apply(t, whole[:7]...)},
		{"it would pass over itself", append(unread(7), []journal.Record{repair(7, 11)}), 7, apply(t, whole[:7]...)},
		{"it would pass over the birth", append(unread(0), []journal.Record{repair(0, 0)}), 0, apply(t)},
		{"damage behind a repair", append(unread(7), []journal.Record{repair(7, 7)}, nil), 12, rest(whole...)},
		{"a later repair passes over an earlier one", append(unread(5, 7), []journal.Record{repair(7, 7)}, []journal.Record{repair(5, 11)}), -1, rest(whole[:5]...)},
		{"damage before a repair", append(unread(5, 7), []journal.Record{repair(7, 7)}), 5, apply(t, whole[:5]...)},
		{"two repairs", append(unread(7), []journal.Record{repair(7, 7)}, nil, []journal.Record{repair(12, 12)}), -1, rest(whole...)},
		{"a repair of what can be read by now", append(one(whole...), []journal.Record{repair(5, 10)}), -1, rest(whole[:5]...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, err := fold.Replay(tt.journal.read())
			head := int64(len(tt.journal)) - 1
			if tt.damage >= 0 {
				var damage *fold.DamageError
				if !errors.As(err, &damage) || damage.Offset != tt.damage || damage.Newer() {
					t.Fatalf("error %v (%+v), want damage at %d", err, damage, tt.damage)
				}
				head = tt.damage - 1
			} else if err != nil {
				t.Fatal(err)
			}
			if st.Head != head {
				t.Errorf("the head is %d, want %d", st.Head, head)
			}
			st.Head, st.Passed = tt.want.Head, nil
			if len(st.Queue)+len(tt.want.Queue) == 0 {
				st.Queue = tt.want.Queue // nil or not
			}
			if d := diff(tt.want, st); d != "" {
				t.Errorf("state (-want +got):\n%s", d)
			}
		})
	}
}

// An error of the reader is no damage.
func TestReplayReadError(t *testing.T) {
	gone := errors.New("disk gone")
	for _, damaged := range []bool{false, true} {
		st, err := fold.Replay(func(yield func(fold.Batch, error) bool) {
			if !yield(fold.Batch{Records: []journal.Record{born}}, nil) {
				return
			}
			if damaged && !yield(fold.Batch{Offset: 1, Err: errTorn}, nil) {
				return
			}
			yield(fold.Batch{}, gone)
		})
		if !errors.Is(err, gone) || st != nil {
			t.Errorf("damaged %v: state %v, error %v", damaged, st, err)
		}
	}
}

func TestReplayOfWhatIsNewer(t *testing.T) {
	newer := &journal.Unknown{Name: "later", Version: 1, Data: jsontext.Value(`{}`)}
	_, err := fold.Replay(one(born, newer).read())
	var damage *fold.DamageError
	if !errors.As(err, &damage) || !damage.Newer() || damage.Offset != 1 {
		t.Errorf("error %v, want one that says what is newer", err)
	}
	damage = &fold.DamageError{Err: &journal.FormatError{Newer: true}}
	if !damage.Newer() {
		t.Error("a newer format is not newer")
	}
}

// Spans that the caller gives are passed over without a record.
func TestReplayPasses(t *testing.T) {
	b := one(running(started, delta(0, "a"), delta(0, "b"))...)
	b[6] = nil
	st, err := fold.Replay(b.read(), fold.Span{From: 6, To: 6})
	if err != nil || st.Response.Partial[0].Text != "b" {
		t.Errorf("%+v, %v", st, err)
	}
	if err := st.Apply(repair(6, 6, "s1", "s2", "s9")); err != nil {
		t.Error(err)
	}
	var open []string
	for _, sub := range st.Queue {
		open = append(open, sub.Submission)
	}
	if diff := cmp.Diff([]string{"s1", "s2", "s9"}, open); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
}

// A repair ends whatever is under way, and what the model is shown then is whole:
// each call has an outcome.
func TestRepairEndsCalls(t *testing.T) {
	st := apply(t, running(started, done(journal.StopToolUse, "a", "b"), outcome("b", false, journal.VarWrite{Seq: 1, Name: "x", Value: jsontext.Value(`1`)}),
		&journal.Step{Scope: journal.CallScope("a"), Name: "pay"})...)
	refused(t, st, repair(9, 9), "have not been passed over")
	st.PassOver(fold.Span{From: 9, To: 12})
	refused(t, st, repair(9, 11), "have not been passed over")
	refused(t, st, repair(9, 12, "s1", "s1"), "open twice")
	if err := st.Apply(repair(9, 12, "s2", "s1")); err != nil {
		t.Fatal(err)
	}
	outcomes := st.Context[len(st.Context)-1].Outcomes
	if len(outcomes) != 2 || !outcomes[0].Failed || !strings.Contains(outcomes[0].Content, "unknown") || outcomes[1].Content != "ok" {
		t.Errorf("the outcomes are %+v", outcomes)
	}
	if string(st.Vars["x"]) != "1" || st.Phase != fold.Idle || st.Active != nil || st.Steps != nil {
		t.Errorf("the state is %+v", st)
	}
	refused(t, st, settled("s3", "failed"), "not open")
	refused(t, st, settled("s2", "completed"), "did not join")
	for _, r := range []journal.Record{settled("s2", "failed"), settled("s1", "failed"), admitted("s3"), attempt("s3"), entry("s3"), started} {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if st.Phase != fold.Streaming {
		t.Errorf("the next message is in phase %s", st.Phase)
	}
}

func refused(t *testing.T, st *fold.State, r journal.Record, why string) {
	t.Helper()
	var rule *fold.RuleError
	if err := st.Apply(r); !errors.As(err, &rule) || !strings.Contains(rule.Reason, why) {
		t.Errorf("%#v: error %v, want that it is refused: %s", r, err, why)
	}
}
