package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
)

// exchange tests one recorded exchange.
func (r *runner) exchange(t *testing.T, x Exchange) {
	parts := events(x.Stream)
	complete := 0 // length of the stream up to the end of the completing event
	for i, p := range parts {
		if strings.Contains(string(p), x.Complete) {
			complete = len(bytes.Join(parts[:i+1], nil))
			break
		}
	}
	if complete == 0 || x.Complete == "" {
		t.Fatalf("modeltest: no event of exchange %q holds %q", x.Name, x.Complete)
	}
	t.Run("Whole", func(t *testing.T) { r.whole(t, x) })
	t.Run("Cut", func(t *testing.T) { r.cut(t, x, complete) })
	t.Run("Garbage", func(t *testing.T) { r.garbage(t, x, parts, complete) })
	t.Run("Cancel", func(t *testing.T) { r.cancel(t, x, parts) })
	t.Run("Break", func(t *testing.T) { r.leave(t, x, parts, complete) })
	t.Run("Silence", func(t *testing.T) { r.silence(t, x, parts, complete) })
	t.Run("Pings", func(t *testing.T) { r.pings(t, x, parts, complete) })
	t.Run("SlowConsumer", func(t *testing.T) { r.slowConsumer(t, x, parts, complete) })
}

// whole tests the answer as it was recorded, in several framings.
func (r *runner) whole(t *testing.T, x Exchange) {
	single := make([][]byte, len(x.Stream))
	for i := range x.Stream {
		single[i] = x.Stream[i : i+1]
	}
	for name, parts := range map[string][][]byte{
		"at once":   {x.Stream},
		"by event":  events(x.Stream),
		"by byte":   single,
		"with CRLF": {bytes.ReplaceAll(x.Stream, []byte("\n"), []byte("\r\n"))},
		"with CR":   {bytes.ReplaceAll(x.Stream, []byte("\n"), []byte("\r"))},
		"with pings": events([]byte(": ping\n\n" + strings.ReplaceAll(string(x.Stream),
			"\n\n", "\n\n: ping\n\n"))),
	} {
		t.Run(name, func(t *testing.T) {
			r.answer(func(w http.ResponseWriter, _ *http.Request) { send(w, parts...) })
			got, err := Collect(t, r.provider(0).Stream(t.Context(), x.Request))
			if err != nil {
				t.Fatalf("error = %v", err)
			}
			compare(t, x, got)
		})
	}
}

// compare checks what an answer amounts to.
func compare(t *testing.T, x Exchange, got Answer) {
	t.Helper()
	used := map[string]bool{}
	for i, b := range got.Blocks {
		if i < len(x.Blocks) && x.Blocks[i].CallID == "*" && b.CallID != "" && !used[b.CallID] {
			used[b.CallID] = true
			got.Blocks[i].CallID = "*"
		}
	}
	if want, got := draw(x.Blocks), draw(got.Blocks); want != got {
		t.Errorf("blocks:\n%s\nwant:\n%s", got, want)
	}
	if got.Done == nil || *got.Done != x.Done {
		t.Errorf("done = %+v, want %+v", got.Done, x.Done)
	}
}

func draw(blocks []model.Block) string {
	var b strings.Builder
	for i, blk := range blocks {
		fmt.Fprintf(&b, "%d %s text=%q id=%q name=%q arguments=%q opaque=%s\n", i, blk.Kind, blk.Text, blk.CallID, blk.Name, blk.Arguments, blk.Opaque)
	}
	return b.String()
}

// cut tests that an answer that ends too early is a failure that may pass,
// wherever it ends and however politely.
func (r *runner) cut(t *testing.T, x Exchange, complete int) {
	step := 1
	if testing.Short() {
		step = 97
	}
	p := r.provider(0)
	for n := 0; n < complete; n += step {
		r.answer(func(w http.ResponseWriter, _ *http.Request) { send(w, x.Stream[:n]) })
		got, err := Collect(t, p.Stream(t.Context(), x.Request))
		wantClass(t, err, model.Retryable)
		if got.Done != nil || t.Failed() {
			t.Fatalf("cut after byte %d of %d: done = %v, error = %v", n, complete, got.Done, err)
		}
	}
	sent := 0
	for _, part := range events(x.Stream) {
		sent += len(part)
		r.answer(func(w http.ResponseWriter, _ *http.Request) {
			send(w, x.Stream[:sent])
			panic(http.ErrAbortHandler) // resets the connection
		})
		got, err := Collect(t, p.Stream(t.Context(), x.Request))
		if sent < complete {
			wantClass(t, err, model.Retryable)
		}
		if done := got.Done != nil; done != (sent >= complete) {
			t.Errorf("reset after byte %d, complete at %d: done = %v, error = %v", sent, complete, done, err)
		}
	}
	// Once the answer is complete, the rest of the stream is not needed.
	r.answer(func(w http.ResponseWriter, _ *http.Request) { send(w, x.Stream[:complete]) })
	if _, err := Collect(t, p.Stream(t.Context(), x.Request)); err != nil {
		t.Errorf("cut after the completing event: %v", err)
	}
}

// garbage tests that events that do not parse are a failure that may pass.
func (r *runner) garbage(t *testing.T, x Exchange, parts [][]byte, complete int) {
	p := r.provider(0)
	sent := 0
	for i, part := range parts {
		if sent += len(part); sent > complete {
			break
		}
		bad := append(append([][]byte{}, parts[:i]...), []byte("data: {\"type\": oops\n\n"))
		r.answer(func(w http.ResponseWriter, _ *http.Request) { send(w, bytes.Join(append(bad, parts[i+1:]...), nil)) })
		got, err := Collect(t, p.Stream(t.Context(), x.Request))
		wantClass(t, err, model.Retryable)
		if got.Done != nil {
			t.Errorf("event %d is garbage and the answer is done", i)
		}
	}
}

