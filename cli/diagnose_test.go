package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A spoiled store cannot read some batches.
type spoiled struct {
	*memstore.Store
	bad []int64
}

func (s *spoiled) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	p, err := s.Store.Read(ctx, addr, after, limit)
	for _, b := range p.Batches {
		if slices.Contains(s.bad, b.Offset) {
			return store.Page{}, fmt.Errorf("%w: batch %d", store.ErrCorrupt, b.Offset)
		}
	}
	return p, err
}

var patient = store.Address{Agent: "a", ID: "1"}

// history is a journal of three messages: one is answered after two calls, one
// joins, one is answered and one waits.
func history() [][]journal.Record {
	ms := int64(3)
	user := func(text string) journal.Message { return journal.Message{Kind: journal.User, Body: text} }
	input := func(sub string) journal.Record {
		return &journal.Entry{ID: "e_" + sub, Submission: sub, Purpose: journal.Input, Message: user(sub)}
	}
	start := func(sub, resp string) journal.Record {
		return &journal.Seam{Name: journal.SeamStart, Submission: sub, Response: resp}
	}
	turn := func(id, sub, resp string) journal.Record {
		return &journal.TurnStarted{Turn: id, Response: resp, Submission: sub, Provider: "p", Model: "m"}
	}
	return [][]journal.Record{
		{&journal.Born{Agent: "a", ID: "1", UID: "u", Incarnation: "i"}},
		{&journal.Admitted{Submission: "s1", Message: user("s1"), Origin: "direct"}},
		{&journal.Attempt{Submission: "s1", Ordinal: 1, MaxAttempts: 3, Deadline: 9e15}},
		{&journal.Step{Scope: journal.StartScope("s1"), Name: "ticket", Value: jsontext.Value(`7`)}},
		{input("s1"), &journal.State{Name: "ticket", Value: jsontext.Value(`7`)}, start("s1", "r1"), turn("t1", "s1", "r1")},
		{&journal.TurnDelta{Turn: "t1", Response: "r1", BlockKind: journal.Text, Text: "let me "}},
		{&journal.TurnDone{Turn: "t1", Response: "r1", Submission: "s1", Stop: journal.StopToolUse, Blocks: []journal.Block{
			{Kind: journal.Text, Text: "let me see"},
			{Kind: journal.ToolCall, Call: "c1", Name: "pay", Arguments: "{}"},
			{Kind: journal.ToolCall, Call: "c2", Name: "pay", Arguments: "{}"},
		}}},
		{&journal.Admitted{Submission: "s2", Message: user("s2"), Origin: "dispatch"}},
		{&journal.Step{Scope: journal.CallScope("c1"), Name: "charge"}},
		{&journal.Outcome{Turn: "t1", Response: "r1", Call: "c2", Tool: "pay", Content: "ok", DurationMS: &ms, Writes: []journal.VarWrite{{Seq: 1, Name: "paid", Value: jsontext.Value(`1`)}}}},
		{&journal.Outcome{Turn: "t1", Response: "r1", Call: "c1", Tool: "pay", Content: "ok"}, &journal.ToolBatch{Turn: "t1"}, input("s2"), start("s2", ""), turn("t2", "s1", "r1")},
		{&journal.TurnDone{Turn: "t2", Response: "r1", Submission: "s1", Stop: journal.StopEnd, Blocks: []journal.Block{{Kind: journal.Text, Text: "paid"}}}},
		{&journal.Seam{Name: journal.SeamClosed, Submission: "s1"}, done("s2", journal.Completed), done("s1", journal.Completed)},
		{&journal.Admitted{Submission: "s3", Message: user("s3")}},
		{&journal.Abort{}},
		{done("s3", journal.Aborted)},
		{&journal.Admitted{Submission: "s4", Message: user("s4")}},
		{&journal.Attempt{Submission: "s4", Ordinal: 1, MaxAttempts: 3, Deadline: 9e15}, input("s4"), start("s4", "r2"), turn("t3", "s4", "r2")},
		{&journal.Admitted{Submission: "s5", Message: user("s5")}},
		{&journal.TurnDelta{Turn: "t3", Response: "r2", BlockKind: journal.Text, Text: "well"}},
	}
}

func done(sub, outcome string) journal.Record {
	return &journal.Settled{Submission: sub, Outcome: outcome, AnsweredBy: sub}
}

