package bedrock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/bedrock"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A player is an HTTP client that answers each request with the same bytes.
type player struct {
	answer  []byte
	request *http.Request
	body    []byte
}

func (p *player) Do(r *http.Request) (*http.Response, error) {
	p.request = r
	p.body, _ = io.ReadAll(r.Body)
	return &http.Response{
		StatusCode: 200, Request: r, Body: io.NopCloser(bytes.NewReader(p.answer)),
		Header: http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}},
	}, nil
}

func (p *player) config() aws.Config {
	return aws.Config{Region: "us-east-1", HTTPClient: p, Credentials: credentials}
}

const shortAnswer = `contentBlockDelta {"contentBlockIndex":0,"delta":{"text":"ok"}}` + "\n" + `messageStop {"stopReason":"end_turn"}`

// sent returns the body that is sent for req.
func sent(t testing.TB, req *model.Request, edit ...func(*bedrock.Config)) []byte {
	t.Helper()
	p := &player{answer: join(frames(t, shortAnswer))}
	c := bedrock.Config{AWS: p.config()}
	for _, e := range edit {
		e(&c)
	}
	if _, err := modeltest.Collect(t, bedrock.New(c).Stream(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	return p.body
}

// receive returns what the codec makes of a recorded stream that answers req.
func receive(t testing.TB, recorded string, req *model.Request) (modeltest.Answer, error) {
	t.Helper()
	p := &player{answer: join(frames(t, recorded))}
	return modeltest.Collect(t, bedrock.New(bedrock.Config{AWS: p.config()}).Stream(t.Context(), req))
}

func origin(id string) model.Origin { return model.Origin{Provider: "amazon-bedrock", Model: id} }

const (
	sonnet = "eu.anthropic.claude-sonnet-4-6"
	haiku  = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
	opus   = "us.anthropic.claude-opus-5-5"
	nova   = "us.amazon.nova-2-lite-v1:0"
)

func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	text := indent(t, body)
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

func TestRequests(t *testing.T) {
	signed := json.RawMessage(`{"signature":"c2ln+/8="}`)
	conversation := modeltest.Conversation(origin(sonnet), signed)
	conversation.Thinking, conversation.MaxOutput = model.ThinkingHigh, 4096
	elsewhere := modeltest.Conversation(origin(sonnet), signed)
	elsewhere.Model = nova
	flat := modeltest.Conversation(origin(sonnet), signed)
	flat.Tools = nil
	for name, req := range map[string]*model.Request{
		"hello.json":                    modeltest.Hello(),
		"conversation.json":             conversation,
		"conversation_other_model.json": elsewhere,
		"conversation_no_tools.json":    flat,
		"damaged.json":                  modeltest.Damaged(origin(sonnet)),
		"unlocked.json":                 modeltest.Unlocked(origin(haiku)),
	} {
		body := sent(t, req)
		if !utf8.Valid(body) || !json.Valid(body) {
			t.Errorf("%s is no valid JSON", name)
		}
		golden(t, name, body)
	}
}

// The model is named in the path, and the request is signed and its own each time.
func TestRequestIsSigned(t *testing.T) {
	s := newService(t)
	s.play(frames(t, shortAnswer)...)
	req := modeltest.Conversation(origin(sonnet), nil)
	var bodies []string
	before := fmt.Sprintf("%#v", *req)
	for range 2 {
		if _, err := modeltest.Collect(t, s.provider().Stream(t.Context(), req)); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(s.body))
	}
	if bodies[0] != bodies[1] {
		t.Error("two calls sent different bodies")
	}
	if after := fmt.Sprintf("%#v", *req); before != after {
		t.Errorf("the request was changed from\n%s\nto\n%s", before, after)
	}
	if path := s.request.URL.EscapedPath(); path != "/model/eu.anthropic.claude-sonnet-4-6/converse-stream" {
		t.Errorf("path = %s", path)
	}
	if auth := s.request.Header.Get("Authorization"); !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") || !strings.Contains(auth, "/eu-central-1/bedrock/") {
		t.Errorf("authorization = %s", auth)
	}
}

