package store

import (
	"context"
	"fmt"
)

// A Checkpoint is what somebody has made of a journal up to an offset, kept so
// that it need not be made again. A store does not look into it.
type Checkpoint struct {
	Offset int64 // of the newest batch that it covers
	Data   []byte
}

// A Checkpointer is a store that can keep checkpoints beside its journals. They
// are caches: a store may lose one at any time, and nothing but time is lost with
// it. It keeps the two newest of an instance, so that there is another if one
// turns out to be useless.
type Checkpointer interface {
	// SaveCheckpoint keeps a checkpoint as the newest one, as the owner. Those
	// at its offset and above are forgotten, and all but the newest one below.
	//
	// It is refused with ErrFenced if lease is not the instance's current
	// ownership, and with ErrInvalid if the offset is beyond the head: a
	// checkpoint must not outlive what it was made of. A refused one changes
	// nothing. No checkpoint counts as a write of the instance, so head and
	// batches stay as they are.
	SaveCheckpoint(ctx context.Context, lease Lease, c Checkpoint) error

	// Checkpoint returns the newest checkpoint of the instance at or below an
	// offset, or ErrNotFound. If it is damaged, the error is ErrCorrupt and the
	// checkpoint has its offset alone, so that the caller can ask for an older
	// one.
	Checkpoint(ctx context.Context, addr Address, atMost int64) (Checkpoint, error)
}

// MaxCheckpoint bounds the data of one checkpoint, in bytes.
const MaxCheckpoint = 64 << 20

// Validate reports whether c is within the limits of this package. Stores call
// it first thing.
func (c *Checkpoint) Validate() error {
	if c.Offset < 0 {
		return fmt.Errorf("%w: a checkpoint at offset %d", ErrInvalid, c.Offset)
	}
	if n := len(c.Data); n > MaxCheckpoint {
		return fmt.Errorf("%w: checkpoint has %d bytes, the limit is %d", ErrTooLarge, n, MaxCheckpoint)
	}
	return nil
}