// write appends batches as their writers do.
func write(t *testing.T, st store.Store, batches ...[]journal.Record) {
	t.Helper()
	if err := st.Renew(t.Context(), "n", time.Hour); err != nil {
		t.Fatal(err)
	}
	var birth *store.Birth
	for i, records := range batches {
		payload, err := journal.Encode(journal.Batch{At: time.UnixMilli(1_764_461_667_000 + int64(i)), Records: records})
		if err != nil {
			t.Fatal(err)
		}
		switch r := records[0].(type) {
		case *journal.Born:
			birth = &store.Birth{UID: r.UID, Incarnation: r.Incarnation, Payload: payload}
			continue
		case *journal.Admitted:
			_, err = st.Admit(t.Context(), &store.Admission{Address: patient, Submission: r.Submission, Payload: payload, Birth: birth, AcceptedAt: time.UnixMilli(1_764_461_667_000)})
		default:
			appendRaw(t, st, payload, records)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func appendRaw(t *testing.T, st store.Store, payload []byte, records []journal.Record) {
	t.Helper()
	w := store.Write{Payload: payload}
	for _, r := range records {
		if s, ok := r.(*journal.Settled); ok {
			w.Settle = append(w.Settle, store.Settlement{Submission: s.Submission, Outcome: s.Outcome})
		}
	}
	lease, err := st.Take(t.Context(), "n", patient)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), lease, w); err != nil {
		t.Fatal(err)
	}
	if err := st.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

var repairTime = time.UnixMilli(1_764_461_700_000).UTC()

// kept returns what the store has of the journal, as bytes.
func kept(t *testing.T, st *memstore.Store) []string {
	t.Helper()
	var out []string
	for b, err := range store.Batches(t.Context(), st, patient, -1) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b.Payload))
	}
	return out
}

// mendAll repairs a conversation and checks that it can go on.
func mendAll(t *testing.T, st *spoiled) *mending {
	t.Helper()
	before := kept(t, st.Store)
	m, err := diagnose(t.Context(), st, patient, repairTime)
	if err != nil || m == nil {
		t.Fatalf("diagnose: %v, %v", m, err)
	}
	if offset, err := mend(t.Context(), st, m); err != nil || offset != m.head+1 {
		t.Fatalf("mend: %d, %v", offset, err)
	}
	after := kept(t, st.Store)
	if !slices.Equal(after[:len(before)], before) || len(after) != len(before)+1 {
		t.Fatal("a repair changed what was there")
	}
	state, err := replay(t.Context(), st, patient)
	if err != nil || state.Phase != fold.Idle || state.Unsettled() {
		t.Fatalf("after the repair: phase %s, %v", state.Phase, err)
	}
	open, err := st.Unsettled(t.Context(), patient)
	if err != nil || len(open) != 0 {
		t.Fatalf("after the repair %v are unsettled, %v", open, err)
	}
	if m, err := diagnose(t.Context(), st, patient, repairTime); m != nil || err != nil {
		t.Fatalf("after the repair it is still damaged: %v, %v", m, err)
	}
	// Each call that the model is shown has an outcome.
	for i, it := range state.Context {
		if it.Turn == nil {
			continue
		}
		asked := len(slices.DeleteFunc(slices.Clone(it.Turn.Blocks), func(b journal.Block) bool { return b.Kind != journal.ToolCall }))
		if asked > 0 && (i+1 == len(state.Context) || len(state.Context[i+1].Outcomes) != asked) {
			t.Fatalf("the model is shown %d calls, and no outcomes of them", asked)
		}
	}
	return m
}

// Wherever a journal is damaged, and at whatever point its writer died, it can be
// repaired, and again if the repair is damaged or something before it.
func TestEveryBatchMayBeDamaged(t *testing.T) {
	all := history()
	alone := 0
	for end := 2; end <= len(all); end++ {
		for bad := int64(1); bad < int64(end); bad++ {
			st := &spoiled{Store: memstore.New(), bad: []int64{bad}}
			write(t, st, all[:end]...)
			if m := mendAll(t, st); m.alone() {
				alone++
			}
			if t.Failed() {
				t.Fatalf("batch %d of %d", bad, end)
			}
			// The conversation goes on, and is damaged at another place.
			sub := fmt.Sprint("next", end)
			write(t, st, []journal.Record{&journal.Admitted{Submission: sub}}, []journal.Record{&journal.Attempt{Submission: sub, Ordinal: 1, Deadline: 1}})
			if _, err := replay(t.Context(), st, patient); err != nil {
				t.Fatalf("batch %d of %d, the next message: %v", bad, end, err)
			}
			for _, more := range []int64{int64(end), 1 + (bad+2)%int64(end), int64(end) + 1} {
				again := &spoiled{Store: st.Store, bad: append(slices.Clone(st.bad), more)}
				if _, err := replay(t.Context(), again, patient); err == nil {
					continue // it is passed over already
				}
				mendAll(t, again)
				st.Store, st.bad = again.Store, again.bad
			}
		}
	}
	if alone == 0 {
		t.Error("nothing was ever passed over alone")
	}
}