type sentBlock struct {
	Text             *string
	ReasoningContent *struct {
		ReasoningText   *struct{ Text, Signature string }
		RedactedContent []byte
	}
	ToolUse    *struct{ ToolUseID, Name string }
	ToolResult *struct{ ToolUseID, Status string }
	CachePoint *struct{ Type string }
}

type sentMessage struct {
	Role    string
	Content []sentBlock
}

func messages(t testing.TB, body []byte) []sentMessage {
	t.Helper()
	var r struct{ Messages []sentMessage }
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r.Messages
}

// What the model sent as reasoning goes back as it was, through storage, in its
// place; and does not go to another model, nor without a signature to any.
func TestReasoningIsReplayed(t *testing.T) {
	stream := strings.Join([]string{
		`contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":" a <b> \u2028 \n"}}}`,
		`contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"S1"}}}`,
		`contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"let me"}}`,
		`contentBlockDelta {"contentBlockIndex":2,"delta":{"reasoningContent":{"signature":"S2"}}}`,
		`contentBlockDelta {"contentBlockIndex":3,"delta":{"reasoningContent":{"redactedContent":"AQI="}}}`,
		`contentBlockDelta {"contentBlockIndex":3,"delta":{"reasoningContent":{"redactedContent":"Aw=="}}}`,
		`contentBlockDelta {"contentBlockIndex":4,"delta":{"reasoningContent":{"text":"unsigned"}}}`,
		`contentBlockStart {"contentBlockIndex":5,"start":{"toolUse":{"name":"now","toolUseId":"1"}}}`,
		`contentBlockDelta {"contentBlockIndex":6,"delta":{"reasoningContent":{"signature":"after the call"}}}`,
		`messageStop {"stopReason":"tool_use"}`,
	}, "\n")
	first := modeltest.Hello()
	first.Model = sonnet
	answer, err := receive(t, stream, first)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(answer.Blocks)
	if err != nil {
		t.Fatal(err)
	}
	draw := func(m sentMessage) (s string) {
		for _, b := range m.Content {
			switch {
			case b.ReasoningContent != nil && b.ReasoningContent.ReasoningText != nil:
				s += fmt.Sprintf("reasoning(%q,%s) ", b.ReasoningContent.ReasoningText.Text, b.ReasoningContent.ReasoningText.Signature)
			case b.ReasoningContent != nil:
				s += fmt.Sprintf("redacted(%v) ", b.ReasoningContent.RedactedContent)
			case b.ToolUse != nil:
				s += "call "
			case b.Text != nil:
				s += "text "
			}
		}
		return s
	}
	for _, tt := range []struct{ name, model, provider, want string }{
		{"same", sonnet, "amazon-bedrock", `reasoning(" a <b> \u2028 \n",S1) text reasoning("",S2) redacted([1 2 3]) call `},
		{"another model", haiku, "amazon-bedrock", "text call "},
		{"another provider", sonnet, "gateway", "text call "},
	} {
		var blocks []model.Block
		if err := json.Unmarshal(stored, &blocks); err != nil {
			t.Fatal(err)
		}
		req := &model.Request{Model: tt.model, Tools: []model.Tool{{Name: "now"}}, Messages: append(modeltest.Hello().Messages,
			model.Message{Role: model.RoleAssistant, Blocks: blocks, Origin: model.Origin{Provider: tt.provider, Model: sonnet}},
			model.Message{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "1", Text: "x"}}})}
		if got := draw(messages(t, sent(t, req))[1]); got != tt.want {
			t.Errorf("%s: sent %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// Newer models refuse reasoning when anything before it has changed since.
func TestReasoningIsTiedToItsPrefix(t *testing.T) {
	base := func() *model.Request {
		req := modeltest.Hello()
		req.Model, req.System, req.Tools = opus, "Be brief.", []model.Tool{{Name: "now"}}
		return req
	}
	think := func(req *model.Request, signature string) model.Message {
		t.Helper()
		answer, err := receive(t, `contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"`+signature+`"}}}`+"\n"+
			`contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"ok"}}`+"\n"+`messageStop {"stopReason":"end_turn"}`, req)
		if err != nil {
			t.Fatal(err)
		}
		return model.Message{Role: model.RoleAssistant, Origin: origin(opus), Blocks: answer.Blocks}
	}
	user := func(s string) model.Message {
		return model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: s}}}
	}
	first := think(base(), "S1")
	with := func(edits ...func(*model.Request)) *model.Request {
		req := base()
		for _, edit := range edits {
			edit(req)
		}
		req.Messages = append(req.Messages, first, user("go on"))
		return req
	}
	tool := func(req *model.Request) { req.Tools = append(req.Tools, model.Tool{Name: "publish"}) }
	second := think(with(tool), "S2")
	later := with(tool)
	later.Messages = append(later.Messages, second, user("and now?"))
	third := think(with(), "S3")
	both := with()
	both.Messages = append(both.Messages, third, user("and now?"))
	for _, tt := range []struct {
		name string
		req  *model.Request
		want string
	}{
		{"unchanged", with(), "S1"},
		{"another tool", with(tool), ""},
		{"another prompt", with(func(req *model.Request) { req.System = "Be verbose." }), ""},
		{"another message", with(func(req *model.Request) { req.Messages[0] = user("Bye") }), ""},
		{"another effort", with(func(req *model.Request) { req.Thinking = model.ThinkingLow }), "S1"},
		{"only what came after the change", later, "S2"},
		{"what came after reasoning that is sent", both, "S1S3"},
	} {
		got := ""
		for _, m := range messages(t, sent(t, tt.req)) {
			for _, b := range m.Content {
				if b.ReasoningContent != nil {
					got += b.ReasoningContent.ReasoningText.Signature
				}
			}
		}
		if got != tt.want {
			t.Errorf("%s: sent back %q, want %q", tt.name, got, tt.want)
		}
	}
}

