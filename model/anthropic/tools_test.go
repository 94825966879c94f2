package anthropic_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

// deferral is what a request says about its tools.
type deferral struct {
	Loaded, Deferred []string
	References       map[string][]string // by the id of the call
}

// deferredBy reads a request, and checks the rules of the API: a deferred tool
// has no mark for caching and exactly one reference, a result with references
// holds nothing else and did not fail, and the results of a message come first.
func deferredBy(t *testing.T, body []byte) deferral {
	t.Helper()
	var r struct {
		Tools []struct {
			Name         string
			DeferLoading bool            `json:"defer_loading"`
			CacheControl json.RawMessage `json:"cache_control"`
		}
		Messages []struct {
			Content []struct {
				Type      string
				ToolUseID string `json:"tool_use_id"`
				IsError   bool   `json:"is_error"`
				Content   json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	d := deferral{References: map[string][]string{}}
	marks := 0
	for _, tool := range r.Tools {
		if tool.CacheControl != nil {
			marks++
		}
		if !tool.DeferLoading {
			d.Loaded = append(d.Loaded, tool.Name)
			continue
		}
		d.Deferred = append(d.Deferred, tool.Name)
		if tool.CacheControl != nil {
			t.Errorf("%s is deferred and marked for caching", tool.Name)
		}
	}
	if marks != 1 {
		t.Errorf("%d tools are marked for caching, want 1", marks)
	}
	var all []string
	for _, m := range r.Messages {
		results := true
		for _, b := range m.Content {
			if b.Type == "tool_result" && !results {
				t.Error("a result comes behind other content")
			}
			results = b.Type == "tool_result"
			var references []struct {
				Type     string
				ToolName string `json:"tool_name"`
			}
			if json.Unmarshal(b.Content, &references) != nil {
				continue // a text
			}
			for _, ref := range references {
				if ref.Type != "tool_reference" || b.IsError {
					t.Errorf("a result that failed, or a %s beside references", ref.Type)
				}
				d.References[b.ToolUseID] = append(d.References[b.ToolUseID], ref.ToolName)
				all = append(all, ref.ToolName)
			}
		}
	}
	if got, want := slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(d.Deferred)); !slices.Equal(got, want) {
		t.Errorf("references to %q, deferred are %q", got, want)
	}
	return d
}

func TestDeferredTools(t *testing.T) {
	own := model.Origin{Provider: "anthropic", Model: "claude-opus-5"}
	plain := deferral{Loaded: []string{"record_approval", "now", "publish_release"}, References: map[string][]string{}}
	late := deferral{
		Loaded: []string{"record_approval", "now"}, Deferred: []string{"publish_release"},
		References: map[string][]string{"call_2": {"publish_release"}},
	}
	for _, tt := range []struct {
		name   string
		config anthropic.Config
		change func(*model.Request)
		want   deferral
	}{
		{"supported", anthropic.Config{}, func(*model.Request) {}, late},
		{"nothing known of the model", anthropic.Config{}, func(req *model.Request) { req.Info = model.Info{} }, plain},
		{"a server of others", anthropic.Config{BaseURL: "https://gateway.test"}, func(*model.Request) {}, plain},
		{"a failed result", anthropic.Config{}, func(req *model.Request) { req.Tools[1].After = "call_3" }, plain},
		{"a call without a result", anthropic.Config{}, func(req *model.Request) { req.Messages[2].Blocks = req.Messages[2].Blocks[:1] }, plain},
		{"no such call", anthropic.Config{}, func(req *model.Request) { req.Tools[1].After = "call_9" }, plain},
		{"called before it came", anthropic.Config{}, func(req *model.Request) { req.Messages[1].Blocks[0].Name = "publish_release" }, plain},
		{"called after it came", anthropic.Config{}, func(req *model.Request) {
			req.Messages = append(req.Messages,
				model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "call_4", Name: "publish_release"}}},
				model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "call_4", Text: "done"}}})
		}, late},
		{"an id that is used again", anthropic.Config{}, func(req *model.Request) {
			req.Messages = append(req.Messages, req.Messages[1], req.Messages[2])
		}, late},
		{"two of one call", anthropic.Config{}, func(req *model.Request) {
			req.Tools = append(req.Tools, model.Tool{Name: "withdraw", After: "call_2"})
		}, deferral{
			Loaded: []string{"record_approval", "now"}, Deferred: []string{"publish_release", "withdraw"},
			References: map[string][]string{"call_2": {"publish_release", "withdraw"}},
		}},
		{"two calls, the later one declared first", anthropic.Config{}, func(req *model.Request) {
			req.Tools = append(req.Tools, model.Tool{Name: "first", After: "call_1"})
		}, deferral{
			Loaded: []string{"record_approval", "now"}, Deferred: []string{"first", "publish_release"},
			References: map[string][]string{"call_1": {"first"}, "call_2": {"publish_release"}},
		}},
		{"all tools, of one call", anthropic.Config{}, func(req *model.Request) { req.Tools = req.Tools[1:2] }, deferral{
			Loaded: []string{"publish_release"}, References: map[string][]string{},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := modeltest.Unlocked(own)
			tt.change(req)
			if diff := cmp.Diff(tt.want, deferredBy(t, sent(t, tt.config, req))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A tool that is loaded later changes nothing that was sent before it, up to
// the result that loads it: that is what keeps the cache.
func TestDeferredToolKeepsThePrefix(t *testing.T) {
	own := model.Origin{Provider: "anthropic", Model: "claude-opus-5"}
	before, after := modeltest.Unlocked(own), modeltest.Unlocked(own)
	before.Messages = before.Messages[:1]
	before.Tools = slices.Delete(before.Tools, 1, 2)
	type request struct{ System, Tools, Messages []json.RawMessage }
	var old, now request
	for _, x := range []struct {
		req *model.Request
		to  *request
	}{{before, &old}, {after, &now}} {
		if err := json.Unmarshal(sent(t, anthropic.Config{}, x.req), x.to); err != nil {
			t.Fatal(err)
		}
	}
	text := func(raws []json.RawMessage) (s []string) {
		for _, raw := range raws {
			s = append(s, strings.ReplaceAll(string(raw), `,"cache_control":{"type":"ephemeral"}`, ""))
		}
		return s
	}
	if diff := cmp.Diff(old.System, now.System); diff != "" {
		t.Errorf("system (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(old.Tools, now.Tools[:len(old.Tools)]); diff != "" {
		t.Errorf("tools (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(text(old.Messages), text(now.Messages[:1])); diff != "" {
		t.Errorf("messages (-before +after):\n%s", diff)
	}
}

// Thinking that came before a tool was loaded is still sent, since what the
// model had read by then is the same; thinking that came after it is not when
// the tool has changed or gone.
func TestDeferredToolKeepsThinking(t *testing.T) {
	own := model.Origin{Provider: "anthropic", Model: "claude-opus-5-5"}
	think := func(req *model.Request) json.RawMessage {
		t.Helper()
		stream := `data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}` + "\n\n" +
			`data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"c2ln"}}` + "\n\n" +
			`data: {"type":"message_stop"}` + "\n\n"
		client, _ := play(stream)
		a, err := modeltest.Collect(t, anthropic.New(anthropic.Config{APIKey: "k", Client: client}).Stream(t.Context(), req))
		if err != nil {
			t.Fatal(err)
		}
		return a.Blocks[0].Opaque
	}
	first := modeltest.Unlocked(own)
	first.Messages, first.Tools = first.Messages[:1], slices.Delete(first.Tools, 1, 2)
	early := model.Block{Kind: model.Reasoning, Opaque: think(first)}

	second := modeltest.Unlocked(own)
	second.Messages[1].Blocks = slices.Insert(second.Messages[1].Blocks, 0, early)
	late := model.Block{Kind: model.Reasoning, Opaque: think(second)}
	third := func() *model.Request {
		req := modeltest.Unlocked(own)
		req.Messages[1].Blocks = slices.Insert(req.Messages[1].Blocks, 0, early)
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{late, {Kind: model.Text, Text: "Done."}}})
		return req
	}
	for _, tt := range []struct {
		name   string
		change func(*model.Request)
		want   int
	}{
		{"same tools", func(*model.Request) {}, 2},
		{"the tool is described otherwise", func(req *model.Request) { req.Tools[1].Description = "Something else." }, 1},
		{"the tool is gone", func(req *model.Request) { req.Tools = slices.Delete(req.Tools, 1, 2) }, 1},
		{"the tool is presented plainly", func(req *model.Request) { req.Info.DeferredTools = false }, 0},
		{"another tool is described otherwise", func(req *model.Request) { req.Tools[0].Description = "Something else." }, 0},
	} {
		req := third()
		tt.change(req)
		if got := strings.Count(string(sent(t, anthropic.Config{}, req)), `"signature":"c2ln"`); got != tt.want {
			t.Errorf("%s: %d thinking blocks are sent, want %d", tt.name, got, tt.want)
		}
	}
}
