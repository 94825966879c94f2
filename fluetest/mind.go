package fluetest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// A mind is the scripted model as all runs know it. It notices when the script
// does not answer the same conversation in the same way.
type mind struct {
	reply func(*model.Request) script.Turn

	mu      sync.Mutex
	answers map[[32]byte]string
}

// A voice is the mind as one process hears it.
type voice struct {
	*mind
	life *life
}

// Stream implements [model.Provider].
func (v voice) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	run := v.life.run
	if v.life.isDead() { // nobody hears it
		return script.New(script.Say("…")).Stream(ctx, req)
	}
	v.life.asked(req)
	if run.probing {
		return script.New(script.Say("Still here.")).Stream(ctx, req)
	}
	turn := script.Say("ok")
	if v.reply != nil {
		turn = v.reply(req)
	}
	stream := script.New(turn).Stream(ctx, req)
	return func(yield func(model.Event, error) bool) {
		var said []model.Block
		for ev, err := range stream {
			switch ev := ev.(type) {
			case model.BlockDone:
				said = append(said, ev.Block)
			case model.Done:
				if !v.life.isDead() {
					run.answered(req, v.compare(req, inWords(said)), inWords(said))
				}
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// compare returns what the script has answered to the same conversation before, if
// that was something else.
func (m *mind) compare(req *model.Request, answer string) (before string) {
	seen, err := json.Marshal([]any{req.Model, req.System, req.Messages, req.Tools})
	if err != nil {
		return "" // what has no JSON form is not compared
	}
	key := sha256.Sum256(seen)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers[key] == "" {
		m.answers[key] = answer
	}
	if m.answers[key] == answer {
		return ""
	}
	return m.answers[key]
}

// inWords is an answer as a report shows it.
func inWords(blocks []model.Block) string {
	var words []string
	for _, b := range blocks {
		switch b.Kind {
		case model.ToolCall:
			words = append(words, "calls "+b.Name+" "+b.Arguments)
		case model.Text:
			words = append(words, fmt.Sprintf("says %q", clip(b.Text, 200)))
		}
	}
	if len(words) == 0 {
		return "says nothing"
	}
	return strings.Join(words, ", ")
}

// wellFormed checks what every provider demands of a conversation: each call is
// answered once, by the very next message and in order.
func wellFormed(messages []model.Message) error {
	if len(messages) == 0 {
		return fmt.Errorf("it has no messages")
	}
	var open []string
	for i, m := range messages {
		results := ids(m, model.ToolResult)
		if !slices.Equal(open, results) {
			return fmt.Errorf("message %d answers the calls %q, and those before it are %q", i, results, open)
		}
		open = ids(m, model.ToolCall)
	}
	if last := messages[len(messages)-1]; last.Role == model.RoleAssistant {
		return fmt.Errorf("it ends with the model's own message")
	}
	return nil
}

func ids(m model.Message, kind model.BlockKind) []string {
	var out []string
	for _, b := range m.Blocks {
		if b.Kind == kind {
			out = append(out, b.CallID)
		}
	}
	return out
}

// A word is something that the model was told which it would not have been told
// undisturbed.
type word struct {
	text string
	of   string // the tool, if it is about a call
}

func (w word) String() string {
	if w.of == "" {
		return w.text
	}
	return w.of + ": " + w.text
}

// saysInterrupted reports whether a block says of a call what the runtime says of one
// that was interrupted.
func saysInterrupted(b model.Block) bool {
	return b.Kind == model.ToolResult && b.IsError && (strings.Contains(b.Text, `"type":"interrupted"`) || strings.Contains(b.Text, `"type":"not_run"`))
}

// heard is a word, and the call whose result it is, if it is one.
type heard struct {
	word
	call string
}

// told returns what a conversation says of interruptions, also in results that may be
// the tools' own.
func told(req *model.Request) []heard {
	var out []heard
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			switch {
			case saysInterrupted(b):
				out = append(out, heard{word{clip(b.Text, 200), toolOf(req, b)}, b.CallID})
			case m.Role == model.RoleUser && strings.HasPrefix(b.Text, "<signal"):
				if w, ok := interruption(b.Text); ok {
					out = append(out, heard{word: w})
				}
			}
		}
	}
	return out
}

// interruption returns what a signal says, if it is the runtime's word on something
// that was interrupted.
func interruption(signal string) (word, bool) {
	head, body, _ := strings.Cut(signal, ">")
	body = clip(strings.TrimSuffix(body, "</signal>"), 200)
	switch attribute(head, "type") {
	case "stream_interrupted", "stream_continued":
		return word{text: body}, true
	case "approval_result":
		// The id is another one in every run.
		body = strings.ReplaceAll(body, attribute(head, "approvalId")+" ", "")
		return word{text: body, of: attribute(head, "tool")}, attribute(head, "status") == "unknown"
	}
	return word{}, false
}

// attribute returns the value of an attribute in the head of an element.
func attribute(head, name string) string {
	_, rest, _ := strings.Cut(head, " "+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// toolOf returns the tool of a result's call.
func toolOf(req *model.Request, result model.Block) string {
	if result.Name != "" {
		return result.Name
	}
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			if b.Kind == model.ToolCall && b.CallID == result.CallID {
				return b.Name
			}
		}
	}
	return "a tool"
}
