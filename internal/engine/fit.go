package engine

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// A context that does not fit the model's window although it was compacted is
// sent in part. What is sent is a function of the context and of how often it has
// been refused; the journal keeps the whole.

// A fitted is what is sent of a view.
type fitted struct {
	messages []model.Message
	images   []imageRef
	weight   int
	fitted   bool // it is less than the view
}

// maxOverflows bounds the requests in a row that are refused as too large. Each
// one is half as large as the one before.
const maxOverflows = 8

// fitting returns what the next request holds of the conversation, and how large
// it will be as a whole. It fails if the model has refused what cannot be made
// smaller.
func (d *driver) fitting(b budget, specifier string) (fitted, int, error) {
	tokens, fixed := d.tokens(), d.fixed()
	resp := &d.state.Response
	refused := resp.Overflows
	if resp.Relieved {
		refused-- // the compaction was the answer to the first
	}
	v := d.fit(d.mostAfter(refused, tokens, b))
	if refused > 0 {
		before := d.fit(d.mostAfter(refused-1, tokens, b))
		if v.weight >= before.weight || refused > maxOverflows {
			return fitted{}, 0, tooLarge(specifier, b.window, v.weight+fixed, fixed)
		}
	}
	if v.fitted {
		return v, v.weight + fixed, nil
	}
	return v, tokens, nil
}

// mostAfter is the largest weight that a view may have when requests were refused
// so many times, or -1 if that is not known.
func (d *driver) mostAfter(refused, tokens int, b budget) int {
	most := -1
	if limit := b.limit(); limit > 0 && !b.off && tokens > limit {
		// The bound is for what a provider counts, and weights are estimates.
		all := d.weight + d.fixed()
		most = max(int(int64(limit)*int64(all)/int64(tokens))-d.fixed(), 0)
	}
	if refused > 0 {
		half := max((d.weight+d.fixed())>>refused-d.fixed(), 0)
		if most < 0 || half < most {
			most = half
		}
	}
	return most
}

// fit returns the view with at most the given weight, if it can be had: long
// results of tools are shortened, then images are left out, then whole turns, the
// oldest first, then the summary is shortened, and then the arguments of calls are
// left out. A negative weight means that
// all of it fits.
func (d *driver) fit(most int) fitted {
	v := fitted{messages: d.messages, images: d.images, weight: d.weight}
	if most < 0 || v.weight <= most {
		return v
	}
	v.messages, v.images, v.fitted = slices.Clone(v.messages), slices.Clone(v.images), true
	for _, step := range []func(int){v.shorten, v.blank, func(most int) { d.leaveOut(&v, most) }, func(most int) { d.abridge(&v, most) }, v.stub} {
		if step(most); v.weight <= most {
			break
		}
	}
	return v
}

// leastResult is how far a result is shortened, in tokens.
const leastResult = 256

// shorten cuts the middle out of long results. The bound is the same for all, and
// one of few, so that what is sent changes seldom from one turn to the next.
func (v *fitted) shorten(most int) {
	bound := leastResult
	for bound < most/2 {
		bound *= 2
	}
	for ; bound > leastResult && v.weight-v.excess(bound) > most; bound /= 2 { //nolint:revive // the condition is all
	}
	for i := range v.messages {
		m := &v.messages[i]
		if m.Role != model.RoleTool {
			continue
		}
		before := messageWeight(*m)
		m.Blocks = slices.Clone(m.Blocks)
		for j := range m.Blocks {
			m.Blocks[j].Text = cutMiddle(m.Blocks[j].Text, bound, leftOutResult)
		}
		v.weight -= before - messageWeight(*m)
	}
}

// excess is how many tokens of results are beyond the bound.
func (v *fitted) excess(bound int) int {
	n := 0
	for _, m := range v.messages {
		if m.Role != model.RoleTool {
			continue
		}
		for _, b := range m.Blocks {
			n += max(textTokens(b.Text)-bound, 0)
		}
	}
	return n
}

const leftOutResult = "[%d bytes are left out here: they do not fit the context window. Ask for less at a time if you need them.]"

// cutMiddle shortens a text to about the tokens: its beginning, two parts in
// three, and its end, with a note between them that says how many bytes are
// missing.
func cutMiddle(text string, tokens int, note string) string {
	total := textTokens(text)
	if total <= tokens {
		return text
	}
	note = "\n\n" + note + "\n\n"
	room := max(tokens-textTokens(note)-4, 1)
	for {
		keep := int(int64(len(text)) * int64(room) / int64(total))
		head, tail := backTo(text, keep*2/3), onTo(text, len(text)-keep/3)
		short := text[:head] + fmt.Sprintf(note, tail-head) + text[tail:]
		if room == 1 || textTokens(short) <= tokens {
			return short
		}
		room = room * 7 / 8
	}
}

