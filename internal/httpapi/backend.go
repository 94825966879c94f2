package httpapi

import (
	"context"

	"github.com/flue-go/flue/wire"
)

// A Backend is one agent's conversations, as the handler needs them. Its errors
// are [*wire.Error] where a client may be told of them; any other error is
// logged and answered as an internal one. An id that does not exist is a
// wire.CodeStreamNotFound for every method that reads.
type Backend interface {
	// Accepts returns why no new message is accepted now, or nil. Send refuses them
	// by itself; this is for what is not worth to be read then.
	Accepts() error

	// Send admits p and returns once it is durable. The StreamURL of the
	// admission is left to the handler.
	Send(ctx context.Context, id string, p wire.Prompt) (wire.Admission, error)

	// Abort asks that all unsettled work of the conversation be aborted and
	// reports whether there was any. A conversation that does not exist has none.
	Abort(ctx context.Context, id string) (bool, error)

	// Head returns the offset of the newest batch.
	Head(ctx context.Context, id string) (wire.Offset, error)

	// Snapshot returns the conversation up to its head.
	Snapshot(ctx context.Context, id string) (*wire.Snapshot, error)

	// Updates returns the chunks of at most limit batches after the offset. An
	// offset beyond the head is a wire.CodeOffsetGone.
	Updates(ctx context.Context, id string, after wire.Offset, limit int) (Updates, error)

	// More is Updates for a reader that goes on: what it calls the head may be
	// that of a moment ago, and Wait returns when there is more.
	More(ctx context.Context, id string, after wire.Offset, limit int) (Updates, error)

	// Wait returns nil when there is a batch after the offset, which may be at
	// once, and ctx's error when ctx ends first.
	Wait(ctx context.Context, id string, after wire.Offset) error

	// Attachment returns a file of the conversation.
	Attachment(ctx context.Context, id, attachment string) (wire.File, error)
}

// Updates is a run of changes.
type Updates struct {
	Incarnation string
	// Chunks is the JSON of the changes, separated by commas and without
	// brackets; empty when the batches change nothing that clients see.
	Chunks   []byte
	Next     wire.Offset // the offset to read from next
	UpToDate bool        // Next is the head
}
