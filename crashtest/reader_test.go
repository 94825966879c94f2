package crashtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/wire"
)

// A reader follows a conversation over the deaths of the server, as a client
// does that keeps its place. It never sees a gap.
type reader struct {
	*client
	of          *conversation
	live        string      // sse, long-poll, or empty for what there is
	offset      wire.Offset // where it will go on
	last        wire.Position
	incarnation string
	seen        wire.Conversation
	requests    int         // that were made
	alarm       *time.Timer // ends a request that nothing comes from
}

func (c *client) newReader(of *conversation, live string, after wire.Offset) *reader {
	return &reader{client: c, of: of, live: live, offset: after, last: wire.Position{Batch: -1}}
}

// follow reads until the condition holds, or ctx ends.
func (r *reader) follow(ctx context.Context, until func(*wire.Conversation) bool) {
	for tries := 1; !until(&r.seen); {
		l := r.lives.current(ctx)
		if l == nil {
			return
		}
		before := r.last
		err := r.read(ctx, l, until)
		if r.requests++; r.last != before || err == nil {
			tries = 1
		}
		if err != nil {
			r.rest(ctx, l, tries)
			tries++
		} else if r.live == "" {
			pause(ctx, cmp.Or(r.poll, 5*time.Millisecond))
		}
	}
}

// read makes one request. What breaks it off is no fault: the server dies.
func (r *reader) read(ctx context.Context, l *life, until func(*wire.Conversation) bool) error {
	url := l.url + r.of.path() + "?view=updates&offset=" + r.offset.String()
	if r.live != "" {
		url += "&live=" + r.live
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.silence > 0 {
		r.alarm = time.AfterFunc(r.silence, cancel)
		defer r.alarm.Stop()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return r.refused(resp)
	}
	if r.live == "sse" {
		return r.readEvents(resp.Body, until)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	r.take(data)
	return r.goOn(resp.Header.Get("Stream-Next-Offset"))
}

func (r *reader) refused(resp *http.Response) error {
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode < http.StatusInternalServerError {
		r.complain("%s: reading after %s: %d %s", r.of.path(), r.offset, resp.StatusCode, data)
	}
	return fmt.Errorf("status %d", resp.StatusCode)
}

func (r *reader) readEvents(body io.Reader, until func(*wire.Conversation) bool) error {
	for events := sse.NewReader(body, 0); ; {
		e, err := events.Next()
		if err != nil {
			return err
		}
		if r.alarm != nil {
			r.alarm.Reset(r.silence)
		}
		switch e.Name {
		case "data":
			r.take(e.Data)
		case "control":
			var control struct {
				Next     string `json:"streamNextOffset"`
				UpToDate bool   `json:"upToDate"`
			}
			if err := json.Unmarshal(e.Data, &control); err != nil {
				r.complain("%s: control event %s: %v", r.of.path(), e.Data, err)
				return err
			}
			if err := r.goOn(control.Next); err != nil {
				return err
			}
		}
		if until(&r.seen) {
			return nil
		}
	}
}

// goOn moves the reader's place.
func (r *reader) goOn(next string) error {
	o, err := wire.ParseOffset(next)
	if err != nil || o < r.offset {
		r.complain("%s: was told to go on at %q after %s (%v)", r.of.path(), next, r.offset, err)
		return fmt.Errorf("offset %q", next)
	}
	r.offset = o
	return nil
}

// take applies a list of chunks. One that was taken before is dropped; within
// a batch none may be missing.
func (r *reader) take(data []byte) {
	var chunks []wire.Chunk
	if err := json.Unmarshal(bytes.TrimSpace(data), &chunks); err != nil {
		r.complain("%s: chunks after %s: %v", r.of.path(), r.offset, err)
		return
	}
	for i := range chunks {
		c := &chunks[i]
		if c.Type == wire.ChunkCheckpoint {
			if r.incarnation != "" && c.Incarnation != r.incarnation {
				r.complain("%s: the incarnation was %s and is %s", r.of.path(), r.incarnation, c.Incarnation)
			}
			r.incarnation = c.Incarnation
			continue
		}
		if c.Position == nil {
			r.complain("%s: a %s has no position", r.of.path(), c.Type)
			continue
		}
		if c.Position.Compare(r.last) <= 0 {
			continue
		}
		want := 0
		if c.Position.Batch == r.last.Batch {
			want = r.last.Index + 1
		}
		if c.Position.Index != want && (c.Type != wire.ChunkReset || c.Position.Batch == r.last.Batch) {
			r.complain("%s: after %+v comes %+v", r.of.path(), r.last, *c.Position)
		}
		r.last = *c.Position
		if err := r.seen.Apply(c); err != nil {
			r.complain("%s: applying the chunk at %+v: %v", r.of.path(), *c.Position, err)
		}
	}
}
