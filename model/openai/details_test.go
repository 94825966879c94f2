package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/answer"
	"github.com/flue-go/flue/model/internal/dialect"
	"github.com/flue-go/flue/model/internal/exchange"
)

func newDecoder() *decoder {
	return &decoder{
		stream: &exchange.Stream{}, out: answer.New(func(model.Event, error) bool { return true }),
		ids: answer.NewIDs(nil), names: dialect.OpenAINames().Names(nil, nil),
	}
}

// A detail of many pieces is put together in time proportional to its length.
func TestDetailOfManyPieces(t *testing.T) {
	const pieces = 100_000
	d := newDecoder()
	began := time.Now()
	for range pieces {
		d.keep([]json.RawMessage{json.RawMessage(`{"type":"reasoning.text","text":"some ","index":0}`)})
	}
	d.keep([]json.RawMessage{json.RawMessage(`{"type":"reasoning.text","index":0,"signature":"s"}`)})
	want := `{"reasoning_details":[{"index":0,"signature":"s","text":"` + strings.Repeat("some ", pieces) + `","type":"reasoning.text"}]}`
	if got := string(d.kept()); got != want {
		t.Errorf("%d bytes: %.120s…", len(got), got)
	}
	if took := time.Since(began); took > 20*time.Second { // it was minutes
		t.Errorf("it took %v", took)
	}
}

// Pieces are those of one detail, and keep what each of them says.
func TestJoinDetails(t *testing.T) {
	for _, tt := range []struct {
		pieces []string
		want   string
	}{
		{[]string{`{"type":"t", "text":"a"}`}, `[{"type":"t","text":"a"}]`},
		{[]string{`{"type":"t","text":"a"}`, `{"type":"t","text":"b","n":1e2}`, `{"type":"t","text":"c","n":null}`}, `[{"n":1e2,"text":"abc","type":"t"}]`},
		{[]string{`{"type":"t","text":"a","index":0}`, `{"type":"t","text":"b","index":1}`}, `[{"type":"t","text":"a","index":0},{"type":"t","text":"b","index":1}]`},
		{[]string{`{"type":"t","summary":"a"}`, `{"type":"t","summary":"b"}`}, `[{"summary":"ab","type":"t"}]`},
		{[]string{`{"type":"t","text":"a"}`, `{"type":"t","data":"b"}`}, `[{"type":"t","text":"a"},{"type":"t","data":"b"}]`},
		{[]string{`{"type":"t","text":"a","summary":"x"}`, `{"type":"t","text":"b","summary":"y"}`, `{"type":"t","summary":"z"}`}, `[{"summary":"yz","text":"ab","type":"t"}]`},
		{[]string{`7`, `{"type":"t","text":"a"}`, `"s"`}, `[7,{"type":"t","text":"a"},"s"]`},
	} {
		d := newDecoder()
		for _, p := range tt.pieces {
			d.keep([]json.RawMessage{json.RawMessage(p)})
		}
		if got, want := string(d.kept()), `{"reasoning_details":`+tt.want+`}`; got != want {
			t.Errorf("%q: %s, want %s", tt.pieces, got, want)
		}
	}
}

// An answer of calls without end is refused before each piece is held against all
// of them.
func TestCallsWithoutEnd(t *testing.T) {
	d := newDecoder()
	var dl delta
	for i := range 200_000 {
		dl.ToolCalls = append(dl.ToolCalls, toolDelta{Index: &i, ID: fmt.Sprint(i)})
	}
	d.delta(dl)
	if len(d.calls) != maxCalls+1 {
		t.Errorf("%d calls are held", len(d.calls))
	}
}
