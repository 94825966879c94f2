package sse_test

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/flue-go/flue/internal/sse"
	"github.com/google/go-cmp/cmp"
)

type event struct{ Name, Data, ID string }

// readAll reads src to its end and returns the events and the final error.
func readAll(src io.Reader, maxEvent int) ([]event, error) {
	r := sse.NewReader(src, maxEvent)
	var all []event
	for {
		e, err := r.Next()
		if err != nil {
			return all, err
		}
		all = append(all, event{e.Name, string(e.Data), e.ID})
	}
}

func TestReader(t *testing.T) {
	tests := []struct {
		name   string
		stream string
		want   []event
		err    error
	}{
		{name: "empty stream", err: io.EOF},
		{name: "one event", stream: "data: hello\n\n", want: []event{{Data: "hello"}}, err: io.EOF},
		{name: "named", stream: "event: ping\ndata: {}\n\n", want: []event{{Name: "ping", Data: "{}"}}, err: io.EOF},
		{name: "name after data", stream: "data: 1\nevent: a\n\n", want: []event{{Name: "a", Data: "1"}}, err: io.EOF},
		{name: "name does not leak", stream: "event: a\ndata: 1\n\ndata: 2\n\n", want: []event{{Name: "a", Data: "1"}, {Data: "2"}}, err: io.EOF},
		{name: "name without data is dropped", stream: "event: a\n\ndata: 2\n\n", want: []event{{Data: "2"}}, err: io.EOF},
		{name: "several data lines", stream: "data: a\ndata:\ndata: b\n\n", want: []event{{Data: "a\n\nb"}}, err: io.EOF},
		{name: "empty data is an event", stream: "data\n\n", want: []event{{}}, err: io.EOF},
		{name: "one space is stripped", stream: "data:  a \ndata:b\n\n", want: []event{{Data: " a \nb"}}, err: io.EOF},
		{name: "colons in the value", stream: "data: a:b: c\n\n", want: []event{{Data: "a:b: c"}}, err: io.EOF},
		{name: "comments", stream: ": hi\n\n:\ndata: a\n: in between\ndata: b\n\n", want: []event{{Data: "a\nb"}}, err: io.EOF},
		{name: "unknown fields", stream: "retry: 10\nfoo: bar\nDATA: x\ndata: a\n\n", want: []event{{Data: "a"}}, err: io.EOF},
		{name: "ids persist", stream: "id: 1\ndata: a\n\ndata: b\n\nid: x\x00\ndata: c\n\nid\ndata: d\n\n", want: []event{{Data: "a", ID: "1"}, {Data: "b", ID: "1"}, {Data: "c", ID: "1"}, {Data: "d"}}, err: io.EOF},
		{name: "crlf", stream: "event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", want: []event{{Name: "a", Data: "1"}, {Data: "2"}}, err: io.EOF},
		{name: "cr only", stream: "event: a\rdata: 1\r\rdata: 2\r\r", want: []event{{Name: "a", Data: "1"}, {Data: "2"}}, err: io.EOF},
		{name: "mixed ends", stream: "data: 1\r\ndata: 2\r\n\ndata: 3\n\r\ndata: 4\r\n\r", want: []event{{Data: "1\n2"}, {Data: "3"}, {Data: "4"}}, err: io.EOF},
		{name: "byte-order mark", stream: "\ufeffdata: a\n\n", want: []event{{Data: "a"}}, err: io.EOF},
		{name: "only one mark", stream: "\ufeff\ufeffdata: a\n\ndata: b\n\n", want: []event{{Data: "b"}}, err: io.EOF},
		{name: "part of a mark", stream: "\xef\xbb", err: io.ErrUnexpectedEOF},
		{name: "cut in a line", stream: "data: a\n\ndata: b", want: []event{{Data: "a"}}, err: io.ErrUnexpectedEOF},
		{name: "cut after a line", stream: "data: a\n\ndata: b\n", want: []event{{Data: "a"}}, err: io.ErrUnexpectedEOF},
		{name: "cut in a name", stream: "event: a\n", err: io.ErrUnexpectedEOF},
		{name: "extra blank lines", stream: "\n\n\ndata: a\n\n\n\n", want: []event{{Data: "a"}}, err: io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, src := range splits(tt.stream) {
				got, err := readAll(src, 0)
				if !errors.Is(err, tt.err) {
					t.Fatalf("%s: error = %v, want %v", how, err, tt.err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("%s: events (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

// splits yields readers that deliver s whole, byte by byte, together with the
// end of file, and cut in two at each position.
func splits(s string) iter.Seq2[string, io.Reader] {
	return func(yield func(string, io.Reader) bool) {
		if !yield("whole", strings.NewReader(s)) ||
			!yield("byte by byte", iotest.OneByteReader(strings.NewReader(s))) ||
			!yield("data with error", iotest.DataErrReader(strings.NewReader(s))) {
			return
		}
		for i := 1; i < len(s); i++ {
			if !yield(fmt.Sprintf("split at %d", i), io.MultiReader(strings.NewReader(s[:i]), strings.NewReader(s[i:]))) {
				return
			}
		}
	}
}

// A CR that ends an event must not wait for the byte after it.
func TestReaderDispatchesAtOnce(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n", "\r\n\r"} {
		t.Run(fmt.Sprintf("%q", end), func(t *testing.T) {
			blocked := errors.New("read past the event")
			r := sse.NewReader(io.MultiReader(strings.NewReader("data: a"+end), iotest.ErrReader(blocked)), 0)
			e, err := r.Next()
			if err != nil || string(e.Data) != "a" {
				t.Fatalf("Next() = %q, %v; want the event without another read", e.Data, err)
			}
		})
	}
}

func TestReaderLimit(t *testing.T) {
	tests := []struct {
		name   string
		stream string
		events int
		err    error
	}{
		{"at the limit", "data: 0123456789\n\n", 1, io.EOF},
		{"one line over", "data: 0123456789a\n\n", 0, sse.ErrTooLarge},
		{"endless line", strings.Repeat("x", 1<<20), 0, sse.ErrTooLarge},
		{"many lines over", "data: 12345\ndata: 67890\n\n", 0, sse.ErrTooLarge},
		{"the limit is per event", strings.Repeat("data: 0123456789\n\n", 100), 100, io.EOF},
		{"comments between events do not add up", strings.Repeat(": keep alive\n\n", 100), 0, io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, src := range map[string]io.Reader{
				"whole": strings.NewReader(tt.stream),
				"bytes": iotest.OneByteReader(strings.NewReader(tt.stream)),
			} {
				got, err := readAll(src, 16)
				if !errors.Is(err, tt.err) || len(got) != tt.events {
					t.Errorf("%s: %d events, error %v; want %d, %v", how, len(got), err, tt.events, tt.err)
				}
			}
		})
	}
}

func TestReaderSourceError(t *testing.T) {
	broken := errors.New("connection reset")
	r := sse.NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 0)
	if _, err := r.Next(); err != nil {
		t.Fatalf("first event: %v", err)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, broken) {
			t.Fatalf("error = %v, want %v each time", err, broken)
		}
	}
}

func TestReaderNoProgress(t *testing.T) {
	if _, err := readAll(idle{}, 0); !errors.Is(err, io.ErrNoProgress) {
		t.Fatalf("error = %v, want %v", err, io.ErrNoProgress)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "event: x\r\ndata: 1\r\rdata: 2\n\n", "\ufeffid: 1\ndata\n\n", ": c\n\n", "data: a\ndata: b",
		"event: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: ping\ndata: {}\n\n",
	} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		const limit = 64
		whole, wholeErr := readAll(strings.NewReader(s), limit)
		for _, e := range whole {
			if len(e.Data) > limit {
				t.Fatalf("event of %d bytes passed a limit of %d", len(e.Data), limit)
			}
			if strings.ContainsRune(e.Data, '\r') {
				t.Fatalf("carriage return in data %q", e.Data)
			}
		}
		// However the stream is cut into reads, the events are the same.
		at := 0
		if len(s) > 0 {
			at = ((cut % len(s)) + len(s)) % len(s)
		}
		for how, src := range map[string]io.Reader{
			"bytes": iotest.OneByteReader(strings.NewReader(s)),
			"two":   io.MultiReader(strings.NewReader(s[:at]), strings.NewReader(s[at:])),
		} {
			got, err := readAll(src, limit)
			if diff := cmp.Diff(whole, got); diff != "" {
				t.Fatalf("%s: events differ (-whole +cut):\n%s", how, diff)
			}
			if fmt.Sprint(err) != fmt.Sprint(wholeErr) {
				t.Fatalf("%s: error = %v, whole stream gave %v", how, err, wholeErr)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	stream := strings.Repeat("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n", 1000)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		r := sse.NewReader(strings.NewReader(stream), 0)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
}
