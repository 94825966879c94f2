package flue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/schema"
	"github.com/flue-go/flue/model"
)

// readOutputInput is what the model asks of a result that was kept.
type readOutputInput struct {
	ID     string `json:"id" jsonschema:"the id of the output, as the result names it, such as output_0123456789abcdef"`
	From   int    `json:"from,omitempty" jsonschema:"the first line to read, counted from 1"`
	Lines  int    `json:"lines,omitempty" jsonschema:"how many lines to read at most; without it, as many as fit"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first byte to read instead of a line, counted from 0: for lines that are too long"`
	Find   string `json:"find,omitempty" jsonschema:"read only the lines that contain this text, from the given line on; upper and lower case count"`
}

// Bounds on what one call of the tool returns.
const (
	maxReading = engine.MaxShown * 3 / 4 // bytes of the output
	maxFound   = 100                     // lines with the text that was looked for
	maxExcerpt = 400                     // bytes of such a line
)

// readOutputTool is readOutput, which is always the same.
var readOutputTool = sync.OnceValue(readOutput)

// readOutput returns the tool with which a model reads a result that was too long
// to be shown whole. It is declared by the framework, in the renders of an
// instance that has such a result.
func readOutput() engine.Tool {
	input, err := schema.Arguments[readOutputInput](nil)
	if err != nil {
		panic("flue: the input of " + engine.ReadOutput + ": " + err.Error())
	}
	return engine.Tool{
		Spec: model.Tool{
			Name: engine.ReadOutput, Schema: input.JSON(),
			Description: "Read part of a tool's result that was too long to be shown whole. Its head and tail were shown with the id under which all of it is kept.",
		},
		Shown: -1, // it keeps its own bounds
		Again: true,
		Run: func(ctx context.Context, w *engine.Work, arguments string) engine.Result {
			var in readOutputInput
			if _, err := decodeArguments(w, input, arguments, &in); err != nil {
				return failure(&ToolInputError{Tool: engine.ReadOutput, Err: err})
			}
			text, err := w.Kept(ctx, in.ID)
			if errors.Is(err, engine.ErrNotKept) {
				return failure(fmt.Errorf("there is no output %q in this conversation; use the id that a result names", in.ID))
			}
			if err != nil {
				w.Log.Error("reading an output that was kept", "error", err)
				return failure(errors.New("the output cannot be read at the moment"))
			}
			return engine.Result{Content: in.read(text)}
		},
	}
}

// read returns what the model asks for.
func (in *readOutputInput) read(text string) string {
	switch {
	case in.Find != "":
		return in.find(text)
	case in.Offset > 0:
		return in.bytes(text)
	}
	return in.lines(text)
}

// lines returns whole lines, or the beginning of one that is too long.
func (in *readOutputInput) lines(text string) string {
	from := max(in.From, 1)
	total := strings.Count(text, "\n") + 1
	if strings.HasSuffix(text, "\n") {
		total--
	}
	if from > total {
		return fmt.Sprintf("[The output has %d lines.]", total)
	}
	var b strings.Builder
	last, at := from-1, 0
	cut := ""
	number := 0
	for line := range strings.Lines(text) {
		if number++; number >= from {
			if in.Lines > 0 && number-from >= in.Lines {
				break
			}
			if b.Len()+len(line) > maxReading {
				if b.Len() == 0 {
					part := whole(line, maxReading)
					b.WriteString(part)
					last = number
					cut = fmt.Sprintf(" Line %d is longer: go on with offset %d.", number, at+len(part))
				}
				break
			}
			b.WriteString(line)
			last = number
		}
		at += len(line)
	}
	return fmt.Sprintf("[Lines %d to %d of %d.%s]\n%s", from, last, total, cut, b.String())
}

// bytes returns a part of the text that begins at a byte.
func (in *readOutputInput) bytes(text string) string {
	if in.Offset >= len(text) {
		return fmt.Sprintf("[The output has %d bytes.]", len(text))
	}
	from := in.Offset
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	part := whole(text[from:], maxReading)
	return fmt.Sprintf("[Bytes %d to %d of %d.]\n%s", from, from+len(part), len(text), part)
}

// find returns the lines that contain a text, each with its number and the offset
// of what is shown of it.
func (in *readOutputInput) find(text string) string {
	var b strings.Builder
	found, number, at := 0, 0, 0
	more := ""
	for line := range strings.Lines(text) {
		number++
		i := strings.Index(line, in.Find)
		if i < 0 || number < in.From {
			at += len(line)
			continue
		}
		if found == maxFound || b.Len() > maxReading-2*maxExcerpt {
			more = fmt.Sprintf(" There are more: go on from line %d.", number)
			break
		}
		found++
		part, from := excerpt(strings.TrimRight(line, "\r\n"), i)
		fmt.Fprintf(&b, "%d (offset %d): %s\n", number, at+from, part)
		at += len(line)
	}
	if found == 0 {
		return fmt.Sprintf("[No line contains %q.]", clip(in.Find, maxExcerpt))
	}
	return fmt.Sprintf("[%d lines contain the text.%s]\n%s", found, more, b.String())
}

// excerpt is a line, or as much of it around the byte at as one wants to see, and
// where that begins.
func excerpt(line string, at int) (part string, from int) {
	if len(line) <= maxExcerpt {
		return line, 0
	}
	from = min(max(at-maxExcerpt/4, 0), len(line))
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	part = whole(line[from:], maxExcerpt)
	end := from + len(part)
	if from > 0 {
		part = "…" + part
	}
	if end < len(line) {
		part += "…"
	}
	return part, from
}

// whole returns at most limit bytes of the beginning of s, and no part of a
// character.
func whole(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
