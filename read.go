package flue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// A Reply is what answered a submission.
type Reply struct {
	Text       string // the text that the agent wrote, its parts separated by blank lines
	Submission string
	UID        string
	AnsweredBy string // the submission whose response this is; another one if it joined a live response

	// Data holds the values of each data part by name, in the order in which they
	// were written; see UseDataWriter. Clients see the last one.
	Data map[string][]json.RawMessage

	// Budget is the limit that ended the response, or nil if none did; see
	// [UseBudget].
	Budget *ExhaustedBudget

	// Metadata is what hooks have attached to the response, or nil; see
	// [UseResponseStart].
	Metadata Metadata
}

// Read waits until the submission has settled and returns the reply. If it did
// not complete the error is a [*SubmissionError], and one with CodeDamaged if it
// cannot before an operator has repaired the instance. Read may be called at any
// time, as often as one likes, and from any process that opens the store; when
// ctx ends only the waiting ends.
func (in *Instance) Read(ctx context.Context, submission string) (*Reply, error) {
	if in.err != nil {
		return nil, in.err
	}
	s, err := in.settled(ctx, submission)
	if err != nil {
		return nil, err
	}
	return in.reply(ctx, s.sub, s.uid)
}

// A settlement is a submission that has settled, and the uid of its instance.
type settlement struct {
	sub store.Submission
	uid string
}

// settled waits until the submission has settled.
func (in *Instance) settled(ctx context.Context, submission string) (settlement, error) {
	var back func()
	for {
		inst, err := in.rt.engine.Instance(ctx, in.addr)
		if err != nil {
			return settlement{}, in.missing(err)
		}
		sub, err := in.rt.engine.Submission(ctx, in.addr, submission)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return settlement{}, &Error{
				Code: CodeInvalidRequest, Message: fmt.Sprintf("Submission %q is not known to %s.", submission, in.addr),
				Details: "Read takes the submission id of a receipt for the same instance.",
			}
		case err != nil:
			return settlement{}, in.missing(err)
		case sub.Outcome != "":
			return settlement{sub, inst.UID}, nil
		}
		if w := cmp.Or(workFrom(ctx), watcher(ctx)); w != nil && back == nil { // whose place the other may need
			back = w.Away()
			defer back()
		}
		switch err := in.rt.engine.Wait(ctx, in.addr, inst.Head); {
		case err != nil && ctx.Err() == nil:
			return settlement{}, in.missing(err)
		case err != nil:
			return settlement{}, err
		}
	}
}

// reply reads a settled submission's reply from the conversation.
func (in *Instance) reply(ctx context.Context, sub store.Submission, uid string) (*Reply, error) {
	// What answers a submission lies between its admission and its settlement. Only
	// a response that it joined may have begun before; that began after the
	// admission of its own submission.
	written := make(map[string]map[string][]json.RawMessage) // by message and name
	collect := func(c *wire.Chunk) {
		if c == nil {
			clear(written)
			return
		}
		if c.Type != wire.ChunkDataPart {
			return
		}
		if written[c.MessageID] == nil {
			written[c.MessageID] = make(map[string][]json.RawMessage)
		}
		written[c.MessageID][c.Name] = append(written[c.MessageID][c.Name], json.RawMessage(c.Data))
	}
	snap, err := in.rt.engine.SnapshotBetween(ctx, in.addr, sub.Offset, sub.SettledAt, collect)
	if err != nil {
		return nil, in.missing(err)
	}
	r := &Reply{Submission: sub.ID, UID: uid, AnsweredBy: sub.ID}
	for i := range snap.Settlements {
		s := &snap.Settlements[i]
		if s.SubmissionID != sub.ID {
			continue
		}
		if s.Outcome != string(Completed) {
			return nil, submissionError(s)
		}
		r.Budget = exhausted(s.Budget)
		if s.AnsweredBy != "" {
			r.AnsweredBy = s.AnsweredBy
		}
	}
	if r.AnsweredBy != sub.ID {
		clear(written)
		host, err := in.rt.engine.Submission(ctx, in.addr, r.AnsweredBy)
		if err != nil {
			return nil, in.missing(err)
		}
		if snap, err = in.rt.engine.SnapshotBetween(ctx, in.addr, host.Offset, sub.SettledAt, collect); err != nil {
			return nil, in.missing(err)
		}
	}
	for i := len(snap.Messages) - 1; i >= 0; i-- {
		m := &snap.Messages[i]
		if m.Role == wire.RoleAssistant && m.SubmissionID == r.AnsweredBy {
			r.Data = written[m.ID]
			return r, r.take(m)
		}
	}
	return r, nil
}

func (r *Reply) take(m *wire.Message) error {
	var texts []string
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Type == wire.PartText && p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	r.Text = strings.Join(texts, "\n\n")
	if len(m.Metadata) == 0 {
		return nil
	}
	var err error
	r.Metadata, err = merged([]json.RawMessage{json.RawMessage(m.Metadata)})
	return err
}

func submissionError(s *wire.Settlement) error {
	var told struct {
		Message string `json:"message"`
		Type    Code   `json:"type"`
		Details string `json:"details"`
	}
	if err := json.Unmarshal(s.Error, &told); err != nil {
		told.Message = "its error could not be read"
	}
	return &SubmissionError{
		Submission: s.SubmissionID, Outcome: Outcome(s.Outcome), Code: told.Type, Message: told.Message, Details: told.Details,
	}
}

// missing is what a failed read means to the reader.
func (in *Instance) missing(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return wire.StreamNotFound(in.addr.String())
	case errors.Is(err, engine.ErrDamaged):
		return wire.ConversationDamaged(in.addr.ID, err)
	}
	if failed := storeFailure(err, false); failed != nil {
		err = failed
	}
	return fmt.Errorf("flue: reading %s: %w", in.addr, err)
}

// Conversation returns the conversation as clients see it, up to its newest
// change. The error has CodeConversationMissing if there is no instance.
func (in *Instance) Conversation(ctx context.Context) (*wire.Snapshot, error) {
	if in.err != nil {
		return nil, in.err
	}
	snap, err := in.rt.engine.Snapshot(ctx, in.addr)
	if err != nil {
		return nil, in.missing(err)
	}
	return snap, nil
}
