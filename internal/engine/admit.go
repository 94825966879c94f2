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
}

// Admit accepts a message and returns when it is durable. The errors are those
// of store.Store.Admit, and ErrDamaged if the instance is known to be set aside:
// nobody would answer.
//
// Durability: when Admit returns nil, the message will be answered exactly
// once, by this process or by another, whatever dies.
func (e *Engine) Admit(ctx context.Context, a Admission) (store.Receipt, error) {
	if e.hasEnded() {
		return store.Receipt{}, ErrEnded
	}
	if err := e.slots.damage(a.Address); err != nil {
		return store.Receipt{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	now := time.Now()
	admitted := journal.Batch{At: now, Records: []journal.Record{&journal.Admitted{
		Submission: a.Submission, Message: a.Message, Origin: a.Origin, Traceparent: a.Traceparent,
	}}}
	payload, err := journal.Encode(admitted)
	if err != nil {
		return store.Receipt{}, err
	}
	req := &store.Admission{
		Address: a.Address, Condition: a.Condition, Submission: a.Submission, Identity: a.Identity,
		AcceptedAt: now, Payload: payload, Attachments: a.Attachments, Node: e.cfg.Node,
	}
	var born journal.Batch
	if !a.NoCreate {
		if born, req.Birth, err = birth(a, now); err != nil {
			return store.Receipt{}, err
		}
	}
	r, err := e.cfg.Store.Admit(ctx, req)
	if err != nil || r.Duplicate {
		return r, err
	}
	var in []intake
	incarnation := ""
	if r.Created {
		in = append(in, intake{r.Before, born})
		incarnation = req.Birth.Incarnation
		e.hub.publish(a.Address, incarnation, r.Before, born)
	}
	in = append(in, intake{r.Offset, admitted})
	e.hub.publishKnown(a.Address, incarnation, r.Offset, admitted)
	e.cfg.Observe(Event{Type: EventAdmitted, Time: now, Instance: a.Address, Submission: a.Submission})
	e.route(a.Address, r.Lease, r.Created, in...)
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
	payload, err := journal.Encode(journal.Batch{At: time.Now(), Records: []journal.Record{&journal.Abort{}}})
	if err != nil {
		return false, err
	}
	ok, err := e.cfg.Store.Abort(ctx, addr, payload)
	if err != nil || !ok {
		return false, err
	}
	inst, err := e.cfg.Store.Instance(context.WithoutCancel(ctx), addr)
	if err != nil {
		return true, fmt.Errorf("telling the running work of the abort: %w", err)
	}
	e.route(addr, nil, false, intake{offset: inst.Head})
	return true, nil
}

// route hands intake to the instance's driver, if this process owns the
// instance or can come to own it. Otherwise another process does, and must
// notice by itself: stores that several processes share need that still.
func (e *Engine) route(addr store.Address, lease *store.Lease, created bool, in ...intake) {
	if e.cfg.Programs[addr.Agent] == nil {
		return
	}
	var s *slot
	switch {
	case lease != nil:
		s = e.slots.adopt(*lease)
		if created {
			s.seed()
		}
	default:
		if s = e.slots.find(addr); s == nil {
			l, err := e.cfg.Store.Take(e.ctx, e.cfg.Node, addr)
			if err != nil {
				if !errors.Is(err, store.ErrOwned) && e.ctx.Err() == nil {
					e.cfg.Log.Error("taking an instance up", "instance", addr.String(), "error", err)
				}
				return
			}
			s = e.slots.adopt(l)
		}
	}
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