// backTo and onTo return where a character begins at or before, or at or after,
// the n-th byte.
func backTo(s string, n int) int {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

func onTo(s string, n int) int {
	for n < len(s) && !utf8.RuneStart(s[n]) {
		n++
	}
	return n
}

const leftOutImage = "[An image was attached here. It is left out: it does not fit the context window.]"

// blank puts a note in the place of images, the oldest first.
func (v *fitted) blank(most int) {
	note := model.Block{Kind: model.Text, Text: leftOutImage}
	for len(v.images) > 0 && v.weight > most {
		ref := v.images[0]
		m := &v.messages[ref.message]
		m.Blocks = slices.Clone(m.Blocks)
		m.Blocks[ref.block] = note
		v.weight -= ref.weight - blockWeight(note)
		v.images = v.images[1:]
	}
}

const leftOutTurns = "[Older messages are left out here: they do not fit the context window.]"

// leaveOut drops groups of messages, the oldest first, but for the
// summary, what is being answered, calls that wait, and the latest one. A note
// stands for them.
func (d *driver) leaveOut(v *fitted, most int) {
	groups := d.groups()
	note := model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: leftOutTurns}}}
	drop := make(map[int]bool) // messages
	for _, g := range groups[:max(len(groups)-1, 0)] {
		if v.weight+messageWeight(note) <= most && len(drop) > 0 {
			break
		}
		if it := d.state.Context[g.from]; it.Summary != nil || d.beingAnswered(it) || d.waits(it) {
			continue
		}
		for i := d.messageAt(g.from); i < d.messageAt(g.to); i++ {
			drop[i] = true
			v.weight -= messageWeight(v.messages[i])
		}
		v.weight -= v.imagesIn(d.messageAt(g.from), d.messageAt(g.to))
	}
	if len(drop) == 0 {
		return
	}
	v.weight += messageWeight(note)
	var messages []model.Message
	place := make(map[int]int) // where a message was, and is
	for i, m := range v.messages {
		if drop[i] {
			if !slices.ContainsFunc(messages, isNote) {
				messages = append(messages, note)
			}
			continue
		}
		place[i] = len(messages)
		messages = append(messages, m)
	}
	var images []imageRef
	for _, ref := range v.images {
		if drop[ref.message] {
			continue
		}
		ref.message = place[ref.message]
		images = append(images, ref)
	}
	v.messages, v.images = messages, images
}

// abridge shortens the summary.
func (d *driver) abridge(v *fitted, most int) {
	r := d.state.Compaction()
	if r == nil || len(v.messages) == 0 {
		return
	}
	shorter := *r
	shorter.Summary = cutMiddle(r.Summary, max(textTokens(r.Summary)-(v.weight-most), leastSummary/4), leftOutSummary)
	m := v.messages[0] // a summary is never left out
	m.Blocks = []model.Block{{Kind: model.Text, Text: summaryText(&shorter)}}
	v.weight += messageWeight(m) - messageWeight(v.messages[0])
	v.messages[0] = m
}

// leastArguments is how long arguments are at least that are left out, in tokens.
const leastArguments = 128

// stub puts a note in the place of the arguments of calls, the longest first. The
// journal has them, and so has a call that waits when it is run.
func (v *fitted) stub(most int) {
	for v.weight > most {
		at, in, longest := -1, -1, leastArguments
		for i, m := range v.messages {
			for j, b := range m.Blocks {
				if n := textTokens(b.Arguments); b.Kind == model.ToolCall && n > longest {
					at, in, longest = i, j, n
				}
			}
		}
		if at < 0 {
			return
		}
		m := &v.messages[at]
		before := messageWeight(*m)
		m.Blocks = slices.Clone(m.Blocks)
		m.Blocks[in].Arguments = fmt.Sprintf(`{"left_out":"%d bytes of arguments, which do not fit the context window"}`, len(m.Blocks[in].Arguments))
		v.weight -= before - messageWeight(*m)
	}
}

const leftOutSummary = "[%d bytes of the summary are left out here.]"

// imagesIn is the weight of the images of the messages in a range.
func (v *fitted) imagesIn(from, to int) int {
	n := 0
	for _, ref := range v.images {
		if from <= ref.message && ref.message < to {
			n += ref.weight
		}
	}
	return n
}

func isNote(m model.Message) bool {
	return m.Role == model.RoleUser && len(m.Blocks) == 1 && m.Blocks[0].Text == leftOutTurns
}

// messageAt is where the message of an item of the context is in the view.
func (d *driver) messageAt(item int) int {
	if item < len(d.items) {
		return d.items[item].at
	}
	return len(d.messages)
}

// A group is what must not be parted: a message, or a turn with the outcomes of
// its calls, or with the notices that it was cut.
type group struct {
	from, to int // items of the context
	weight   int
}

// groups returns the groups of the context, which must be in the view.
func (d *driver) groups() []group {
	var groups []group
	for i, it := range d.state.Context {
		if i == 0 || !it.Follows() {
			groups = append(groups, group{from: i})
		}
		g := &groups[len(groups)-1]
		g.to = i + 1
		g.weight += d.items[i].weight
	}
	return groups
}

// beingAnswered reports whether the item is a message that the response under way
// is to answer, or a signal that its callbacks have added.
func (d *driver) beingAnswered(it fold.Item) bool {
	e := it.Entry
	if e == nil || e.Purpose != journal.Input && e.Purpose != journal.Appended || d.state.Active == nil {
		return false
	}
	if e.Submission == d.state.Active.Submission {
		return true
	}
	return slices.ContainsFunc(d.state.Joined, func(s *fold.Submission) bool { return s.Submission == e.Submission })
}
