package fold

import (
	"errors"
	"slices"

	"github.com/flue-go/flue/journal"
)

// A Span is the batches from From to To.
type Span struct{ From, To int64 }

// PassOver records that the batches of the span do not count. It is called in
// place of applying them. A repair record is refused unless what it passes over
// has been passed over, so that no reader can miss what it says.
func (s *State) PassOver(span Span) {
	s.Passed = append(s.Passed, span)
	s.Advance(span.To)
}

// interruptedCall is the outcome of a call that a repair has ended.
const interruptedCall = `{"type":"interrupted","message":"The record of this call was damaged. Its outcome is unknown."}`

// repair ends all that is under way, so that the conversation is at rest. What
// is open by the record's word is all that can be settled after it.
func (s *State) repair(r *journal.Repair) error {
	if !slices.Contains(s.Passed, Span{r.From, r.To}) {
		return s.refuse(r, "batches %d to %d have not been passed over", r.From, r.To)
	}
	for i, id := range r.Open {
		if slices.Contains(r.Open[:i], id) {
			return s.refuse(r, "submission %s is open twice", id)
		}
	}
	if s.Phase == Tools {
		if err := s.interruptCalls(); err != nil {
			return err
		}
	}
	s.leaveSummary()
	s.Active, s.Joined, s.Queue, s.Response, s.Steps, s.Phase = nil, nil, nil, Response{}, nil, Idle
	s.open = nil
	for _, id := range r.Open {
		s.Queue = append(s.Queue, &Submission{Admitted: journal.Admitted{Submission: id}})
	}
	return nil
}

// interruptCalls commits the open batch of calls. The model is told of those
// without an outcome that it is unknown.
func (s *State) interruptCalls() error {
	resp := &s.Response
	for _, c := range resp.Calls {
		if resp.Outcomes[c.Call] == nil {
			resp.Outcomes[c.Call] = &journal.Outcome{
				Turn: resp.Turn, Response: resp.ID, Call: c.Call, Tool: c.Name, Failed: true, Content: interruptedCall,
			}
		}
	}
	return s.toolBatch(&journal.ToolBatch{Turn: resp.Turn})
}

// A Batch is a batch of a journal as a reader found it: its records, or why they
// cannot be had.
type Batch struct {
	Offset  int64
	Records []journal.Record
	Err     error
}

// Batches ranges over the batches of a journal from offset 0, as often as it is
// asked to. An error ends it.
type Batches func(yield func(Batch, error) bool)

// A DamageError says where a journal cannot be continued, and why.
type DamageError struct {
	Offset int64
	Err    error // what reading the batch came to, or a [*RuleError]
}

func (e *DamageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// Newer reports whether a newer version of this program has written what this
// one cannot continue from. Such a journal need not be damaged.
func (e *DamageError) Newer() bool {
	var format *journal.FormatError
	var rule *RuleError
	return errors.As(e.Err, &format) && format.Newer || errors.As(e.Err, &rule) && rule.Newer
}

// Replay folds a whole journal. It may range over the batches several times; an
// error of theirs ends the replay and is returned.
//
// If the journal cannot be continued, the error is a [*DamageError] and the
// state is that before the damaged batch. Damage that a repair record further on
// passes over is none. Spans are passed over in addition.
func Replay(batches Batches, spans ...Span) (*State, error) {
	r := replay{batches: batches, pass: make(map[int64]Span), undone: make(map[string]bool)}
	for _, span := range spans {
		r.pass[span.From] = span
	}
	return r.run()
}

// ReplayWithout is [Replay] for a journal whose latest compaction in effect is
// about to be undone.
func ReplayWithout(batches Batches, compaction string) (*State, error) {
	r := replay{batches: batches, pass: make(map[int64]Span), undone: make(map[string]bool)}
	if st, err := r.run(); err != nil { // what is undone by records must be known first
		return st, err
	}
	r.undone[compaction] = true
	return r.run()
}

func (r *replay) run() (*State, error) {
	for {
		before := len(r.pass) + len(r.undone)
		st, err := r.once(1<<63 - 1)
		var damage *DamageError
		if errors.As(err, &damage) {
			if err := r.find(damage.Offset); err != nil {
				return nil, err
			}
		}
		if len(r.pass)+len(r.undone) > before {
			continue // from the start, with what is known now
		}
		if damage == nil {
			return st, err
		}
		// A batch is applied whole or not at all: do without what was applied of
		// this one before the rule was broken.
		if st, err = r.once(damage.Offset); err != nil {
			return nil, err
		}
		return st, damage
	}
}

// A replay knows the spans to pass over by where they begin, and the compactions
// that are undone.
type replay struct {
	batches Batches
	pass    map[int64]Span
	undone  map[string]bool
}

// once folds the batches before the offset. It stops early at a record that is
// news of what to pass over, having taken note of it.
func (r *replay) once(before int64) (*State, error) {
	st := &State{Head: -1}
	for b, err := range r.batches {
		if err != nil {
			return nil, err
		}
		if b.Offset >= before {
			break
		}
		if b.Offset <= st.Head {
			continue // passed over
		}
		if span, ok := r.pass[b.Offset]; ok {
			st.PassOver(span)
			continue
		}
		if r.learn(b.Records, func(p *journal.Repair) bool { return p.To < b.Offset }) {
			return st, nil
		}
		if r.learnUndone(b.Records) {
			return st, nil
		}
		if err := r.apply(st, b); err != nil {
			return nil, &DamageError{Offset: b.Offset, Err: err}
		}
	}
	return st, nil
}

func (r *replay) apply(st *State, b Batch) error {
	if b.Err != nil {
		return b.Err
	}
	for _, rec := range b.Records {
		apply := st.Apply
		if c, ok := rec.(*journal.Compacted); ok && r.undone[c.ID] {
			apply = func(journal.Record) error { return st.PassCompaction(c) }
		}
		if err := apply(rec); err != nil {
			return err
		}
	}
	st.Advance(b.Offset)
	return nil
}

// find looks behind a damaged batch for the record that repairs it.
func (r *replay) find(offset int64) error {
	for b, err := range r.batches {
		if err != nil {
			return err
		}
		if b.Offset > offset {
			r.learn(b.Records, func(p *journal.Repair) bool { return p.From == offset && p.To < b.Offset })
		}
	}
	return nil
}

// learn takes note of what the repair records among the records pass over, of
// those that count, and reports whether any of it is news.
func (r *replay) learn(records []journal.Record, counts func(*journal.Repair) bool) bool {
	news := false
	for _, rec := range records {
		p, ok := rec.(*journal.Repair)
		if !ok || !counts(p) {
			continue
		}
		if _, known := r.pass[p.From]; !known && p.From > 0 && p.From <= p.To {
			r.pass[p.From] = Span{p.From, p.To}
			news = true
		}
	}
	return news
}

// learnUndone takes note of the compactions that the records undo, and reports
// whether any of them is news.
func (r *replay) learnUndone(records []journal.Record) bool {
	news := false
	for _, rec := range records {
		if u, ok := rec.(*journal.Uncompacted); ok && !r.undone[u.ID] {
			r.undone[u.ID] = true
			news = true
		}
	}
	return news
}
