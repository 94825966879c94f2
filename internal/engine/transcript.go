package engine

import (
	"fmt"
	"strings"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// For a summary the conversation is written out as text: a request with the
// messages themselves would hold calls without tools, which providers refuse, and
// would ask to be answered. All that was said is escaped, so that none of it can
// pass for somebody else's words.

// How much of what is seldom worth more goes into a transcript, in tokens.
const (
	longestResult    = 600
	longestArguments = 600
	longestThought   = 300
)

// transcript writes items of a context out.
func transcript(items []fold.Item) []string {
	var out []string
	for _, it := range items {
		switch {
		case it.Entry != nil:
			out = append(out, entryText(it.Entry.Message))
		case it.Turn != nil:
			out = append(out, turnTexts(it.Turn)...)
		default:
			for _, o := range it.Outcomes {
				name := "result"
				if o.Failed {
					name = "failure"
				}
				text := element(name, "tool", o.Tool, shortened(o.Content, longestResult))
				if o.Kept != nil {
					text += element("kept", "id", o.Kept.ID, "all of the result")
				}
				out = append(out, text)
			}
		}
	}
	return out
}

func entryText(m journal.Message) string {
	text := signalText(m)
	if m.Kind == journal.User {
		text = element("user", "", "", m.Body)
	}
	for _, a := range m.Attachments {
		text += "\n" + element("attachment", "type", a.MediaType, a.Filename)
	}
	return text
}

func turnTexts(t *journal.TurnDone) []string {
	var out []string
	for _, b := range t.Blocks {
		switch b.Kind {
		case journal.Text:
			out = append(out, element("assistant", "", "", b.Text))
		case journal.Reasoning:
			if b.Text != "" {
				out = append(out, element("thought", "", "", shortened(b.Text, longestThought)))
			}
		case journal.ToolCall:
			out = append(out, element("call", "tool", b.Name, shortened(b.Arguments, longestArguments)))
		}
	}
	return out
}

func shortened(text string, tokens int) string {
	return cutMiddle(text, tokens, "[%d bytes are left out here.]")
}

// element is text in an XML element, with an attribute if it has a name.
func element(name, attribute, value, text string) string {
	open := name
	if attribute != "" {
		open += fmt.Sprintf(` %s="%s"`, attribute, escapeAttribute.Replace(value))
	}
	return "<" + open + ">" + escapeText.Replace(strings.ToValidUTF8(text, "\uFFFD")) + "</" + name + ">"
}

// portions packs texts into portions of at most the tokens each, and at most a
// number of them. A text that is too long for one is shortened; if there are too
// many, the last portion holds the rest, shortened.
func portions(texts []string, tokens, most int) []string {
	var out []string
	size := 0
	for i, text := range texts {
		if n := textTokens(text) + 1; len(out) == 0 || size+n > tokens {
			if len(out) == most {
				rest := strings.Join(append([]string{out[most-1]}, texts[i:]...), "\n")
				out[most-1] = shortened(rest, tokens)
				return out
			}
			out, size = append(out, shortened(text, tokens)), min(n, tokens)
			continue
		} else {
			size += n
		}
		out[len(out)-1] += "\n" + text
	}
	return out
}
