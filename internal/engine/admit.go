package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// An Admission is one message for an instance.
type Admission struct {
	Address     store.Address
	Condition   store.Condition
	Submission  string // see NewSubmissionID
	Identity    []byte // of the message; compared when the submission id was used before
	Message     journal.Message
	Attachments []store.Attachment
	InitialData json.RawMessage // used if this admission creates the instance
	Origin      string          // direct, dispatch
	Traceparent string
	NoCreate    bool // the instance must exist

	Repeatable bool // the sender may send it again under the same id
	Within     bool // it is sent by code of an agent that this engine runs
}

// Admit accepts a message and returns when it is durable. The errors are those
// of store.Store.Admit, and ErrDamaged if the instance is known to be set aside:
// nobody would answer. It is an *OverloadError, and nothing is stored, while there is
// more to do than this process can take on; a message that was accepted before gets
// its receipt all the same, and one that belongs to work under way is accepted, so that
// this can come to its end.
//
// Durability: when Admit returns nil, the message will be answered exactly
// once, by this process or by another, whatever dies.
func (e *Engine) Admit(ctx context.Context, a Admission) (store.Receipt, error) {
	if e.hasEnded() {
		return store.Receipt{}, ErrEnded
	}
	if err := e.setAside(ctx, a.Address); err != nil {
		return store.Receipt{}, err
	}
	now := e.Now()
	admitted := journal.Batch{At: now, Records: []journal.Record{&journal.Admitted{
		Submission: a.Submission, Message: a.Message, Origin: a.Origin, Traceparent: a.Traceparent,
	}}}
	payload, err := journal.Encode(admitted)
	if err != nil {
		return store.Receipt{}, err
	}
	req := &store.Admission{
		Address: a.Address, Condition: a.Condition, Submission: a.Submission, Identity: a.Identity,
		AcceptedAt: now, Payload: payload, Attachments: a.Attachments,
	}
	if (e.cfg.Programs[a.Address.Agent] != nil || !e.shared()) && !e.strangers.knows(a.Address) {
		req.Node = e.claimer()
	}
	if over := e.Overload(); over != nil && !a.Within {
		r, replayed, err := e.replayed(ctx, a, req)
		if err == nil && !replayed {
			err = over
		}
		return r, err
	}
	var born journal.Batch
	if !a.NoCreate {
		if born, req.Birth, err = birth(a, now); err != nil {
			return store.Receipt{}, err
		}
	}
	if e.shared() {
		e.sharing.own.begin(a.Address)
		defer e.sharing.admitted(a.Address)
	}
	term := e.tenure.now()
	r, err := e.cfg.Store.Admit(ctx, req)
	e.doubts.add(a.Address, err)
	e.ailments.note(err)
	if err != nil || r.Duplicate {
		return r, unanswered(ctx, err)
	}
	var in []intake
	incarnation := ""
	if r.Created {
		in = append(in, intake{r.Before, born, len(req.Birth.Payload)})
		incarnation = req.Birth.Incarnation
		e.hub.publishKnown(a.Address, incarnation, r.Before, born)
	}
	in = append(in, intake{r.Offset, admitted, len(payload)})
	e.hub.publishKnown(a.Address, incarnation, r.Offset, admitted)
	e.cfg.Observe(Event{
		Type: EventAdmitted, Time: now, Instance: a.Address, Submission: a.Submission, Origin: a.Origin, Traceparent: a.Traceparent,
	})
	if r.Lease == nil || e.cfg.Programs[a.Address.Agent] == nil {
		e.route(a.Address, in...)
		return r, nil
	}
	s := e.slots.adopt(*r.Lease, term)
	if r.Created {
		s.seed()
	}
	e.hand(s, in...)
	return r, nil
}

// birth makes the first record of a new instance.
func birth(a Admission, now time.Time) (journal.Batch, *store.Birth, error) {
	b := &store.Birth{UID: newID("inst_"), Incarnation: newID("inc_")}
	batch := journal.Batch{At: now, Records: []journal.Record{&journal.Born{
		Agent: a.Address.Agent, ID: a.Address.ID, UID: b.UID, Incarnation: b.Incarnation, InitialData: []byte(a.InitialData),
	}}}
	var err error
	b.Payload, err = journal.Encode(batch)
	return batch, b, err
}

// Abort asks that all unsettled work of the instance be aborted and reports
// whether there was any.
//
// Durability: when Abort returns true, the work will settle as aborted unless
// its response was complete before, whatever dies.
func (e *Engine) Abort(ctx context.Context, addr store.Address) (bool, error) {
	payload, err := journal.Encode(journal.Batch{At: e.Now(), Records: []journal.Record{&journal.Abort{}}})
	if err != nil {
		return false, err
	}
	ok, err := e.cfg.Store.Abort(ctx, addr, payload)
	e.ailments.note(err)
	e.doubts.add(addr, err)
	if err != nil || !ok {
		return false, unanswered(ctx, err)
	}
	inst, err := e.cfg.Store.Instance(context.WithoutCancel(ctx), addr)
	if err != nil {
		e.doubts.add(addr, err)
		return true, fmt.Errorf("telling the running work of the abort: %w", err)
	}
	e.cut(addr, intake{offset: inst.Head})
	return true, nil
}

// route hands intake to the instance's driver, if this process owns the
// instance, or can come to own it because no other process has the store open.
func (e *Engine) route(addr store.Address, in ...intake) {
	if e.cfg.Programs[addr.Agent] == nil {
		return
	}
	s := e.slots.find(addr)
	if s == nil && !e.shared() && !e.parts() { // otherwise its owner is told by the store
		s = e.take(addr)
	}
	if s != nil {
		e.hand(s, in...)
	}
}

// cut is route for an abort. What nobody works on is taken for that, whether there is
// a place or not: it would wait for one only to end.
func (e *Engine) cut(addr store.Address, in intake) {
	if e.cfg.Programs[addr.Agent] == nil {
		return
	}
	if s := e.hold(addr); s != nil {
		s.deliver(in)
		e.startAtOnce(s)
	}
}

// take comes to own an instance, or returns nil. The answer that gives it to this process
// may be on its way: one of two leases fences the other, and what was begun with it. So
// whoever drives the slot asks for one.
//
// Of a store that serves one process nobody else can own the instance, and its driver
// gets it, however long that takes. So it does while this process's own lease has lapsed.
func (e *Engine) take(addr store.Address) *slot {
	if e.strangers.knows(addr) {
		return nil
	}
	s := e.slots.keep(addr)
	term := e.tenure.now()
	if !e.shared() || e.tenure.holds(term) != nil || s.owned() || !e.slots.occupy(s) {
		return s
	}
	l, err := e.cfg.Store.Take(e.ctx, e.cfg.Node, addr)
	if err != nil && e.tenure.holds(term) == nil && e.slots.discard(s) {
		if !errors.Is(err, store.ErrOwned) && e.ctx.Err() == nil {
			e.cfg.Log.Error("taking an instance up", "instance", addr.String(), "error", err)
		}
		return nil
	}
	if err == nil {
		e.slots.adopt(l, term)
	}
	s.vacate()
	return s
}

// hand gives intake to the slot's driver.
func (e *Engine) hand(s *slot, in ...intake) {
	s.deliver(in...)
	e.start(s)
}

// seed gives a slot the empty state, for an instance whose whole journal is in
// its inbox.
func (s *slot) seed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.driven && s.mem == nil {
		s.mem = newMemory()
	}
}