// JSON goes out as it is: the order of members, numbers of any size, and names
// that the SDK's own documents refuse.
func TestArgumentsAreSentAsTheyAre(t *testing.T) {
	const args = `{"z":12345678901234567890,"a":[1.50,2e3],"":{"<":null}}`
	req := modeltest.Hello()
	req.Model, req.Tools = sonnet, []model.Tool{{Name: "now", Schema: json.RawMessage(`{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"array"}},"required":["z"]}`)}}
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1", Name: "now", Arguments: args}}})
	body := string(sent(t, req))
	if !strings.Contains(body, `"input":`+args) || !strings.Contains(body, `"json":{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"array"}},"required":["z"]}`) {
		t.Errorf("sent %s", body)
	}
}

// Cache points go to the models that take them, at the ends of what the next
// request will begin with.
func TestCachePoints(t *testing.T) {
	for id, want := range map[string]bool{
		sonnet: true, haiku: true, "anthropic.claude-3-7-sonnet-20250219-v1:0": true, "anthropic.claude-3-5-haiku-20241022-v1:0": true,
		"anthropic.claude-3-haiku-20240307-v1:0": false, "anthropic.claude-3-5-sonnet-20240620-v1:0": false,
		nova: false, "us.deepseek.r1-v1:0": false, "openai.gpt-oss-120b-1:0": false,
	} {
		req := modeltest.Conversation(origin(id), nil)
		body := string(sent(t, req))
		n := strings.Count(body, `{"cachePoint":{"type":"default"}}`)
		if want && n != 4 || !want && n != 0 {
			t.Errorf("%s: %d cache points: %s", id, n, body)
		}
	}
	ms := messages(t, sent(t, modeltest.Conversation(origin(sonnet), nil)))
	for i, m := range ms {
		for j, b := range m.Content {
			if b.CachePoint != nil && (j != len(m.Content)-1 || m.Role != "user" || i < len(ms)-3) {
				t.Errorf("a cache point is at block %d of message %d", j, i)
			}
		}
	}
}

