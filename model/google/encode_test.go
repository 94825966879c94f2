package google_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// play returns a client that answers with the stream given, and the last
// request that it was given.
func play(stream string) (*http.Client, func() (*http.Request, []byte)) {
	var last *http.Request
	var body []byte
	client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		last = r
		body, _ = io.ReadAll(r.Body)
		return &http.Response{
			StatusCode: 200, Request: r, Body: io.NopCloser(strings.NewReader(stream)),
			Header: http.Header{"Content-Type": {"text/event-stream"}},
		}, nil
	})}
	return client, func() (*http.Request, []byte) { return last, body }
}

const shortAnswer = `data: {"candidates":[{"content":{"parts":[{"text":"ok"}]},"finishReason":"STOP"}]}` + "\n\n"

// sent returns the body that is sent for req.
func sent(t testing.TB, req *model.Request) []byte {
	t.Helper()
	client, last := play(shortAnswer)
	if _, err := modeltest.Collect(t, google.New(google.Config{APIKey: "k", Client: client}).Stream(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	_, body := last()
	return body
}

func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	// Go 1.27 writes this character as itself, earlier versions escape it. An
	// escaped backslash before it is part of JSON within a string.
	text := strings.NewReplacer(`\\`, `\\`, `\ufffd`, "\uFFFD").Replace(pretty.String())
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-golden +sent):\n%s", path, diff)
	}
}

func origin(id string) model.Origin { return model.Origin{Provider: "google", Model: id} }

func TestRequests(t *testing.T) {
	signed := json.RawMessage(`{"marks":[{"start":0,"end":24,"signature":"c2ln+/8="}]}`)
	conversation := modeltest.Conversation(origin("gemini-3.5-flash"), signed)
	conversation.Thinking, conversation.MaxOutput = model.ThinkingHigh, 4096
	elsewhere := modeltest.Conversation(origin("gemini-3.5-flash"), signed)
	elsewhere.Model = "gemini-2.5-flash"
	for name, req := range map[string]*model.Request{
		"hello.json":                    modeltest.Hello(),
		"conversation.json":             conversation,
		"conversation_other_model.json": elsewhere,
		"damaged.json":                  modeltest.Damaged(origin("gemini-3.5-flash")),
		"unlocked.json":                 modeltest.Unlocked(origin("gemini-2.5-pro")),
	} {
		golden(t, name, sent(t, req))
	}
}

type sentPart struct {
	Text         *string
	Thought      bool
	Signature    string `json:"thoughtSignature"`
	FunctionCall *struct {
		ID   string
		Name string
		Args any
	}
	FunctionResponse *struct {
		ID       string
		Name     string
		Response map[string]string
	}
}

type sentContent struct {
	Role  string
	Parts []sentPart
}

// contents returns the contents that are sent for req.
func contents(t testing.TB, req *model.Request) []sentContent {
	t.Helper()
	var body struct{ Contents []sentContent }
	if err := json.Unmarshal(sent(t, req), &body); err != nil {
		t.Fatal(err)
	}
	return body.Contents
}

func call(id string, opaque string) model.Block {
	b := model.Block{Kind: model.ToolCall, CallID: id, Name: "now"}
	if opaque != "" {
		b.Opaque = json.RawMessage(opaque)
	}
	return b
}

func result(id, text string) model.Block {
	return model.Block{Kind: model.ToolResult, CallID: id, Text: text}
}

