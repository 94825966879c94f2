package flue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/wire"
)

// A slowWriter is a model that writes a word every two seconds.
type slowWriter string

func (s slowWriter) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for _, word := range strings.SplitAfter(string(s), " ") {
			if !yield(model.Delta{Kind: model.Text, Text: word}, nil) {
				return
			}
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			}
		}
		_ = yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: string(s)}}, nil) && yield(model.Done{Stop: model.StopEnd}, nil)
	}
}

// get reads a conversation over HTTP, with a context that may end.
func get(ctx context.Context, t *testing.T, h http.Handler, query string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/c1?"+query, nil).WithContext(ctx))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d, %s", query, w.Code, w.Body)
	}
	return w
}

func decodeChunks(t *testing.T, data []byte) []wire.Chunk {
	t.Helper()
	var chunks []wire.Chunk
	if err := json.Unmarshal(data, &chunks); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return chunks
}

// readEvents reads server-sent events for ten seconds.
func readEvents(t *testing.T, h http.Handler, offset wire.Offset) (chunks []wire.Chunk) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := sse.NewReader(bytes.NewReader(get(ctx, t, h, "view=updates&live=sse&offset="+offset.String()).Body.Bytes()), 1<<20)
	for {
		ev, err := r.Next()
		if err == io.EOF {
			return chunks
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev.Name == "data" {
			chunks = append(chunks, decodeChunks(t, []byte(ev.Data))...)
		}
	}
}

// Clients that come back long after an answer was written have it whole, however
// they read and wherever in it they had stopped. So do those that begin anew.
func TestOldTextOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := &flue.Agent{Name: "writer", Render: func(r *flue.Render) string {
			flue.UseModel(r, "slow/m")
			return "Write."
		}}
		start := func(s *memstore.Store) (*flue.Runtime, http.Handler) {
			rt, err := flue.Open(t.Context(), flue.Config{
				Agents: []*flue.Agent{agent}, Store: s, MergeAfter: time.Minute,
				Providers: map[string]model.Provider{"slow": slowWriter("What was written slowly can be read quickly afterwards.")},
			})
			if err != nil {
				t.Fatal(err)
			}
			return rt, rt.Handler("writer")
		}
		kept := memstore.New()
		rt, h := start(kept)
		defer func() { rt.Close(context.Background()) }()
		in := rt.Instance("writer", "c1")
		for _, body := range []string{"one", "two"} {
			receipt, err := in.Dispatch(t.Context(), flue.User(body))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.Read(t.Context(), receipt.Submission); err != nil {
				t.Fatal(err)
			}
		}
		before := decodeChunks(t, get(t.Context(), t, h, "view=updates&offset=-1").Body.Bytes())
		var want wire.Snapshot
		history := get(t.Context(), t, h, "view=history").Body.Bytes()
		if err := json.Unmarshal(history, &want); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept = kept.Reopen()
		if n := pieces(t, kept); n != 2 {
			t.Fatalf("the text is in %d pieces, want one for each answer", n)
		}
		rt, h = start(kept)

		if got := get(t.Context(), t, h, "view=history").Body.Bytes(); !bytes.Equal(got, history) {
			t.Errorf("the history was\n%s\nand is\n%s", history, got)
		}
		resets := 0
		for offset := wire.Start; offset < want.Offset; offset++ {
			for mode, chunks := range map[string][]wire.Chunk{
				"at once":   decodeChunks(t, get(t.Context(), t, h, "view=updates&offset="+offset.String()).Body.Bytes()),
				"long-poll": decodeChunks(t, get(t.Context(), t, h, "view=updates&live=long-poll&offset="+offset.String()).Body.Bytes()),
				"sse":       readEvents(t, h, offset),
			} {
				var c wire.Conversation
				for i := range before {
					if p := before[i].Position; p == nil || p.Batch <= int64(offset) {
						if err := c.Apply(&before[i]); err != nil {
							t.Fatal(err)
						}
					}
				}
				for i := range chunks {
					if chunks[i].Type == wire.ChunkReset && offset > 0 {
						resets++
					}
					if err := c.Apply(&chunks[i]); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(want.Messages, c.Messages); diff != "" {
					t.Errorf("who goes on %s after %d has (-want +got):\n%s", mode, offset, diff)
				}
				if diff := cmp.Diff(want.Settlements, c.Settlements, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("who goes on %s after %d has (-want +got):\n%s", mode, offset, diff)
				}
			}
		}
		if resets < 3*8 {
			t.Errorf("%d resets: nobody had stopped within the text", resets)
		}
	})
}

// pieces is how many batches of a journal hold streamed text.
func pieces(t *testing.T, s store.Store) (n int) {
	t.Helper()
	for b, err := range store.Batches(t.Context(), s, store.Address{Agent: "writer", ID: "c1"}, -1) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b.Payload, []byte(`"k":"turn_delta"`)) {
			n++
		}
	}
	return n
}
