package flue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/schema"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// An Instance is a handle on one durable agent. It holds nothing: making one is
// free, and the instance need not exist yet.
type Instance struct {
	rt   *Runtime
	addr store.Address
	err  error // why the address is bad
}

// Instance returns a handle on the instance of the agent with the id. The id
// is the caller's choice: a user, a ticket, a channel. The first message
// creates the instance.
func (rt *Runtime) Instance(agent, id string) *Instance {
	in := &Instance{rt: rt, addr: store.Address{Agent: agent, ID: id}}
	if rt.agents[agent] == nil {
		in.err = fmt.Errorf("flue: no agent is named %q; this runtime has %s", agent, list(rt.agents))
	} else {
		in.err = validateID(id)
	}
	return in
}

// maxID bounds an instance's id, in bytes.
const maxID = 512

func validateID(id string) error {
	switch {
	case isBlank(id):
		return wire.InvalidRequest("Agent conversation URLs must end with a non-empty conversation id segment.")
	case len(id) > maxID || !utf8.ValidString(id):
		return wire.InvalidRequest(fmt.Sprintf("A conversation id is valid UTF-8 of at most %d bytes.", maxID))
	}
	for _, c := range id {
		if c < ' ' || c == 0x7f {
			return wire.InvalidRequest("A conversation id has no control characters.")
		}
	}
	return nil
}

// SendOptions refines [Instance.Dispatch]. The zero value sends
// unconditionally.
type SendOptions struct {
	// InitialData is recorded if this message creates the instance, and
	// ignored if it does not. It is sent as JSON.
	InitialData any

	// UID, if set, sends only to that incarnation of the instance; otherwise
	// the error has CodeInstanceNotFound.
	UID string

	// CreateOnly sends only if there is no instance yet; otherwise the error
	// has CodeInstanceExists.
	CreateOnly bool

	// IdempotencyKey names the delivery, at most 256 characters. Sending the
	// same message under the same key again has no effect and returns the
	// first receipt, marked as a duplicate; another message under the key is
	// refused with CodeSubmissionConflict.
	IdempotencyKey string
}

// A Receipt says that a message was accepted.
type Receipt struct {
	Submission string // the id of the submission that the message became
	UID        string // the incarnation that accepted it
	AcceptedAt time.Time
	Duplicate  bool // the message had been accepted before
	Offset     wire.Offset
}

// Dispatch sends a message to the instance and returns when it is durable,
// which is before the agent works on it. An error that the sender can do
// something about is an [*Error].
//
// Durability: when Dispatch returns a receipt, the message will be answered
// exactly once, whatever dies. When it returns an error with CodeStoreUnavailable,
// or one without a code, the message may or may not have been accepted; send it
// again under the same idempotency key to find out.
func (in *Instance) Dispatch(ctx context.Context, m Message, options ...SendOptions) (Receipt, error) {
	var o SendOptions
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		return Receipt{}, errors.New("flue: Dispatch takes at most one SendOptions")
	}
	p := wire.Prompt{Message: m.delivery(), UID: o.UID, Create: o.CreateOnly, IdempotencyKey: o.IdempotencyKey}
	if o.InitialData != nil {
		data, err := schema.Marshal(o.InitialData)
		if err != nil {
			return Receipt{}, fmt.Errorf("flue: encoding the initial data: %w", err)
		}
		p.InitialData = jsontext.Value(data)
	}
	if err := p.Validate(); err != nil {
		return Receipt{}, err
	}
	return in.send(ctx, outgoing{Prompt: p, pinned: m.Pinned}, "dispatch")
}

// Abort asks that all unsettled work of the instance be aborted, and reports
// whether there was any. The work settles as aborted soon after, unless its
// response was complete before.
func (in *Instance) Abort(ctx context.Context) (bool, error) {
	if in.err != nil {
		return false, in.err
	}
	ok, err := in.rt.engine.Abort(ctx, in.addr)
	if failed := storeFailure(err, true); failed != nil {
		return ok, fmt.Errorf("flue: aborting the work of %s: %w", in.addr, failed)
	}
	return ok, err
}

// An outgoing is a prompt that has been validated, with what only this program
// can say of it.
type outgoing struct {
	wire.Prompt
	pinned bool
}

// send admits a message.
func (in *Instance) send(ctx context.Context, p outgoing, origin string) (Receipt, error) {
	if p.IdempotencyKey == "" {
		return in.admit(ctx, p, origin, engine.NewSubmissionID(), false)
	}
	return in.sendAs(ctx, p, origin, keyedSubmission(in.addr, p.IdempotencyKey))
}

// sendAs is send with the id of the submission that the message becomes, under which
// it may have been sent before.
func (in *Instance) sendAs(ctx context.Context, p outgoing, origin, submission string) (Receipt, error) {
	return in.admit(ctx, p, origin, submission, true)
}

