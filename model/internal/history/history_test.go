package history_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/history"
	"github.com/google/go-cmp/cmp"
)

func say(role model.Role, texts ...string) model.Message {
	m := model.Message{Role: role}
	for _, s := range texts {
		m.Blocks = append(m.Blocks, model.Block{Kind: model.Text, Text: s})
	}
	return m
}

func calls(ids ...string) model.Message {
	m := model.Message{Role: model.RoleAssistant}
	for _, id := range ids {
		m.Blocks = append(m.Blocks, model.Block{Kind: model.ToolCall, CallID: id, Name: "t"})
	}
	return m
}

func results(pairs ...string) model.Message {
	m := model.Message{Role: model.RoleTool}
	for i := 0; i < len(pairs); i += 2 {
		m.Blocks = append(m.Blocks, model.Block{Kind: model.ToolResult, CallID: pairs[i], Text: pairs[i+1]})
	}
	return m
}

// draw renders messages in one line each.
func draw(messages []model.Message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s:", m.Role)
		for _, blk := range m.Blocks {
			switch blk.Kind {
			case model.ToolCall:
				fmt.Fprintf(&b, " call(%s)", blk.CallID)
			case model.ToolResult:
				fmt.Fprintf(&b, " %s=%s", blk.CallID, blk.Text)
				if blk.IsError {
					b.WriteString("!")
				}
			case model.Image:
				b.WriteString(" image")
			default:
				fmt.Fprintf(&b, " %s(%s)", blk.Kind, blk.Text)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestNormalize(t *testing.T) {
	user, assistant := model.RoleUser, model.RoleAssistant
	const lost = "No result was recorded for this call.!"
	tests := []struct {
		name string
		in   []model.Message
		want string
	}{
		{"plain", []model.Message{say(user, "a"), say(assistant, "b"), say(user, "c")}, "user: text(a)\nassistant: text(b)\nuser: text(c)\n"},
		{"user messages merge", []model.Message{say(user, "a"), say(user, "b", "c")}, "user: text(a) text(b) text(c)\n"},
		{"blank text goes", []model.Message{say(user, " ", "a", ""), say(assistant, "\n"), say(user, "b"), say(assistant, "", "c"), say(user, "d")}, "user: text(a) text(b)\nassistant: text() text(c)\nuser: text(d)\n"},
		{"blank user message", []model.Message{say(user, "")}, "user: text((no content))\n"},
		{"begins with an assistant", []model.Message{say(assistant, "a"), say(user, "b")}, "user: text((The beginning of this conversation is not shown.))\nassistant: text(a)\nuser: text(b)\n"},
		{"ends with an assistant", []model.Message{say(user, "a"), say(assistant, "b")}, "user: text(a)\nassistant: text(b)\nuser: text(Continue.)\n"},
		{"batch", []model.Message{say(user, "a"), calls("1", "2"), results("1", "x", "2", "y")}, "user: text(a)\nassistant: call(1) call(2)\ntool: 1=x 2=y\n"},
		{"results in call order", []model.Message{say(user, "a"), calls("1", "2"), results("2", "y", "1", "x")}, "user: text(a)\nassistant: call(1) call(2)\ntool: 1=x 2=y\n"},
		{"results in two messages", []model.Message{say(user, "a"), calls("1", "2"), results("2", "y"), results("1", "x")}, "user: text(a)\nassistant: call(1) call(2)\ntool: 1=x 2=y\n"},
		{"call without a result", []model.Message{say(user, "a"), calls("1", "2"), results("1", "x"), say(user, "b")}, "user: text(a)\nassistant: call(1) call(2)\ntool: 1=x 2=" + lost + "\nuser: text(b)\n"},
		{"call at the end", []model.Message{say(user, "a"), calls("1")}, "user: text(a)\nassistant: call(1)\ntool: 1=" + lost + "\n"},
		{"result without a call", []model.Message{say(user, "a"), results("9", "x"), say(user, "b")}, "user: text(a) text(b)\n"},
		{"result before its call", []model.Message{say(user, "a"), results("1", "x"), calls("1"), say(user, "b")}, "user: text(a)\nassistant: call(1)\ntool: 1=" + lost + "\nuser: text(b)\n"},
		{"two results for a call", []model.Message{say(user, "a"), calls("1"), results("1", "x", "1", "y")}, "user: text(a)\nassistant: call(1)\ntool: 1=x\n"},
		{"late result", []model.Message{say(user, "a"), calls("1"), say(user, "b"), results("1", "x")}, "user: text(a)\nassistant: call(1)\ntool: 1=x\nuser: text(b)\n"},
		{"same id in two turns", []model.Message{say(user, "a"), calls("1"), results("1", "x"), calls("1"), results("1", "y")}, "user: text(a)\nassistant: call(1)\ntool: 1=x\nassistant: call(1_2)\ntool: 1_2=y\n"},
		{"new ids that are taken", []model.Message{say(user, "a"), calls("1", "1_2"), results("1", "x", "1_2", "y"), calls("1"), results("1", "z")}, "user: text(a)\nassistant: call(1) call(1_2)\ntool: 1=x 1_2=y\nassistant: call(1_3)\ntool: 1_3=z\n"},
		{"nothing at all", []model.Message{{Role: model.RoleTool}, {Role: model.RoleAssistant}}, "user: text((no content))\n"},
		{"same id, first unanswered", []model.Message{say(user, "a"), calls("1"), calls("1"), results("1", "y")}, "user: text(a)\nassistant: call(1)\ntool: 1=" + lost + "\nassistant: call(1_2)\ntool: 1_2=y\n"},
		{"same id twice in a batch", []model.Message{say(user, "a"), calls("1", "1"), results("1", "x")}, "user: text(a)\nassistant: call(1)\ntool: 1=x\n"},
		{"empty result", []model.Message{say(user, "a"), calls("1"), results("1", " ")}, "user: text(a)\nassistant: call(1)\ntool: 1=(no output)\n"},
		{"text and image in a tool message", []model.Message{say(user, "a"), calls("1"), {Role: model.RoleTool, Blocks: []model.Block{
			{Kind: model.Text, Text: "note"},
			{Kind: model.ToolResult, CallID: "1", Text: "x"},
			{Kind: model.Image, Data: []byte("i")},
		}}}, "user: text(a)\nassistant: call(1)\ntool: 1=x\nuser: text(note) image\n"},
		{"only reasoning", []model.Message{say(user, "a"), {Role: assistant, Blocks: []model.Block{{Kind: model.Reasoning, Text: "hm"}}}, say(user, "b")}, "user: text(a) text(b)\n"},
		{"foreign blocks", []model.Message{
			{Role: user, Blocks: []model.Block{{Kind: model.ToolCall, CallID: "1"}, {Kind: model.Text, Text: "a"}, {Kind: "video"}}},
			{Role: assistant, Blocks: []model.Block{{Kind: model.Image}, {Kind: model.ToolResult, CallID: "1"}, {Kind: model.Text, Text: "b"}}},
			say(user, "c"),
		}, "user: text(a)\nassistant: text(b)\nuser: text(c)\n"},
		{"nothing", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := draw(tt.in)
			got := history.Normalize(tt.in)
			if diff := cmp.Diff(tt.want, draw(got)); diff != "" {
				t.Errorf("normalized (-want +got):\n%s", diff)
			}
			if after := draw(tt.in); after != before {
				t.Errorf("the conversation was changed:\n%s", after)
			}
			// What is normal stays as it is, or prompt caches would miss.
			if diff := cmp.Diff(draw(got), draw(history.Normalize(got))); diff != "" {
				t.Errorf("normalizing again changes the result:\n%s", diff)
			}
		})
	}
}

// Whatever a conversation looks like, its normal form keeps the rules.
func FuzzNormalize(f *testing.F) {
	f.Add([]byte("uacrtu"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Fuzz(func(t *testing.T, program []byte) {
		in := build(program)
		out := history.Normalize(in)
		if len(in) > 0 && len(out) == 0 && slices.ContainsFunc(in, func(m model.Message) bool { return m.Role == model.RoleUser }) {
			t.Fatal("a user message was lost")
		}
		ids := map[string]bool{}
		for i, m := range out {
			check(t, out, i, m)
			for _, b := range m.Blocks {
				if b.Kind == model.ToolCall && ids[b.CallID] {
					t.Fatalf("two calls have the id %q", b.CallID)
				}
				ids[b.CallID] = ids[b.CallID] || b.Kind == model.ToolCall
			}
		}
		if diff := cmp.Diff(draw(out), draw(history.Normalize(out))); diff != "" {
			t.Fatalf("normalizing again changes the result:\n%s", diff)
		}
	})
}

// build makes a conversation from bytes: one message each four.
func build(program []byte) []model.Message {
	var in []model.Message
	for len(program) >= 4 {
		role := []model.Role{model.RoleUser, model.RoleAssistant, model.RoleTool}[program[0]%3]
		m := model.Message{Role: role}
		for _, b := range program[1:4] {
			kinds := []model.BlockKind{model.Text, model.Reasoning, model.ToolCall, model.ToolResult, model.Image}
			m.Blocks = append(m.Blocks, model.Block{Kind: kinds[b%5], CallID: fmt.Sprint(b / 5 % 4), Text: strings.Repeat("x", int(b/20%2))})
		}
		in = append(in, m)
		program = program[4:]
	}
	return in
}

func check(t *testing.T, out []model.Message, i int, m model.Message) {
	t.Helper()
	var want []string
	if i > 0 {
		for _, b := range out[i-1].Blocks {
			if b.Kind == model.ToolCall {
				want = append(want, b.CallID)
			}
		}
	}
	var got []string
	for _, b := range m.Blocks {
		if b.Kind == model.ToolResult {
			got = append(got, b.CallID)
		}
	}
	switch {
	case i == 0 && m.Role != model.RoleUser:
		t.Fatalf("begins with role %s", m.Role)
	case i > 0 && m.Role == model.RoleUser && out[i-1].Role == model.RoleUser:
		t.Fatal("two user messages in a row")
	case i == len(out)-1 && m.Role == model.RoleAssistant:
		t.Fatal("ends with an assistant message")
	case !slices.Equal(want, got):
		t.Fatalf("message %d answers %v, the calls before it are %v", i, got, want)
	case len(m.Blocks) == 0:
		t.Fatalf("message %d is empty", i)
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"a":1}`, `{"a":1}`},
		{" {\n \"a\" : [1, 2] } ", `{"a":[1,2]}`},
		{``, `{}`},
		{`   `, `{}`},
		{`null`, `{}`},
		{`[1,2]`, `{}`},
		{`"hi"`, `{}`},
		{`{"path": "a.txt", }`, `{}`},
		{`{"n":1e999}`, `{}`},
		{`{"a":[{"n":-12e400}]}`, `{}`},
		{`{"n":` + strings.Repeat("9", 400) + `}`, `{}`},
		{`{"n":12345678901234567890.10,"e":1e-999,"s":"1e999 \" 1e999"}`, `{"n":12345678901234567890.10,"e":1e-999,"s":"1e999 \" 1e999"}`},
		{"{\"cmd\":\"a\x07b\v\"}", `{}`},
		{`{"path":"a.txt","content":"hel`, `{}`},
		{`{"a":1}{"b":2}`, `{}`},
		{`{"s":"\ud83d"}`, `{"s":"\ufffd"}`},
		{`{"s":"<&>"}`, `{"s":"<&>"}`},
		{"{\"s\":\"\xff\xfe\x80\"}", "{\"s\":\"\uFFFD\"}"},
	} {
		if got := string(history.Arguments(tt.in)); got != tt.want {
			t.Errorf("Arguments(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestCleanJSON(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`"plain"`, `"plain"`},
		{`"\ud83d\ude00"`, `"\ud83d\ude00"`},
		{`"\ud83d"`, `"\ufffd"`},
		{`"\ude00"`, `"\ufffd"`},
		{`"\ude00\ud83d"`, `"\ufffd\ufffd"`},
		{`"\ud83d\ud83d\ude00"`, `"\ufffd\ud83d\ude00"`},
		{`"\ud83dx"`, `"\ufffdx"`},
		{`"\ud83d\n"`, `"\ufffd\n"`},
		{`"\\ud83d"`, `"\\ud83d"`},
		{`"\\\ud83d"`, `"\\\ufffd"`},
		{`"\u00e9\uD83D"`, `"\u00e9\ufffd"`},
		{`"\uZZZZ"`, `"\uZZZZ"`},
		{`"\ud8`, `"\ud8`},
		{`\`, `\`},
		{"\"\xed\xa0\xbd\"", "\"\uFFFD\""},
	} {
		if got := string(history.CleanJSON([]byte(tt.in))); got != tt.want {
			t.Errorf("CleanJSON(%s) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func FuzzCleanJSON(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d\ude00\ud83d"}`))
	f.Add([]byte("\xff\\u"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		clean := history.CleanJSON(raw)
		if !utf8.Valid(clean) {
			t.Fatalf("CleanJSON(%q) = %q is not UTF-8", raw, clean)
		}
		if again := history.CleanJSON(clean); !bytes.Equal(again, clean) {
			t.Fatalf("cleaning again changes %q to %q", clean, again)
		}
		var before, after any
		if json.Unmarshal(raw, &before) != nil {
			return
		}
		if err := json.Unmarshal(clean, &after); err != nil {
			t.Fatalf("CleanJSON(%q) = %q: %v", raw, clean, err)
		}
	})
}

func TestSafe(t *testing.T) {
	for _, tt := range []struct {
		id     string
		strict bool
		keep   bool
	}{
		{"toolu_01A", true, true},
		{"functions.lookup:0", false, true},
		{"functions.lookup:0", true, false},
		{"", false, false},
		{strings.Repeat("x", 41), false, false},
	} {
		got := history.SafeID(tt.id, 40, tt.strict)
		if (got == tt.id) != tt.keep || got == "" || len(got) > 40 {
			t.Errorf("SafeID(%q, strict %v) = %q", tt.id, tt.strict, got)
		}
		if again := history.SafeID(tt.id, 40, tt.strict); again != got {
			t.Errorf("SafeID(%q) is not stable: %q, %q", tt.id, got, again)
		}
	}
}

func TestImageType(t *testing.T) {
	png := []byte("\x89PNG\x0D\x0A\x1A\x0A....")
	for _, tt := range []struct {
		name  string
		block model.Block
		want  string
	}{
		{"declared", model.Block{MediaType: "image/png", Data: png}, "image/png"},
		{"wrongly declared", model.Block{MediaType: "image/jpeg", Data: png}, "image/png"},
		{"undeclared", model.Block{Data: png}, "image/png"},
		{"data does not tell", model.Block{MediaType: "IMAGE/WEBP", Data: []byte("??")}, "image/webp"},
		{"unsupported", model.Block{MediaType: "image/svg+xml", Data: []byte("<svg/>")}, ""},
		{"no data", model.Block{MediaType: "image/png"}, ""},
	} {
		if got := history.ImageType(tt.block); got != tt.want {
			t.Errorf("%s: ImageType = %q, want %q", tt.name, got, tt.want)
		}
	}
}
