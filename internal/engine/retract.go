package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// chunks returns what a batch changes for clients. Where a turn is retracted they
// are sent its message anew, without what the turn had said: the wire has no
// other way to take something back.
func (e *Engine) chunks(ctx context.Context, addr store.Address, incarnation string, offset int64, b journal.Batch) ([]wire.Chunk, error) {
	chunks := project.Chunks(project.ConversationID(incarnation), offset, b)
	for i := range chunks {
		c := &chunks[i]
		if c.Type != wire.ChunkRetracted {
			continue
		}
		m, err := e.retracted(ctx, addr, offset, c)
		for errors.Is(err, errMerged) {
			m, err = e.retracted(ctx, addr, offset, c)
		}
		if err != nil {
			return nil, fmt.Errorf("retracting turn %s of %s: %w", c.TurnID, addr, err)
		}
		*c = wire.Chunk{Type: wire.ChunkMessageAppended, ConversationID: c.ConversationID, Message: m, Position: c.Position}
	}
	return chunks, nil
}

// retracted returns the message as it is once the turn is retracted. It reads the
// journal from where the submission was admitted, since the message cannot have
// begun before that.
func (e *Engine) retracted(ctx context.Context, addr store.Address, offset int64, c *wire.Chunk) (*wire.Message, error) {
	sub, err := e.cfg.Store.Submission(ctx, addr, c.SubmissionID)
	if err != nil {
		return nil, err
	}
	var v wire.Conversation
	for b, err := range e.piecewise(ctx, addr, sub.Offset, offset-1) {
		var unreadable *store.BatchError
		if err != nil && !errors.As(err, &unreadable) {
			return nil, err
		}
		batch, err := decodeToShow(addr, b)
		switch {
		case isNewer(err):
			if err := e.passed(ctx, addr, b.Offset, err); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			continue // a repair passes over it
		}
		for _, earlier := range project.Chunks(c.ConversationID, b.Offset, batch) {
			if err := v.Apply(&earlier); err != nil {
				return nil, err
			}
		}
	}
	if err := v.Apply(c); err != nil {
		return nil, err
	}
	for i := range v.Messages {
		if v.Messages[i].ID == c.MessageID {
			return &v.Messages[i], nil
		}
	}
	return nil, fmt.Errorf("%w: message %s is not there", store.ErrCorrupt, c.MessageID)
}