// The roles alternate, and the results of a batch come first, all in one message
// and in the order of the calls.
func TestBatchIsOneMessage(t *testing.T) {
	req := modeltest.Hello()
	req.Model, req.Tools = sonnet, []model.Tool{{Name: "now"}}
	call := func(id string) model.Block { return model.Block{Kind: model.ToolCall, CallID: id, Name: "now"} }
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.Text, Text: "one moment"}}},
		model.Message{Role: model.RoleAssistant, Blocks: []model.Block{call("a"), call("b"), call("c")}},
		model.Message{Role: model.RoleTool, Blocks: []model.Block{
			{Kind: model.ToolResult, CallID: "c", Text: "3"}, {Kind: model.ToolResult, CallID: "a", Text: "1", IsError: true},
		}},
		model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "thanks"}}})
	got := messages(t, sent(t, req))
	var shape []string
	for _, m := range got {
		s := m.Role
		for _, b := range m.Content {
			switch {
			case b.ToolUse != nil:
				s += " call:" + b.ToolUse.ToolUseID
			case b.ToolResult != nil:
				s += " result:" + b.ToolResult.ToolUseID + b.ToolResult.Status
			case b.Text != nil:
				s += " text"
			}
		}
		shape = append(shape, s)
	}
	want := []string{"user text", "assistant text call:a call:b call:c", "user result:aerror result:berror result:c text"}
	if diff := cmp.Diff(want, shape); diff != "" {
		t.Errorf("messages (-want +sent):\n%s", diff)
	}
}