func TestDiagnose(t *testing.T) {
	for _, tt := range []struct {
		name     string
		end      int // batches of the history that there are
		bad      int64
		alone    bool
		span     fold.Span
		open     []string
		messages []string
		calls    []string
		counts   [4]int // messages, turns, results, writes that are forgotten
	}{
		{"streamed text", 20, 5, true, fold.Span{From: 5, To: 5}, []string{"s4", "s5"}, []string{"r2"}, nil, [4]int{}},
		{"the last batch", 20, 19, false, fold.Span{From: 19, To: 19}, []string{"s4", "s5"}, []string{"r2"}, nil, [4]int{}},
		{"a value of the state is lost with its message", 13, 4, false, fold.Span{From: 4, To: 12}, nil, nil, nil, [4]int{1, 2, 2, 1}},
		{"an outcome", 13, 9, false, fold.Span{From: 9, To: 12}, nil, nil, []string{"c2"}, [4]int{1, 1, 1, 0}},
		{"an admission", 11, 7, false, fold.Span{From: 7, To: 10}, []string{"s1", "s2"}, []string{"r1"}, nil, [4]int{1, 0, 2, 1}},
		{"a call under way", 10, 6, false, fold.Span{From: 6, To: 9}, []string{"s1", "s2"}, []string{"r1"}, nil, [4]int{0, 0, 1, 1}},
		{"an abort", 17, 14, true, fold.Span{From: 14, To: 14}, []string{"s4"}, nil, nil, [4]int{}},
		{"an admission that waits", 19, 18, false, fold.Span{From: 18, To: 18}, []string{"s4", "s5"}, []string{"r2"}, nil, [4]int{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := &spoiled{Store: memstore.New(), bad: []int64{tt.bad}}
			write(t, st, history()[:tt.end]...)
			m := mendAll(t, st)
			r := m.batch.Records[0].(*journal.Repair)
			if m.span != tt.span || m.alone() != tt.alone || r.From != tt.span.From || r.To != tt.span.To || m.unread != 1 {
				t.Errorf("%+v is passed over (alone: %v, %d unread), by record %+v; want %+v (%v)", m.span, m.alone(), m.unread, r, tt.span, tt.alone)
			}
			if diff := cmp.Diff([][]string{tt.open, tt.messages, tt.calls}, [][]string{r.Open, r.Messages, r.Calls}, cmp.Transformer("set", func(s []string) string { return fmt.Sprint(s) })); diff != "" {
				t.Errorf("open submissions, messages and calls (-want +got):\n%s", diff)
			}
			if got := [4]int{m.messages, m.turns, m.results, m.writes}; got != tt.counts {
				t.Errorf("forgotten: %v, want %v", got, tt.counts)
			}
			for _, sub := range tt.open {
				row, err := st.Submission(t.Context(), patient, sub)
				if err != nil || row.Outcome != journal.Failed {
					t.Errorf("submission %s: %+v, %v", sub, row, err)
				}
			}
		})
	}
}

// What breaks a rule is damage too, also in the middle of a batch.
func TestDiagnoseBrokenRule(t *testing.T) {
	st := &spoiled{Store: memstore.New()}
	write(t, st, history()[:13]...)
	write(t, st, []journal.Record{&journal.State{Name: "x", Value: jsontext.Value(`1`)}, &journal.ToolBatch{Turn: "t9"}})
	m := mendAll(t, st)
	if m.span != (fold.Span{From: 13, To: 13}) || m.unread != 0 || m.writes != 1 {
		t.Errorf("the mending is %+v", m)
	}
	if state, err := replay(t.Context(), st, patient); err != nil || state.Vars["x"] != nil {
		t.Errorf("half a batch counts: %s, %v", state.Vars["x"], err)
	}
}

// What cannot be mended is left alone, with the reason.
func TestDiagnoseRefuses(t *testing.T) {
	newerRecord := `{"v":1,"at":0,"r":[{"k":"from_the_future","d":{}}]}`
	for _, tt := range []struct {
		name string
		bad  []int64
		raw  []string
		want string
	}{
		{"the birth", []int64{0}, nil, "the record of its creation cannot be read"},
		{"a newer record", nil, []string{newerRecord}, "a newer version of the program has written batch 13"},
		{"a newer format", nil, []string{`{"v":2,"at":0,"r":[]}`}, "a newer version of the program has written batch 13"},
		{"something newer behind the damage", []int64{9}, []string{newerRecord}, "a newer version of the program has written batch 13"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := &spoiled{Store: memstore.New(), bad: tt.bad}
			write(t, st, history()[:13]...)
			for _, payload := range tt.raw {
				appendRaw(t, st, []byte(payload), nil)
			}
			m, err := diagnose(t.Context(), st, patient, repairTime)
			if !errors.Is(err, errNotMendable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("diagnose: %+v, %v; want that it is refused: %s", m, err, tt.want)
			}
		})
	}
	st := &spoiled{Store: memstore.New()}
	if _, err := diagnose(t.Context(), st, patient, repairTime); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no such conversation: %v", err)
	}
	write(t, st, history()...)
	if m, err := diagnose(t.Context(), st, patient, repairTime); m != nil || err != nil {
		t.Errorf("a sound one: %+v, %v", m, err)
	}
}

// A batch that is no batch at all is damage, and not that of a newer version.
func TestDiagnoseNoJSON(t *testing.T) {
	st := &spoiled{Store: memstore.New()}
	write(t, st, history()[:13]...)
	appendRaw(t, st, []byte("\xff"), nil)
	if m := mendAll(t, st); m.span != (fold.Span{From: 13, To: 13}) || m.unread != 1 {
		t.Errorf("the mending is %+v", m)
	}
}
