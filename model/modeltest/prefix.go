package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/model"
)

// prefix tests that a request begins with what the request before it was, apart
// from where the cache is marked: services keep what was read before, and read
// it again at ten times the price when it has changed.
func (r *runner) prefix(t *testing.T, x Exchange) {
	var body []byte
	r.answer(func(w http.ResponseWriter, req *http.Request) {
		body, _ = io.ReadAll(req.Body)
		send(w, x.Stream)
	})
	own := model.Origin{Provider: "test", Model: x.Request.Model}
	if len(r.Origins) > 0 {
		own = r.Origins[0]
	}
	opaque := json.RawMessage(nil)
	for _, b := range x.Blocks {
		if b.Kind == model.Reasoning {
			opaque = b.Opaque
		}
	}
	whole := Conversation(own, opaque)
	var before, beforeHead []any
	for n := 1; n <= len(whole.Messages); n++ {
		req := *whole
		if req.Messages = whole.Messages[:n]; req.Messages[n-1].Role == model.RoleAssistant {
			continue // no request ends so
		}
		if _, err := Collect(t, r.provider(0).Stream(t.Context(), &req)); err != nil {
			t.Fatal(err)
		}
		head, items := split(t, body)
		if before != nil {
			// What comes next may be said in the last message.
			last := len(before) - 1
			if diff := cmp.Diff(before[:last], items[:min(last, len(items))]); diff != "" {
				t.Errorf("request %d does not begin with the one before (-before +now):\n%s", n, diff)
			}
			if diff := cmp.Diff(beforeHead, head); diff != "" {
				t.Errorf("request %d says something else before its messages (-before +now):\n%s", n, diff)
			}
		}
		before, beforeHead = items, head
	}
}

// split returns what a request says beside its messages, and the messages, both
// without the marks of the cache.
func split(t *testing.T, body []byte) (head, items []any) {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatal(err)
	}
	unmark(o)
	for _, name := range []string{"messages", "input", "contents"} {
		if list, ok := o[name].([]any); ok {
			items = list
			delete(o, name)
		}
	}
	if items == nil {
		t.Skip("the request has no list of messages that is known here")
	}
	return []any{o}, items
}

// unmark removes the marks of the cache.
func unmark(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "cache_control")
		delete(v, "cachePoint")
		for _, item := range v {
			unmark(item)
		}
	case []any:
		for _, item := range v {
			unmark(item)
		}
	}
}
