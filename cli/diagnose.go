package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A mending is what a repair would do to a conversation, and why.
type mending struct {
	addr   store.Address
	head   int64
	damage *fold.DamageError
	span   fold.Span // the batches to pass over
	open   []store.Submission
	held   []approval    // calls that wait for approval, in the state that is left
	batch  journal.Batch // what to append

	survey
}

// alone reports whether only the damaged batch itself is passed over, though
// others follow it.
func (m *mending) alone() bool { return m.span.From == m.span.To && m.span.To < m.head }

// diagnose looks for damage and finds out how to mend it. Without damage it
// returns nil. Damage that must not be mended this way is an error that says why
// and what to do.
//
// What can be passed over alone is: the batch at which the journal cannot be
// continued, if all that follows is in order without it. Otherwise everything
// from there on is, so that the state is one that was true once.
func diagnose(ctx context.Context, st keeper, addr store.Address, now time.Time) (*mending, error) {
	_, err := replay(ctx, st, addr)
	m := &mending{addr: addr}
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &m.damage):
		return nil, err
	}
	if err := m.refusal(); err != nil {
		return nil, err
	}
	row, err := st.Instance(ctx, addr)
	if err != nil {
		return nil, err
	}
	m.head = row.Head
	if m.open, err = st.Unsettled(ctx, addr); err != nil {
		return nil, err
	}
	m.span = fold.Span{From: m.damage.Offset, To: m.damage.Offset}
	if _, err := replay(ctx, st, addr, m.span); err != nil {
		var more *fold.DamageError
		if !errors.As(err, &more) {
			return nil, err
		}
		m.span.To = m.head
	}
	if m.survey, err = look(ctx, st, addr, m.span); err != nil {
		return nil, err
	}
	if m.newer >= 0 {
		return nil, m.needsNewer(m.newer)
	}
	state, err := replay(ctx, st, addr, m.span)
	if err != nil {
		return nil, m.useless(err)
	}
	// One that cannot be read cannot be run either.
	m.held = slices.DeleteFunc(pending(state), func(a approval) bool { return a.Tool == unreadable })
	records, err := m.records(state, now)
	if err != nil {
		return nil, err
	}
	m.batch = journal.Batch{At: now, Records: records}
	if err := m.rehearse(state); err != nil {
		return nil, err
	}
	return m, nil
}

// errNotMendable is wrapped by what diagnose says of damage that it does not mend.
var errNotMendable = errors.New("it cannot be repaired")

// refusal says why damage must not be mended, or nil.
func (m *mending) refusal() error {
	switch {
	case m.damage.Newer():
		return m.needsNewer(m.damage.Offset)
	case m.damage.Offset == 0:
		return fmt.Errorf("%w: the record of its creation cannot be read (%w), and without that nothing else means anything: restore a backup, or begin another conversation",
			errNotMendable, m.damage)
	}
	return nil
}

func (m *mending) needsNewer(offset int64) error {
	return fmt.Errorf("%w by this version: a newer version of the program has written batch %d. That is no damage: use the newer version", errNotMendable, offset)
}

// A survey is what there is to know of a journal that is to be mended, beside its
// state.
type survey struct {
	unread   int       // batches of the span that cannot be read
	messages int       // messages that entered the conversation in the span
	turns    int       // answers of the model in it
	results  int       // results of calls in it
	writes   int       // values that were written to the state in it
	before   time.Time // when the batch before the span was written
	until    time.Time // and the last one of the span that says so

	newer     int64             // a batch from the span on that a newer version has written, or -1
	origins   map[string]string // of submissions
	responses []string          // messages of the agent that were begun and never ended
	calls     []string          // calls without an outcome
}

// look surveys a journal.
func look(ctx context.Context, st store.Store, addr store.Address, span fold.Span) (survey, error) {
	s := survey{newer: -1, origins: make(map[string]string)}
	for b, err := range batches(ctx, st, addr) {
		if err != nil {
			return s, err
		}
		within := span.From <= b.Offset && b.Offset <= span.To
		var format *journal.FormatError
		if errors.As(b.Err, &format) && format.Newer && b.Offset >= span.From {
			s.newer = b.Offset
		}
		switch {
		case b.Err != nil && within:
			s.unread++
		case b.Err != nil:
		case b.Offset < span.From:
			s.before = b.At
		case within:
			s.until = b.At
		}
		for _, r := range b.Records {
			if u, ok := r.(*journal.Unknown); ok && !u.Optional && b.Offset >= span.From {
				s.newer = b.Offset
			}
			s.follow(r)
			if within {
				s.count(r)
			}
		}
	}
	return s, nil
}

// follow keeps track of what is open in the eyes of clients.
func (s *survey) follow(r journal.Record) {
	end := func(list []string, id string) []string {
		return slices.DeleteFunc(list, func(x string) bool { return x == id })
	}
	switch r := r.(type) {
	case *journal.Admitted:
		s.origins[r.Submission] = r.Origin
	case *journal.TurnStarted:
		s.responses = append(end(s.responses, r.Response), r.Response)
	case *journal.TurnDone:
		s.responses = end(s.responses, r.Response)
		for _, b := range r.Blocks {
			if b.Kind == journal.ToolCall {
				s.calls = append(end(s.calls, b.Call), b.Call)
			}
		}
	case *journal.Outcome:
		s.calls = end(s.calls, r.Call)
	case *journal.Repair:
		s.responses, s.calls = nil, nil
	}
}