func (in *Instance) admit(ctx context.Context, p outgoing, origin, submission string, repeatable bool) (Receipt, error) {
	if in.err != nil {
		return Receipt{}, in.err
	}
	if w := workFrom(ctx); w != nil { // the agent's own code, which may have been overtaken
		if err := w.Holds(); err != nil {
			return Receipt{}, err
		}
	}
	a := engine.Admission{
		Address: in.addr, Condition: store.Condition{Create: p.Create, UID: p.UID}, NoCreate: p.UID != "",
		Origin: origin, Traceparent: p.Traceparent, Submission: submission,
	}
	a.Message, a.Attachments = stored(a.Submission, p.Message)
	a.Message.Pinned = p.pinned
	a.Repeatable = repeatable
	a.Within = cmp.Or(workFrom(ctx), watcher(ctx)) != nil
	a.Identity = identity(in.addr, p.Prompt)
	if p.pinned { // it is not the same as the message without
		a.Identity = append(a.Identity, "pinned"...)
	}
	var err error
	if a.InitialData, err = in.initialData(ctx, p.Prompt); err != nil {
		return Receipt{}, err
	}
	r, err := in.rt.engine.Admit(ctx, a)
	if err != nil {
		return Receipt{}, in.refused(err, p.Prompt, a.Submission)
	}
	out := Receipt{Submission: r.Submission, UID: r.UID, AcceptedAt: r.AcceptedAt, Duplicate: r.Duplicate, Offset: wire.Offset(r.Before)}
	if r.Duplicate {
		out.Offset = wire.Start // what it led to may lie before the head
	}
	return out, nil
}

// initialData holds the data of a message that may create the instance to the
// agent's schema, and returns what to record: what was sent, with the schema's
// defaults.
func (in *Instance) initialData(ctx context.Context, p wire.Prompt) (json.RawMessage, error) {
	sent := json.RawMessage(p.InitialData)
	s := in.rt.agents[in.addr.Agent].InitialData
	if s == nil || p.UID != "" {
		return sent, nil
	}
	_, err := in.rt.engine.Instance(ctx, in.addr)
	if err == nil {
		return sent, nil // the instance has its data; what comes later is ignored
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, in.missing(err)
	}
	if sent == nil {
		return nil, wire.InitialDataMismatch("no initialData was sent")
	}
	whole, err := s.s.Normalize(sent)
	if err != nil {
		return nil, wire.InitialDataMismatch(err.Error())
	}
	return whole, nil
}

// refused is what a store's refusal means to the sender.
func (in *Instance) refused(err error, p wire.Prompt, submission string) error {
	var cond *store.ConditionError
	var over *engine.OverloadError
	switch {
	case errors.As(err, &over):
		return wire.Overloaded(over.Reason, over.RetryAfter)
	case errors.As(err, &cond) && cond.Exists && p.Create:
		return wire.InstanceExists(in.addr.ID, cond.UID)
	case errors.As(err, &cond):
		return wire.InstanceNotFound(in.addr.ID)
	case errors.Is(err, store.ErrConflict):
		return wire.SubmissionConflict(submission)
	case errors.Is(err, engine.ErrDamaged):
		return wire.ConversationDamaged(in.addr.ID, err)
	}
	if failed := storeFailure(err, true); failed != nil {
		err = failed
	}
	return fmt.Errorf("flue: accepting a message for %s: %w", in.addr, err)
}

// storeFailure is what an error of the store means to who has asked for something,
// if it is one that may pass, and nil otherwise. Its text has the cause, which is
// not for clients: those are told of the [*Error] in it.
func storeFailure(err error, change bool) error {
	var told *Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrEnded), errors.Is(err, store.ErrClosed):
		return wire.Unavailable()
	case errors.Is(err, store.ErrPoisoned):
		told = wire.StoreRefuses(err)
	case errors.Is(err, engine.ErrUnanswered), errors.Is(err, store.ErrUnavailable):
		told = wire.StoreUnavailable(change, err)
	default:
		return nil
	}
	return fmt.Errorf("%w (%v)", told, err)
}

// stored is a message in the form that the journal keeps, with its files apart.
func stored(submission string, d wire.Delivery) (journal.Message, []store.Attachment) {
	m := journal.Message{Kind: journal.MessageKind(d.Kind), Body: d.Body, Type: d.Type, Attributes: d.Attributes, TagName: d.TagName}
	var files []store.Attachment
	for i, f := range d.Attachments {
		id := fmt.Sprintf("att_direct_%s_%d", submission, i)
		files = append(files, store.Attachment{ID: id, MediaType: f.MediaType, Filename: f.Filename, Digest: sha256.Sum256(f.Data), Data: f.Data})
		m.Attachments = append(m.Attachments, journal.Attachment{ID: id, MediaType: f.MediaType, Filename: f.Filename, Size: len(f.Data)})
	}
	return m, files
}

// keyedSubmission derives a submission's id from an idempotency key. The
// derivation must never change: senders retry across upgrades.
func keyedSubmission(addr store.Address, key string) string {
	return derivedSubmission("sub_ik_", "flue-submission-key-1", addr, key)
}

// derivedSubmission is an id that depends on nothing but what it is given. The
// label keeps ids for different purposes apart.
func derivedSubmission(prefix, label string, addr store.Address, key string) string {
	h := sha256.New()
	for _, s := range []string{label, addr.Agent, addr.ID, key} {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	return prefix + hex.EncodeToString(h.Sum(nil)[:16])
}

// identity is a digest of all that a sender said. The derivation must never
// change: a retry is compared with what was stored.
func identity(addr store.Address, p wire.Prompt) []byte {
	d := p.Message
	files := make([][32]byte, len(d.Attachments))
	names := make([]string, 0, 2*len(d.Attachments))
	for i, f := range d.Attachments {
		files[i] = sha256.Sum256(f.Data)
		names = append(names, f.MediaType, f.Filename)
	}
	initial := journal.Canonical(p.InitialData)
	data, err := json.Marshal([]any{
		"flue-identity-1", addr.Agent, addr.ID, d.Kind, d.Body, d.Type, d.Attributes, d.TagName, files, names, string(initial),
	})
	if err != nil { // strings and bytes always encode
		panic(err)
	}
	sum := sha256.Sum256(data)
	return sum[:]
}