// cancel tests that the end of the context ends the stream, with its cause.
func (r *runner) cancel(t *testing.T, x Exchange, parts [][]byte) {
	cause := errors.New("the submission was aborted")
	for _, n := range []int{0, 1, len(parts) / 2} {
		left := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		r.answer(func(w http.ResponseWriter, req *http.Request) {
			send(w, append([][]byte{nil}, parts[:n]...)...)
			cancel(cause)
			hold(t, req, left)
		})
		_, err := Collect(t, r.provider(0).Stream(ctx, x.Request))
		if !errors.Is(err, cause) {
			t.Errorf("cancelled after %d events: error = %v, want the context's cause", n, err)
		}
		gone(t, left)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	r.answer(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent under a context that had ended") })
	if _, err := Collect(t, r.provider(0).Stream(ctx, x.Request)); !errors.Is(err, cause) {
		t.Errorf("context ended before the call: error = %v, want its cause", err)
	}
}

// leave tests that a consumer that breaks out of the loop closes the connection.
func (r *runner) leave(t *testing.T, x Exchange, parts [][]byte, complete int) {
	sent := 0
	for i := range parts {
		if sent += len(parts[i]); sent >= complete {
			return
		}
		left := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), idle)
		r.answer(func(w http.ResponseWriter, req *http.Request) {
			send(w, bytes.Join(parts[:i+1], nil))
			hold(t, req, left)
		})
		for _, err := range r.provider(0).Stream(ctx, x.Request) {
			if err != nil && ctx.Err() == nil {
				t.Errorf("left after %d events: error = %v", i+1, err)
			}
			break // at the first event, or at the timeout when these parts yield none
		}
		gone(t, left)
		cancel()
	}
}

// silence tests that a server that stops speaking is given up.
func (r *runner) silence(t *testing.T, x Exchange, parts [][]byte, complete int) {
	p := r.provider(idle)
	sent := 0
	for i := range parts {
		if sent += len(parts[i]); sent >= complete {
			break
		}
		if i > 2 && i < len(parts)-3 {
			continue // the middle tells nothing new, and each case waits
		}
		left := make(chan struct{})
		r.answer(func(w http.ResponseWriter, req *http.Request) {
			send(w, bytes.Join(parts[:i+1], nil))
			hold(t, req, left)
		})
		_, err := Collect(t, p.Stream(t.Context(), x.Request))
		wantClass(t, err, model.Retryable)
		gone(t, left)
	}
}

// pings tests that a server that says only that it is there is given up.
func (r *runner) pings(t *testing.T, x Exchange, parts [][]byte, complete int) {
	if len(r.Pings) == 0 {
		t.Skip("the suite has no pings")
	}
	p := r.New(Settings{BaseURL: r.server.URL, APIKey: Key, Client: r.client, ContentTimeout: idle})
	for _, n := range []int{0, 1, len(parts) / 2} {
		if len(bytes.Join(parts[:n], nil)) >= complete {
			continue
		}
		left := make(chan struct{})
		r.answer(func(w http.ResponseWriter, req *http.Request) {
			defer close(left)
			send(w, bytes.Join(parts[:n], nil))
			flush := http.NewResponseController(w)
			tick := time.NewTicker(idle / 10)
			defer tick.Stop()
			_, _ = io.Copy(io.Discard, req.Body) // or the server does not look at the connection
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
				select {
				case <-req.Context().Done():
					return
				case <-tick.C:
					_, _ = w.Write(r.Pings)
					_ = flush.Flush()
				}
			}
			t.Error("the provider does not close the connection")
		})
		_, err := Collect(t, p.Stream(t.Context(), x.Request))
		wantClass(t, err, model.Retryable)
		gone(t, left)
	}
}

// slowConsumer tests that the idle timeout does not run while the consumer is
// busy with an event.
func (r *runner) slowConsumer(t *testing.T, x Exchange, parts [][]byte, complete int) {
	n := r.speaking(t, x, parts, complete)
	if n == 0 {
		t.Skip("the exchange yields nothing before its end")
	}
	awake := make(chan struct{})
	r.answer(func(w http.ResponseWriter, _ *http.Request) {
		send(w, parts[:n]...)
		<-awake
		send(w, parts[n:]...)
	})
	p := r.New(Settings{BaseURL: r.server.URL, APIKey: Key, Client: r.client, IdleTimeout: idle, FirstTimeout: idle})
	first := true
	_, err := Collect(t, func(yield func(model.Event, error) bool) {
		for e, err := range p.Stream(t.Context(), x.Request) {
			if first {
				first = false
				<-time.After(2 * idle)
				close(awake)
			}
			if !yield(e, err) {
				return
			}
		}
	})
	if err != nil {
		t.Errorf("error = %v", err)
	}
}

// speaking returns how many parts it takes for the provider to yield an event
// before the answer is complete; zero when there is none.
func (r *runner) speaking(t *testing.T, x Exchange, parts [][]byte, complete int) int {
	t.Helper()
	sent := 0
	for i := range parts {
		if sent += len(parts[i]); sent >= complete {
			break
		}
		r.answer(func(w http.ResponseWriter, _ *http.Request) { send(w, parts[:i+1]...) })
		if got, _ := Collect(t, r.provider(0).Stream(t.Context(), x.Request)); len(got.Events) > 0 {
			return i + 1
		}
	}
	return 0
}
