package script

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
)

// play emits the events of the turn.
func (t Turn) play(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
	out := answer.New(yield)
	calls := 0
	for _, s := range t.steps {
		if err := t.step(ctx, out, s, func() string { return callID(req, calls) }); err != nil {
			out.Fail(err)
			return
		}
		if out.Stopped() {
			return
		}
		if s.block.Kind == model.ToolCall {
			calls++
		}
	}
	if ctx.Err() != nil {
		out.Fail(context.Cause(ctx))
		return
	}
	out.Done(model.Done{Stop: t.reason(calls), Usage: t.used(req), Model: Model})
}

// step does one step. A text stays open until the next block begins, since what
// comes between may end the stream within it.
func (t Turn) step(ctx context.Context, out *answer.Builder, s step, id func() string) error {
	if s.do != nil {
		if err := s.do(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	out.CloseAll()
	blk := out.Open(s.block.Kind)
	if s.block.Kind == model.ToolCall {
		blk.Name, blk.CallID = s.block.Name, s.block.CallID
		if blk.CallID == "" {
			blk.CallID = id()
		}
		out.Append(blk, s.block.Arguments)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out.Close(blk)
		return nil
	}
	for _, piece := range t.pieces(s.block.Text) {
		if err := pause(ctx, t.pace); err != nil {
			return err
		}
		out.Append(blk, piece)
		if out.Stopped() {
			return nil
		}
	}
	return nil
}

// pieces splits text into deltas.
func (t Turn) pieces(text string) []string {
	if t.chunk <= 0 {
		return strings.SplitAfter(text, " ")
	}
	var pieces []string
	runes := []rune(text)
	for len(runes) > 0 {
		n := min(t.chunk, len(runes))
		pieces = append(pieces, string(runes[:n]))
		runes = runes[n:]
	}
	return pieces
}

// pause waits for d. It returns the cause when ctx ends first, or has ended.
func pause(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (t Turn) reason(calls int) model.StopReason {
	switch {
	case t.stop != "":
		return t.stop
	case calls > 0:
		return model.StopToolUse
	}
	return model.StopEnd
}

// used returns the usage, estimated unless it was set.
func (t Turn) used(req *model.Request) model.Usage {
	if t.usage != nil {
		return *t.usage
	}
	var u model.Usage
	in := len(req.System)
	for _, tool := range req.Tools {
		in += len(tool.Name) + len(tool.Description) + len(tool.Schema)
	}
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			in += len(b.Text) + len(b.Name) + len(b.Arguments)
		}
	}
	u.Input = tokens(in)
	for _, s := range t.steps {
		n := tokens(len(s.block.Text) + len(s.block.Name) + len(s.block.Arguments))
		u.Output += n
		if s.block.Kind == model.Reasoning {
			u.Reasoning += n
		}
	}
	return u
}

func tokens(bytes int) int { return (bytes + 3) / 4 }

// callID returns the id of call n of the answer to req: the same for the same
// conversation, and another one for every other.
func callID(req *model.Request, n int) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	_ = e.Encode(req.CacheKey) // writing to a hash cannot fail
	_ = e.Encode(req.Messages)
	return fmt.Sprintf("call_%s_%d", hex.EncodeToString(h.Sum(nil)[:6]), n)
}
