package crashtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// resumes checks that a conversation's newest checkpoint, and what comes after it,
// say what the whole journal says.
func (a *audit) resumes(ctx context.Context, of *conversation, page store.Page, whole *fold.State) {
	for _, b := range page.Batches {
		if b.Span > 0 {
			a.merged++
		}
	}
	kept, err := a.db.Checkpoint(ctx, page.Address, math.MaxInt64)
	if errors.Is(err, store.ErrNotFound) {
		return
	}
	var c *fold.Checkpoint
	if err == nil {
		c, err = fold.DecodeCheckpoint(kept.Data)
	}
	if err != nil {
		a.complain("%s: the checkpoint: %v", of.path(), err)
		return
	}
	a.resumed++
	tied := false
	for _, b := range page.Batches {
		if b.Offset == c.State.Head {
			tied = sha256.Sum256(b.Payload) == c.Tail && kept.Offset == b.Offset
		}
		if b.Offset <= kept.Offset {
			continue
		}
		batch, err := journal.Decode(b.Payload)
		for _, r := range batch.Records {
			err = errors.Join(err, c.State.Apply(r))
		}
		if err != nil {
			a.complain("%s: batch %d after the checkpoint at %d: %v", of.path(), b.Offset, kept.Offset, err)
			return
		}
		c.State.Advance(b.Offset)
	}
	got, err := (&fold.Checkpoint{State: c.State}).Encode()
	want, err2 := (&fold.Checkpoint{State: whole}).Encode()
	if err := errors.Join(err, err2); err != nil || !tied || !bytes.Equal(got, want) {
		a.complain("%s: from the checkpoint at %d, which is tied to its batch: %v, the state is %s and not %s: %v", of.path(), kept.Offset, tied, got, want, err)
	}
}