// All results of a batch travel in one content, in the order of the calls and
// apart from what the user says next.
func TestBatchIsOneContent(t *testing.T) {
	req := modeltest.Hello()
	req.Model = "gemini-3.5-flash"
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Origin: origin(req.Model), Blocks: []model.Block{
			call("a", `{"signature":"S"}`), call("b", ""), call("c", ""), call("d", ""),
		}},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{result("d", "4"), result("b", "2"), {Kind: model.ToolResult, CallID: "c", Text: "3", IsError: true}, result("a", "1")}},
		model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "thanks"}}},
	)
	got := contents(t, req)
	var shape []string
	for _, c := range got {
		s := c.Role
		for _, p := range c.Parts {
			switch {
			case p.FunctionCall != nil:
				s += " call:" + p.FunctionCall.ID
			case p.FunctionResponse != nil:
				s += " result:" + p.FunctionResponse.ID + "=" + p.FunctionResponse.Name + p.FunctionResponse.Response["output"] + p.FunctionResponse.Response["error"]
			default:
				s += " text"
			}
		}
		shape = append(shape, s)
	}
	want := []string{
		"user text",
		"model call:a call:b call:c call:d",
		"user result:a=now1 result:b=now2 result:c=now3 result:d=now4",
		"user text",
	}
	if diff := cmp.Diff(want, shape); diff != "" {
		t.Errorf("contents (-want +sent):\n%s", diff)
	}
	if response := got[2].Parts[2].FunctionResponse.Response; response["error"] != "3" || len(response) != 1 {
		t.Errorf("a failed call is sent as %v", response)
	}
	for i, p := range got[1].Parts {
		if (p.Signature != "") != (i == 0) {
			t.Errorf("call %d has the signature %q", i, p.Signature)
		}
	}
}

// From Gemini 3 on, a call without a signature is refused. Those that another
// model made get the value that stands for one; older models get none.
func TestForeignCalls(t *testing.T) {
	const skip = "skip_thought_signature_validator"
	conversation := func(asked string, o model.Origin) *model.Request {
		req := modeltest.Hello()
		req.Model = asked
		req.Messages = append(req.Messages,
			model.Message{Role: model.RoleAssistant, Origin: o, Blocks: []model.Block{
				{Kind: model.Reasoning, Text: "hm", Opaque: json.RawMessage(`{"marks":[{"start":0,"end":2,"signature":"T"}]}`)},
				{Kind: model.Text, Text: "ab", Opaque: json.RawMessage(`{"marks":[{"start":0,"end":1,"signature":"X"}]}`)},
				call("1", `{"signature":"S"}`), call("2", ""),
			}},
			model.Message{Role: model.RoleTool, Blocks: []model.Block{result("1", "x"), result("2", "y")}},
			model.Message{Role: model.RoleAssistant, Origin: o, Blocks: []model.Block{call("3", "")}},
			model.Message{Role: model.RoleTool, Blocks: []model.Block{result("3", "z")}},
		)
		return req
	}
	for _, tt := range []struct {
		name   string
		model  string
		origin model.Origin
		want   []string // the signatures of all parts of the model's contents
		ids    bool
	}{
		{"its own", "gemini-3.5-flash", origin("gemini-3.5-flash"), []string{"T", "X", "", "S", "", skip}, true},
		{"of an older model", "gemini-3.5-flash", origin("gemini-2.5-flash"), []string{"", skip, "", skip}, true},
		{"of the same model elsewhere", "gemini-3.5-flash", model.Origin{Provider: "google-vertex", Model: "gemini-3.5-flash"}, []string{"", skip, "", skip}, true},
		{"of another maker", "gemini-4-argon", model.Origin{Provider: "anthropic", Model: "claude"}, []string{"", skip, "", skip}, true},
		{"an older model's own", "gemini-2.5-flash", origin("gemini-2.5-flash"), []string{"T", "X", "", "S", "", ""}, false},
		{"an older model, of another", "gemini-2.5-flash", origin("gemini-3.5-flash"), []string{"", "", "", ""}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range contents(t, conversation(tt.model, tt.origin)) {
				for _, p := range c.Parts {
					if c.Role == "model" {
						got = append(got, p.Signature)
					}
					if p.FunctionCall != nil && (p.FunctionCall.ID != "") != tt.ids || p.FunctionResponse != nil && (p.FunctionResponse.ID != "") != tt.ids {
						t.Errorf("part %+v: wants ids = %v", p, tt.ids)
					}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("signatures (-want +sent):\n%s", diff)
			}
		})
	}
}