// count counts what the agent forgets with a record.
func (s *survey) count(r journal.Record) {
	switch r := r.(type) {
	case *journal.Entry:
		if r.Purpose == journal.Input {
			s.messages++
		}
	case *journal.TurnDone:
		s.turns++
	case *journal.Outcome:
		s.results++
		s.writes += len(r.Writes)
	case *journal.State:
		s.writes++
	}
}

// records are what the repair appends: the repair itself, the end of what waits
// for approval, a word for the model and for people, and the end of everything
// that is unsettled.
func (m *mending) records(state *fold.State, now time.Time) ([]journal.Record, error) {
	r := &journal.Repair{From: m.span.From, To: m.span.To, Reason: m.damage.Error(), Messages: m.responses, Calls: m.calls}
	for _, sub := range m.open {
		r.Open = append(r.Open, sub.ID)
	}
	records := []journal.Record{r}
	for _, a := range m.held {
		value, err := withdrawn(state.Vars[approvalsState+a.ID], now)
		if err != nil {
			return nil, fmt.Errorf("withdrawing the call %s: %w", a.ID, err)
		}
		records = append(records, &journal.State{Name: approvalsState + a.ID, Value: value})
	}
	records = append(records, &journal.Entry{
		ID: fmt.Sprintf("entry_repair_%d", m.head+1), Purpose: journal.Narration,
		Message: journal.Message{Kind: journal.Signal, Type: journal.SignalRepaired, Body: m.notice()},
	})
	for _, sub := range m.open {
		records = append(records, m.failure(sub)...)
	}
	return records, nil
}

// What the model is told of a call that waited for approval.
const (
	withdrawer   = "A repair of the record of this conversation"
	withdrawnSay = "It will not be run. Whether it was approved and run before is unknown, because the record was damaged: find out before you ask for it again."
)

// withdrawn is a stored approval that waits, as it is when a repair has taken
// the call back. That it waits may be a state that has been overcome: a person
// who approves a second time what was run already must not have it run again.
// The runtime tells the model with the next message.
func withdrawn(stored json.RawMessage, now time.Time) ([]byte, error) {
	var a map[string]json.RawMessage
	if err := json.Unmarshal(stored, &a); err != nil {
		return nil, err
	}
	for name, v := range map[string]any{
		"decision": flue.Decision{By: withdrawer, Reason: "the record was damaged", At: now.UTC()},
		"status":   "unknown",
		"result":   withdrawnSay,
	} {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		a[name] = raw
	}
	return json.Marshal(a)
}

// notice is what the model is told.
func (m *mending) notice() string {
	const begin = "The record of this conversation was damaged and has been repaired. "
	if m.alone() {
		return begin + "A small part of it, written after " + stamp(m.before) + ", is missing."
	}
	return begin + "You do not know what happened after " + stamp(m.before) + ", although people may still see it. " +
		"Before you do anything that may have been done then, find out whether it was."
}

// The words for a submission that a repair has ended.
const (
	damageMessage = "Submission failed: the record of the conversation was damaged."
	damageDetails = "The conversation has been repaired and can go on. What the work on this submission had done before is not known: look before you send it again."
)

// failure ends a submission, in the form in which the engine does.
func (m *mending) failure(sub store.Submission) []journal.Record {
	told, err := json.Marshal(struct {
		Name    string    `json:"name"`
		Message string    `json:"message"`
		Code    flue.Code `json:"type"`
		Details string    `json:"details"`
	}{"FlueError", damageMessage, flue.CodeDamaged, damageDetails})
	if err != nil { // strings always encode
		panic(err)
	}
	attributes := map[string]string{"submissionId": sub.ID, "reason": string(flue.CodeDamaged)}
	if origin := m.origins[sub.ID]; origin != "" {
		attributes["kind"] = origin
	}
	return []journal.Record{
		&journal.Entry{
			ID: "entry_" + journal.SignalFailed + "_" + sub.ID, Submission: sub.ID, Purpose: journal.Advisory, Ending: journal.Failed,
			Message: journal.Message{Kind: journal.Signal, Type: journal.SignalFailed, Body: damageMessage, Attributes: attributes},
		},
		&journal.Settled{Submission: sub.ID, Outcome: journal.Failed, Error: told, AnsweredBy: sub.ID},
	}
}

// rehearse applies what is to be appended to the state that is left, so that
// nothing is written that does not help.
func (m *mending) rehearse(state *fold.State) error {
	for _, r := range m.batch.Records {
		if err := state.Apply(r); err != nil {
			return m.useless(err)
		}
	}
	if state.Phase != fold.Idle || state.Unsettled() {
		return m.useless(fmt.Errorf("it would be left in phase %s", state.Phase))
	}
	return nil
}

func (m *mending) useless(err error) error {
	return fmt.Errorf("%w: %w. Restore a backup, or begin another conversation", errNotMendable, err)
}
