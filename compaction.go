package flue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/wire"
)

// ErrNothingToCompact means that a conversation is short enough as it is, or that
// there is no compaction to undo.
var ErrNothingToCompact = errors.New("flue: there is nothing to compact, or to undo")

// CompactOptions refines [Instance.Compact].
type CompactOptions struct {
	// Instructions are added to what is asked of the summary this once, at most
	// 16 KiB.
	Instructions string

	// IdempotencyKey names the request, as in SendOptions: asking again under the
	// same key compacts once and returns what came of it.
	IdempotencyKey string
}

// A Compacted is a compaction that was made: a summary took the place of the
// older part of what the model is shown. Clients see the conversation as before.
type Compacted struct {
	ID      string
	Reason  string // threshold, overflow or manual
	Summary string
	Dropped bool   // no summary could be had; Summary says so
	Model   string // that wrote the summary, as "provider/model"

	// TokensBefore and TokensAfter are how large the next request would be without
	// and with it, as far as that can be told.
	TokensBefore, TokensAfter int

	Usage model.Usage // of the calls for it
}

func compacted(r *journal.Compacted) *Compacted {
	c := &Compacted{
		ID: r.ID, Reason: string(r.Reason), Summary: r.Summary, Dropped: r.Dropped,
		TokensBefore: r.Before, TokensAfter: r.After, Usage: model.Usage(r.Usage),
	}
	if r.Provider != "" {
		c.Model = r.Provider + "/" + r.Model
	}
	return c
}

// maxSummaryInstructions bounds what is asked of a summary, in bytes.
const maxSummaryInstructions = 16 << 10

// Compact has the older part of the conversation summarized for the model now,
// whatever its size, and returns when that is done; the newest messages stay as
// they are, as with any compaction. While a response is under way it is done
// before its next model call. If there is nothing to summarize the error is
// [ErrNothingToCompact]; if no summary can be had it is a [*SubmissionError], and
// nothing has changed.
//
// Any process may call it: what it asks for is stored, and done by whichever
// process owns the instance. When ctx ends only the waiting ends.
func (in *Instance) Compact(ctx context.Context, options ...CompactOptions) (*Compacted, error) {
	var o CompactOptions
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		return nil, errors.New("flue: Compact takes at most one CompactOptions")
	}
	if len(o.Instructions) > maxSummaryInstructions {
		return nil, wire.InvalidRequest(fmt.Sprintf("The instructions for a summary may have at most %d bytes.", maxSummaryInstructions))
	}
	if in.err != nil {
		return nil, in.err
	}
	inst, err := in.rt.engine.Instance(ctx, in.addr)
	if err != nil {
		return nil, in.missing(err)
	}
	key := o.IdempotencyKey
	if key == "" {
		key = rand.Text()
	}
	attributes := map[string]string{engine.CommandDo: engine.CommandCompact}
	if o.Instructions != "" {
		attributes[engine.CommandInstructions] = o.Instructions
	}
	done, err := in.command(ctx, inst.UID, derivedSubmission("sub_compact_", "flue-compact-1", in.addr, key), attributes)
	switch {
	case err != nil:
		return nil, err
	case done.Compacted == nil:
		return nil, ErrNothingToCompact
	}
	return compacted(done.Compacted), nil
}

// UndoCompaction undoes the latest compaction in effect, and returns it: the model
// is shown again what the summary stood for. If the conversation is too long for
// the model it is compacted again before the next turn, with the settings of then,
// so change those first. The error is [ErrNothingToCompact] if there is none, or
// somebody else has undone it. It reads the whole journal of the instance.
func (in *Instance) UndoCompaction(ctx context.Context) (*Compacted, error) {
	if in.err != nil {
		return nil, in.err
	}
	latest, uid, err := in.rt.engine.Compaction(ctx, in.addr)
	switch {
	case err != nil:
		return nil, in.missing(err)
	case latest == nil:
		return nil, ErrNothingToCompact
	}
	_, err = in.command(ctx, uid, derivedSubmission("sub_undo_", "flue-undo-1", in.addr, latest.ID), map[string]string{
		engine.CommandDo: engine.CommandUndo, engine.CommandCompaction: latest.ID,
	})
	if err != nil {
		return nil, err
	}
	// A newer one may have come first, and then this one stays.
	now, _, err := in.rt.engine.Compaction(ctx, in.addr)
	switch {
	case err != nil:
		return nil, in.missing(err)
	case now != nil && now.ID == latest.ID:
		return nil, ErrNothingToCompact
	}
	return compacted(latest), nil
}

// command sends what only the runtime understands and waits until it is done.
func (in *Instance) command(ctx context.Context, uid, submission string, attributes map[string]string) (engine.Commanded, error) {
	p := outgoing{Prompt: wire.Prompt{UID: uid, Message: wire.Delivery{
		Kind: wire.KindSignal, Type: journal.SignalCompaction, Body: "A compaction was asked for.", Attributes: attributes,
	}}}
	receipt, err := in.admit(ctx, p, "dispatch", submission, false)
	if err != nil {
		return engine.Commanded{}, err
	}
	if _, err := in.settled(ctx, submission); err != nil {
		return engine.Commanded{}, err
	}
	done, err := in.rt.engine.Commanded(ctx, in.addr, int64(receipt.Offset), submission)
	if err != nil {
		return engine.Commanded{}, in.missing(err)
	}
	if done.Settled.Outcome != string(Completed) {
		return engine.Commanded{}, submissionError(&wire.Settlement{SubmissionID: submission, Outcome: done.Settled.Outcome, Error: done.Settled.Error})
	}
	return done, nil
}
