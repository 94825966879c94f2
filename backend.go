package flue

import (
	"context"
	"errors"
	"fmt"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/httpapi"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// backend is one agent's conversations as the HTTP handler needs them.
type backend struct {
	rt    *Runtime
	agent string
}

var _ httpapi.Backend = (*backend)(nil)

func (b *backend) instance(id string) *Instance { return b.rt.Instance(b.agent, id) }

func (b *backend) Accepts() error {
	if over := b.rt.engine.Overload(); over != nil {
		return wire.Overloaded(over.Reason, over.RetryAfter)
	}
	return nil
}

func (b *backend) Send(ctx context.Context, id string, p wire.Prompt) (wire.Admission, error) {
	r, err := b.instance(id).send(ctx, outgoing{Prompt: p}, "direct")
	if err != nil {
		return wire.Admission{}, err
	}
	return wire.Admission{Offset: r.Offset, SubmissionID: r.Submission, UID: r.UID, Deduplicated: r.Duplicate}, nil
}

func (b *backend) Abort(ctx context.Context, id string) (bool, error) {
	return b.instance(id).Abort(ctx)
}

func (b *backend) Head(ctx context.Context, id string) (wire.Offset, error) {
	in := b.instance(id)
	if in.err != nil {
		return 0, in.err
	}
	row, err := b.rt.engine.Instance(ctx, in.addr)
	if err != nil {
		return 0, in.missing(err)
	}
	return wire.Offset(row.Head), nil
}

func (b *backend) Snapshot(ctx context.Context, id string) (*wire.Snapshot, error) {
	return b.instance(id).Conversation(ctx)
}

func (b *backend) Updates(ctx context.Context, id string, after wire.Offset, limit int) (httpapi.Updates, error) {
	return b.read(ctx, b.rt.engine.Updates, id, after, limit)
}

func (b *backend) More(ctx context.Context, id string, after wire.Offset, limit int) (httpapi.Updates, error) {
	return b.read(ctx, b.rt.engine.More, id, after, limit)
}

// updates is how the engine is read.
type updates func(ctx context.Context, addr store.Address, after int64, limit int) (engine.Updates, error)

func (b *backend) read(ctx context.Context, updates updates, id string, after wire.Offset, limit int) (httpapi.Updates, error) {
	in := b.instance(id)
	if in.err != nil {
		return httpapi.Updates{}, in.err
	}
	u, err := updates(ctx, in.addr, int64(after), limit)
	switch {
	case errors.Is(err, engine.ErrOffsetGone):
		return httpapi.Updates{}, wire.OffsetGone(in.addr.String(), after, wire.Offset(u.Next))
	case err != nil:
		return httpapi.Updates{}, in.missing(err)
	}
	return httpapi.Updates{Incarnation: u.Incarnation, Chunks: u.Chunks, Next: wire.Offset(u.Next), UpToDate: u.UpToDate}, nil
}

func (b *backend) Wait(ctx context.Context, id string, after wire.Offset) error {
	in := b.instance(id)
	if in.err != nil {
		return in.err
	}
	err := b.rt.engine.Wait(ctx, in.addr, int64(after))
	if err == nil || ctx.Err() != nil {
		return err
	}
	return in.missing(err)
}

func (b *backend) Attachment(ctx context.Context, id, attachment string) (wire.File, error) {
	in := b.instance(id)
	if in.err != nil {
		return wire.File{}, in.err
	}
	if _, err := b.rt.engine.Instance(ctx, in.addr); err != nil {
		return wire.File{}, in.missing(err)
	}
	a, err := b.rt.engine.Attachment(ctx, in.addr, attachment)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return wire.File{}, wire.AttachmentNotFound(attachment)
	case err != nil:
		return wire.File{}, fmt.Errorf("attachment %s: %w", attachment, in.missing(err))
	}
	return wire.File{MediaType: a.MediaType, Filename: a.Filename, Data: a.Data}, nil
}