// No content is empty and no unsigned part is: the API refuses both.
func TestNothingIsEmpty(t *testing.T) {
	req := modeltest.Hello()
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Origin: origin(req.Model), Blocks: []model.Block{{Kind: model.Text, Text: " "}, {Kind: model.Reasoning, Text: ""}}},
		model.Message{Role: model.RoleAssistant, Origin: origin(req.Model), Blocks: []model.Block{{Kind: model.Text, Text: "one"}, {Kind: model.Text}}},
		model.Message{Role: model.RoleAssistant, Origin: origin(req.Model), Blocks: []model.Block{{Kind: model.Text, Text: "two"}}},
		model.Message{Role: model.RoleUser},
		model.Message{Role: model.RoleAssistant, Origin: origin(req.Model), Blocks: []model.Block{call("1", "")}},
	)
	got := contents(t, req)
	role := "model"
	for i, c := range got {
		if len(c.Parts) == 0 {
			t.Errorf("content %d is empty", i)
		}
		if c.Role == role {
			t.Errorf("contents %d and %d are both of the %s", i-1, i, role)
		}
		role = c.Role
		for _, p := range c.Parts {
			if p.Text != nil && strings.TrimSpace(*p.Text) == "" {
				t.Errorf("content %d has a blank text", i)
			}
		}
	}
	if len(got) < 2 || got[0].Role != "user" || got[len(got)-1].Role != "user" {
		t.Errorf("the conversation begins or ends with the model: %+v", got)
	}
}

// A text that is not the one that was signed goes without its signatures.
func TestSignaturesOfAnotherText(t *testing.T) {
	for _, marks := range []string{
		`[{"start":0,"end":9,"signature":"S"}]`, `[{"start":2,"end":1,"signature":"S"}]`, `[{"start":-1,"end":1,"signature":"S"}]`,
		`[{"start":1,"end":2,"signature":"S"},{"start":0,"end":1,"signature":"S"}]`, `"no"`,
	} {
		req := modeltest.Hello()
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Origin: origin(req.Model), Blocks: []model.Block{
			{Kind: model.Text, Text: "abc", Opaque: json.RawMessage(`{"marks":` + marks + `}`)},
		}})
		got := contents(t, req)[1]
		if len(got.Parts) != 1 || got.Parts[0].Signature != "" || *got.Parts[0].Text != "abc" {
			t.Errorf("marks %s: sent %+v", marks, got)
		}
	}
}

// Gemini takes no GIF.
func TestImages(t *testing.T) {
	req := modeltest.Hello()
	req.Messages[0].Blocks = append(req.Messages[0].Blocks,
		model.Block{Kind: model.Image, MediaType: "image/gif", Data: []byte("GIF89a\x01\x00\x01\x00")},
		model.Block{Kind: model.Image, MediaType: "image/webp", Data: []byte("RIFF\x00\x00\x00\x00WEBPVP8 ")})
	body := string(sent(t, req))
	if strings.Contains(body, `"mimeType":"image/gif"`) || !strings.Contains(body, "image/gif omitted") || !strings.Contains(body, `"mimeType":"image/webp"`) {
		t.Errorf("sent %s", body)
	}
}

// An image that the API would refuse, and the request with it, gives way to a note.
func TestLargeImages(t *testing.T) {
	req := modeltest.Hello()
	req.Messages[0].Blocks = append(req.Messages[0].Blocks, model.Block{Kind: model.Image, MediaType: "image/png", Data: make([]byte, 8<<20)})
	if body := string(sent(t, req)); strings.Contains(body, "inlineData") || !strings.Contains(body, "[image of 8.0 MiB omitted: the model accepts 7.0 MiB]") {
		t.Errorf("sent %.300s", body)
	}
}
