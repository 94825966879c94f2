package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/httpapi"
	"github.com/flue-go/flue/wire"
)

// still is a backend whose one page never changes.
type still struct {
	httpapi.Backend
	page httpapi.Updates
}

func (s *still) Updates(context.Context, string, wire.Offset, int) (httpapi.Updates, error) {
	return s.page, nil
}

// nowhere is a writer that counts.
type nowhere struct {
	header http.Header
	bytes  int64
}

func (w *nowhere) Header() http.Header { return w.header }
func (w *nowhere) WriteHeader(int)     {}
func (w *nowhere) Flush()              {}

func (w *nowhere) SetWriteDeadline(time.Time) error { return nil }

func (w *nowhere) Write(b []byte) (int, error) {
	w.bytes += int64(len(b))
	return len(b), nil
}

const benchChunk = `{"type":"message-delta","conversationId":"conv_01M8N3PVF9YM6N393AYKJDQH2K","messageId":"entry_01M8N3PVHKGXB05XEE7SG4S5A4","kind":"text","delta":"word0 ","position":{"batch":6,"index":0}}`

func BenchmarkUpdates(b *testing.B) {
	page := strings.TrimSuffix(strings.Repeat(benchChunk+",", 100), ",")
	h := mounted(httpapi.Config{Backend: &still{page: httpapi.Updates{Incarnation: "inc_1", Chunks: []byte(page), Next: 99, UpToDate: true}}})
	r := httptest.NewRequest("GET", "/agents/chat/c?view=updates&offset=0000000000000000_0000000000000003", nil)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(&nowhere{header: http.Header{}}, r)
	}
}

// Replies over a connection that is kept, as clients see them.
func BenchmarkReply(b *testing.B) {
	for _, n := range []int{1, 100, 5000} { // less than one piece, and several
		page := strings.TrimSuffix(strings.Repeat(benchChunk+",", n), ",")
		b.Run(fmt.Sprintf("%dKiB", len(page)>>10), func(b *testing.B) {
			srv := httptest.NewServer(mounted(httpapi.Config{Backend: &still{page: httpapi.Updates{Incarnation: "inc_1", Chunks: []byte(page), Next: 99, UpToDate: true}}}))
			defer srv.Close()
			client, target := srv.Client(), srv.URL+"/agents/chat/c?view=updates&offset=-1"
			buf := make([]byte, 64<<10)
			b.SetBytes(int64(len(page)))
			b.ReportAllocs()
			for b.Loop() {
				resp, err := client.Get(target)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf); err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// ticking is a backend that hands one event to every reader of a round.
type ticking struct {
	httpapi.Backend
	chunks []byte

	mu     sync.Mutex
	head   wire.Offset
	news   chan struct{}
	parked chan struct{} // one value for each call of Wait that has nothing
}

func (k *ticking) Updates(_ context.Context, _ string, after wire.Offset, _ int) (httpapi.Updates, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := httpapi.Updates{Incarnation: "inc_1", Next: k.head, UpToDate: true}
	if k.head > after {
		u.Chunks = k.chunks
	}
	return u, nil
}

func (k *ticking) More(ctx context.Context, id string, after wire.Offset, limit int) (httpapi.Updates, error) {
	return k.Updates(ctx, id, after, limit)
}

func (k *ticking) Wait(ctx context.Context, _ string, after wire.Offset) error {
	k.mu.Lock()
	head, news := k.head, k.news
	k.mu.Unlock()
	if head > after {
		return nil
	}
	k.parked <- struct{}{}
	select {
	case <-news:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *ticking) tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.head++
	close(k.news)
	k.news = make(chan struct{})
}

// One event to ten streams.
func BenchmarkStreamFanOut(b *testing.B) {
	const readers = 10
	k := &ticking{chunks: []byte(benchChunk), news: make(chan struct{}), parked: make(chan struct{}, readers)}
	h := mounted(httpapi.Config{Backend: k})
	ctx, cancel := context.WithCancel(b.Context())
	var streams sync.WaitGroup
	for range readers {
		streams.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "/agents/chat/c?view=updates&offset=-1&live=sse", nil)
			h.ServeHTTP(&nowhere{header: http.Header{}}, r)
		})
	}
	parked := func() {
		for range readers {
			<-k.parked
		}
	}
	parked()
	b.ReportAllocs()
	for b.Loop() {
		k.tick()
		parked()
	}
	cancel()
	streams.Wait()
}