func TestReasoningEffort(t *testing.T) {
	const (
		off, minimal, low, medium, high, xhigh = model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh
		unset                                  = model.ThinkingDefault
		arn                                    = "arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc"
	)
	for _, tt := range []struct {
		model string
		level model.Thinking
		max   int
		want  string // the fields, and the limit
	}{
		{sonnet, unset, 0, ` 0`},
		{sonnet, unset, 900, ` 900`},
		{sonnet, off, 0, `{"thinking":{"type":"disabled"}} 0`},
		{sonnet, high, 0, `{"output_config":{"effort":"high"},"thinking":{"display":"summarized","type":"adaptive"}} 0`},
		{opus, unset, 0, `{"thinking":{"display":"summarized","type":"adaptive"}} 0`},
		{opus, xhigh, 100, `{"output_config":{"effort":"xhigh"},"thinking":{"display":"summarized","type":"adaptive"}} 100`},
		{haiku, unset, 0, ` 0`},
		{haiku, medium, 0, `{"thinking":{"budget_tokens":8192,"type":"enabled"}} 16384`},
		{haiku, medium, 1000, `{"thinking":{"budget_tokens":8192,"type":"enabled"}} 9192`},
		{nova, unset, 500, ` 500`},
		{nova, off, 500, ` 500`},
		{nova, minimal, 500, `{"reasoningConfig":{"maxReasoningEffort":"low","type":"enabled"}} 500`},
		{nova, xhigh, 500, `{"reasoningConfig":{"maxReasoningEffort":"high","type":"enabled"}} 0`},
		{"amazon.nova-pro-v1:0", high, 500, ` 500`},
		{"openai.gpt-oss-120b-1:0", medium, 0, `{"reasoning_effort":"medium"} 0`},
		{"openai.gpt-oss-20b-1:0", off, 0, `{"reasoning_effort":"low"} 0`},
		{"us.deepseek.r1-v1:0", high, 0, ` 0`},
		{arn, high, 0, `{"output_config":{"effort":"high"},"thinking":{"display":"summarized","type":"adaptive"}} 0`},
	} {
		t.Run(fmt.Sprintf("%s %s %d", tt.model, tt.level, tt.max), func(t *testing.T) {
			req := modeltest.Hello()
			req.Model, req.Thinking, req.MaxOutput = tt.model, tt.level, tt.max
			var body struct {
				AdditionalModelRequestFields json.RawMessage
				InferenceConfig              struct{ MaxTokens int }
			}
			sentBody := sent(t, req, func(c *bedrock.Config) { c.Models = map[string]string{arn: sonnet} })
			if err := json.Unmarshal(sentBody, &body); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s %d", string(body.AdditionalModelRequestFields), body.InferenceConfig.MaxTokens); got != tt.want {
				t.Errorf("sent %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Nova takes cache points, but not among the tools, nor behind images and results.
func TestWhereCachePointsAre(t *testing.T) {
	text := func(role model.Role, s string) model.Message {
		return model.Message{Role: role, Blocks: []model.Block{{Kind: model.Text, Text: s}}}
	}
	for id, want := range map[string]string{
		"us.amazon.nova-pro-v1:0": "text; ; text, text", // behind the image there is none
		nova:                      "; ; ",
		sonnet:                    "text; toolSpec; image, text",
		"us.deepseek.r1-v1:0":     "; ; ",
	} {
		req := modeltest.Conversation(origin(id), nil)
		req.Messages = append(req.Messages[:6], req.Messages[0], text(model.RoleAssistant, "Wait."), text(model.RoleUser, "Please."))
		var body struct {
			System     []map[string]any
			ToolConfig struct{ Tools []map[string]any }
			Messages   []struct{ Content []map[string]any }
		}
		if err := json.Unmarshal(sent(t, req), &body); err != nil {
			t.Fatal(err)
		}
		var inMessages []string
		for _, m := range body.Messages {
			if before := marked(m.Content); before != "" {
				inMessages = append(inMessages, before)
			}
		}
		if got := marked(body.System) + "; " + marked(body.ToolConfig.Tools) + "; " + strings.Join(inMessages, ", "); got != want {
			t.Errorf("%s: the cache points are behind %q, want %q", id, got, want)
		}
	}
}

// marked returns the kind of what a cache point among blocks is behind.
func marked(blocks []map[string]any) string {
	for i, b := range blocks {
		if b["cachePoint"] != nil {
			for kind := range blocks[i-1] {
				return kind
			}
		}
	}
	return ""
}

// The API refuses calls in the history of a request that offers no tools.
func TestCallsWithoutTools(t *testing.T) {
	req := modeltest.Conversation(origin(sonnet), nil)
	req.Tools = nil
	body := string(sent(t, req))
	for _, banned := range []string{`"toolUse"`, `"toolResult"`, `"toolConfig"`} {
		if strings.Contains(body, banned) {
			t.Errorf("sent %s: %s", banned, body)
		}
	}
	off := modeltest.Conversation(origin(sonnet), nil)
	off.ToolsOff = true // which the API cannot say of tools that are offered
	if got := string(sent(t, off)); got != body {
		t.Errorf("tools that must not be called: sent %s\nwant %s", got, body)
	}
	for _, want := range []string{`lookup_order was called with {\"orderId\":\"ORD-1\"}`, `lookup_order returned: {\"status\":\"shipped\"}`, `lookup_order failed: order service down`} {
		if !strings.Contains(body, want) {
			t.Errorf("not sent: %s\n%s", want, body)
		}
	}
}

func TestToolNames(t *testing.T) {
	req := modeltest.Hello()
	req.Model, req.Tools = sonnet, []model.Tool{{Name: "7.up"}, {Name: "now"}}
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1", Name: "7.up"}}})
	alias := messages(t, sent(t, req))[1].Content[0].ToolUse.Name
	if strings.Contains(alias, ".") || !strings.HasPrefix(alias, "_7") {
		t.Errorf("called %q", alias)
	}
	got, err := receive(t, `contentBlockStart {"contentBlockIndex":0,"start":{"toolUse":{"name":"`+alias+`","toolUseId":"2"}}}`+"\n"+`messageStop {"stopReason":"tool_use"}`, req)
	if err != nil || got.Blocks[0].Name != "7.up" {
		t.Errorf("the answer calls %v, error %v", got.Blocks, err)
	}
	union := []model.Tool{{Name: "u", Schema: json.RawMessage(`{"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"object"}]}`)}}
	if losses := bedrock.New(bedrock.Config{}).Losses(union); len(losses) == 0 || losses[0].Tool != "u" {
		t.Errorf("losses = %+v", losses)
	}
}

// A tool that came in the middle of the conversation is sent behind the others.
func TestLateTools(t *testing.T) {
	body := string(sent(t, modeltest.Unlocked(origin(sonnet))))
	late, others := strings.Index(body, "Publish an approved version."), []int{strings.Index(body, "Record"), strings.Index(body, "The time.")}
	for _, at := range others {
		if late < 0 || at < 0 || at > late {
			t.Errorf("the late tool is at %d, the others at %v: %s", late, others, body)
		}
	}
}

func TestPrepare(t *testing.T) {
	body := string(sent(t, modeltest.Hello(), func(c *bedrock.Config) {
		c.Prepare = func(in *bedrockruntime.ConverseStreamInput) {
			in.GuardrailConfig = &types.GuardrailStreamConfiguration{GuardrailIdentifier: aws.String("g"), GuardrailVersion: aws.String("1")}
		}
	}))
	if !strings.Contains(body, `"guardrailConfig":{"guardrailIdentifier":"g","guardrailVersion":"1"}`) {
		t.Errorf("sent %s", body)
	}
}

func FuzzDecode(f *testing.F) {
	for _, x := range exchanges {
		f.Add(recorded(f, x.name))
	}
	f.Add(`!throttlingException {"message":"no"}`)
	f.Add(`contentBlockDelta {"contentBlockIndex":-3,"delta":{"reasoningContent":{"redactedContent":"AA=="}}}` + "\n" + shortAnswer)
	f.Fuzz(func(t *testing.T, stream string) {
		if len(stream) > 64<<10 {
			t.Skip()
		}
		req := modeltest.Hello()
		req.Model = opus
		answer, err := receive(t, stream, req)
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) {
				t.Errorf("error %v is not a *model.Error", err)
			}
			return
		}
		// What was received can be stored and sent back.
		if _, err := json.Marshal(answer.Blocks); err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: answer.Blocks, Origin: origin(opus)})
		for _, m := range messages(t, sent(t, req)) {
			if len(m.Content) == 0 {
				t.Errorf("the next request has an empty message: %+v", m)
			}
		}
	})
}

// Whatever the history, the service would take the request.
func TestHistories(t *testing.T) {
	var received []model.Block
	for _, x := range exchanges {
		received = append(received, x.blocks...)
	}
	for _, id := range []string{sonnet, haiku, opus, nova, "openai.gpt-oss-120b-1:0"} {
		t.Run(id, func(t *testing.T) {
			p := &player{answer: join(frames(t, shortAnswer))}
			provider := bedrock.New(bedrock.Config{AWS: p.config()})
			modeltest.Histories(t, rules.Bedrock, origin(id), received, func(req *model.Request) ([]byte, error) {
				for _, err := range provider.Stream(t.Context(), req) {
					if err != nil {
						return nil, err
					}
				}
				return p.body, nil
			})
		})
	}
}

// The API takes twenty images; the oldest beyond them give way to a note.
func TestManyImages(t *testing.T) {
	req := modeltest.Conversation(origin(sonnet), nil)
	image := req.Messages[0].Blocks[1]
	for range 24 {
		req.Messages[0].Blocks = append(req.Messages[0].Blocks, image)
	}
	body := string(sent(t, req))
	if images, notes := strings.Count(body, `{"image":`), strings.Count(body, "[image omitted: the model accepts 20 images"); images != 20 || notes != 5 {
		t.Errorf("sent %d images and %d notes", images, notes)
	}
}
