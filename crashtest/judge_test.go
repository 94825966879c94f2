package crashtest

import (
	"strings"
	"testing"
)

// talk is a conversation as it should be: calls, their results, an answer, and
// the next message.
func talk(t *testing.T) []message {
	t.Helper()
	m := newMind()
	ms := []message{{role: "user", text: body("t1", []string{"charge+ship"})}}
	for range 2 {
		if last := ms[len(ms)-1]; last.role == "tool" {
			m.results(last.results)
		} else if err := m.user(last.text); err != nil {
			t.Fatal(err)
		}
		a := m.answer()
		m.said(a)
		ms = append(ms, message{role: "assistant", answer: a})
		if len(a.calls) > 0 {
			batch := message{role: "tool"}
			for _, c := range a.calls {
				batch.results = append(batch.results, result{c.id, okText(c.id)})
			}
			ms = append(ms, batch)
		}
	}
	return append(ms, message{role: "user", text: body("t2", nil)})
}

// What a provider would refuse, and what is not what was said, is noticed.
func TestJudge(t *testing.T) {
	signal := interruptedSignal + ">\nInterrupted.\n</signal>\n\n"
	tests := []struct {
		name  string
		spoil func(ms []message) []message
		want  string // in the complaint; empty if there must be none
	}{
		{"as it should be", func(ms []message) []message { return ms }, ""},
		{"no messages", func([]message) []message { return nil }, "0 messages"},
		{"ends with the assistant's", func(ms []message) []message { return ms[:4] }, "do not go from"},
		{"a call without results", func(ms []message) []message { return append(ms[:2:2], ms[3:]...) }, "after the calls"},
		{"results without a call", func(ms []message) []message { return append(ms[:1:1], ms[2:]...) }, "after the calls"},
		{"too few results", func(ms []message) []message { ms[2].results = ms[2].results[:1]; return ms }, "1 results for 2 calls"},
		{"a result twice", func(ms []message) []message { ms[2].results[1] = ms[2].results[0]; return ms }, "is of call"},
		{"an empty result", func(ms []message) []message { ms[2].results[0].text = "\n"; return ms }, "is empty"},
		{"two of the user's", func(ms []message) []message { return append(ms, ms[4]) }, "both the user's"},
		{"an empty user message", func(ms []message) []message { ms[4].text = " "; return ms }, "is empty"},
		{"an empty answer", func(ms []message) []message { ms[3].answer = answer{}; return ms }, "is empty"},
		{"a call id twice", func(ms []message) []message { ms[3].calls = ms[1].calls; return append(ms[:4], ms[2]) }, "not unique"},
		{"a message shown twice", func(ms []message) []message { ms[4].text = ms[0].text; return ms }, "shown twice"},
		{"another text", func(ms []message) []message { ms[3].answer.text += "!"; return ms }, "the answer was"},
		{"other arguments", func(ms []message) []message { ms[1].calls[0].args = "{}"; return ms }, "the calls were"},
		{"another question", func(ms []message) []message { ms[0].text += "!"; return ms }, "message 1: the"},
		{"no thinking block", func(ms []message) []message { drop(ms).thought = nil; return ms }, "the thinking block was"},
		{"another signature", func(ms []message) []message { drop(ms).thought = &thought{signature: "x"}; return ms }, "the thinking block was"},
		{"a cut answer", func(ms []message) []message {
			ms[3].answer = answer{text: ms[3].answer.text[:6]}
			ms[4].text = signal + ms[4].text
			return ms
		}, ""},
		{"a cut answer that nobody cut", func(ms []message) []message {
			ms[3].answer = answer{text: ms[3].answer.text[:6]}
			return ms
		}, "the answer was"},
		{"more than text in a cut answer", func(ms []message) []message {
			ms[3].thought = &thought{text: "t", signature: "s"}
			ms[4].text = signal + ms[4].text
			return ms
		}, "more than text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := judge(tt.spoil(talk(t)), true)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// drop returns an answer that has a thinking block.
func drop(ms []message) *answer {
	for i := range ms {
		if ms[i].thought != nil {
			return &ms[i].answer
		}
	}
	panic("no answer has a thinking block")
}

func TestDialects(t *testing.T) {
	const (
		openAIHead = `{"stream":true,"model":"gpt-4.1","tools":[{"type":"function"},{"type":"function"},{"type":"function"}],"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},`
		claudeHead = `{"stream":true,"model":"claude-opus-5-5","max_tokens":9,"tools":[{"name":"a"},{"name":"b"},{"name":"c"}],"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},`
	)
	tests := []struct {
		name    string
		dialect dialect
		rest    string // after the first messages
		want    string // in the error; empty if there must be none
	}{
		{"openai: calls", openAI{}, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}`, ""},
		{"openai: arguments that are no object", openAI{}, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"[]"}}]}`, "with an object"},
		{"openai: a bad name", openAI{}, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f f","arguments":"{}"}}]}`, "with an object"},
		{"openai: no content", openAI{}, `{"role":"assistant","content":null}`, "content null"},
		{"openai: empty content", openAI{}, `{"role":"user","content":""}`, "content"},
		{"openai: a result of nothing", openAI{}, `{"role":"tool","content":"r"}`, "call id"},
		{"openai: an unknown member", openAI{}, `{"role":"user","content":"u","cache_control":{}}`, "cache_control"},
		{"openai: another role", openAI{}, `{"role":"system","content":"s"}`, "role"},
		{"anthropic: thinking and calls", claude{}, `{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"r"},{"type":"text","text":"u"}]}`, ""},
		{"anthropic: two of the user's", claude{}, `{"role":"user","content":[{"type":"text","text":"u"}]}`, "want the assistant's"},
		{"anthropic: no content", claude{}, `{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"user","content":[]}`, "empty"},
		{"anthropic: empty text", claude{}, `{"role":"assistant","content":[{"type":"text","text":""}]}`, "empty"},
		{"anthropic: input that is no object", claude{}, `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":"{}"}]}`, "in the wrong place"},
		{"anthropic: thinking last", claude{}, `{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"t","signature":"s"}]}`, "in the wrong place"},
		{"anthropic: thinking without a signature", claude{}, `{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a"}]}`, "in the wrong place"},
		{"anthropic: results after text", claude{}, `{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"u"},{"type":"tool_result","tool_use_id":"c","content":"r"}]}`, "in the wrong place"},
		{"anthropic: an unknown member", claude{}, `{"role":"assistant","content":[{"type":"text","text":"a","extra":1}]}`, "extra"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			head := claudeHead
			if tt.dialect == (openAI{}) {
				head = openAIHead
			}
			_, err := tt.dialect.parse([]byte(head + tt.rest + "]}"))
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
