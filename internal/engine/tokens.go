package engine

import (
	"unicode"
	"unicode/utf8"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// What the provider has counted is used where it can be. The rest is estimated,
// rather too high than too low, without knowing the model's vocabulary: what a
// byte-pair encoding makes of a text depends mostly on its script, and on
// whether it consists of words at all.
const (
	messageTokens = 6    // the frame of a message, and of each block beside a text
	toolTokens    = 16   // the frame of a tool's definition
	imageTokens   = 1600 // the most that an image counts with most providers
)

// textTokens estimates the tokens of a text. A word is a token for each four
// letters that it has begun; where letters change their case or give way to
// digits, another word begins, so that keys and base64 count what they do.
// Capitals in a row, digits and punctuation are a token for two, and a space
// before a word is nothing. Letters of other alphabets are two tokens for three or a little
// more than one each, Chinese, Japanese and Korean five tokens for four, and all
// else is about a token for two bytes.
func textTokens(s string) int {
	var c counter
	for i := 0; i < len(s); {
		if b := s[i]; b < utf8.RuneSelf {
			c.ascii(b)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		c.other(r, size)
		i += size
	}
	c.end()
	return (c.twelfths + 11) / 12
}

// A counter adds up the tokens of a text, in twelfths.
type counter struct {
	twelfths int
	kind     charKind // of the characters that belong together
	n        int      // how many of them there are so far
}

// charKind is a kind of ASCII character.
type charKind uint8

const (
	space charKind = iota
	lower
	upper
	digit
	mark
)

// ascii adds a character.
func (c *counter) ascii(b byte) {
	kind, n := mark, 1
	switch {
	case 'a' <= b && b <= 'z':
		kind = lower
	case 'A' <= b && b <= 'Z':
		kind = upper
	case '0' <= b && b <= '9':
		kind = digit
	case b == ' ':
		kind = space
	case b == '\n', b == '\t', b == '\r':
		kind, n = space, 2
	}
	if kind != c.kind {
		if c.kind == upper && kind == lower && c.n == 1 {
			c.kind = lower // a capital
		} else {
			c.end()
			c.kind = kind
		}
	}
	c.n += n
}

// end counts the characters that belong together.
func (c *counter) end() {
	switch {
	case c.n == 0, c.kind == space && c.n == 1: // which goes with the word behind it
	case c.kind == space:
		c.twelfths += 12 + c.n
	case c.kind == lower:
		c.twelfths += 12 * ((c.n + 3) / 4)
	default:
		c.twelfths += 12 * ((c.n + 1) / 2)
	}
	c.n = 0
}

// other adds a character that is not ASCII.
func (c *counter) other(r rune, size int) {
	c.end()
	switch {
	case unicode.In(r, unicode.Latin, unicode.Cyrillic):
		c.twelfths += 8
	case size == 2 && unicode.IsLetter(r), unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
		c.twelfths += 15
	default:
		c.twelfths += 7 * size
	}
}

// imageWeight estimates the tokens of an image by the bytes of its file: a small
// file can be no large image unless there is next to nothing on it.
func imageWeight(size int) int { return min(imageTokens, 100+size/4) }

// messageWeight estimates the tokens of a message in the model's form, but for
// its images.
func messageWeight(m model.Message) int {
	n := messageTokens
	for _, b := range m.Blocks {
		n += blockWeight(b)
	}
	return n
}

func blockWeight(b model.Block) int {
	switch b.Kind {
	case model.Image: // counted apart, by its size
		return 0
	case model.Text:
		return textTokens(b.Text)
	case model.Reasoning:
		// What cannot be read is about as long as what was thought.
		return messageTokens + max(textTokens(b.Text), len(b.Opaque)/4)
	}
	return messageTokens + textTokens(b.Text) + textTokens(b.Name) + textTokens(b.Arguments) + textTokens(b.CallID)
}

// fixedTokens estimates what a request holds beside the conversation: the
// instructions, the catalog and the tools.
func fixedTokens(p *Plan, catalog string) int {
	n := messageTokens + textTokens(p.Instructions) + textTokens(catalog)
	for i := range p.Tools {
		t := &p.Tools[i].Spec
		n += toolTokens + textTokens(t.Name) + textTokens(t.Description) + textTokens(string(t.Schema))
	}
	return n
}

// A budget is how many tokens there are for what.
type budget struct {
	window  int // what the model takes; 0 if that is not known
	reserve int // what is kept free of it, for the answer
	keep    int // what stays as it is in a compaction
	off     bool
}

// The defaults of a compaction, those of upstream, and what keeps them sensible
// for small models.
const (
	defaultReserve = 20_000
	defaultKeep    = 8_000
	smallReserve   = 1_024
)

// budgetOf reads the settings for a model.
func budgetOf(c *journal.Compaction, info model.Info) budget {
	if c == nil {
		c = &journal.Compaction{}
	}
	b := budget{window: info.ContextWindow, keep: c.KeepRecentTokens, reserve: c.ReserveTokens, off: c.Off}
	if b.keep == 0 {
		b.keep = defaultKeep
	}
	if b.reserve == 0 || b.window > 0 && b.reserve >= b.window {
		b.reserve = defaultReserve
		if info.MaxOutput > 0 {
			b.reserve = min(b.reserve, info.MaxOutput)
		}
		if b.window > 0 && 2*b.reserve >= b.window {
			b.reserve = max(min(smallReserve, b.window/2), b.window/3)
		}
	}
	return b
}

// limit is how large a request may be, 0 if that is not known.
func (b budget) limit() int {
	if b.window == 0 {
		return 0
	}
	return b.window - b.reserve
}

// tokens is how large the next request is: what the provider has counted last,
// and an estimate of what has come since; an estimate of it all if nothing was
// counted since the context last changed its beginning.
func (d *driver) tokens() int {
	d.extend()
	fixed := d.fixed()
	c := d.state.Counted
	if c.Tokens == 0 || c.Items > len(d.items) {
		return fixed + d.weight
	}
	n := c.Tokens
	if d.fixedThen > 0 {
		n += max(fixed-d.fixedThen, 0)
	}
	for _, it := range d.items[c.Items:] {
		n += it.weight
	}
	return n
}

// fixed is fixedTokens of the plan. It is computed anew only when what the model
// was told has changed.
func (d *driver) fixed() int {
	if told := d.state.Told; d.fixedOf == nil || d.fixedOf != told {
		baseline := d.state.Baseline
		if baseline == nil {
			baseline = d.plan.declared()
		}
		d.fixedOf, d.fixedNow = told, fixedTokens(d.plan, catalog(baseline))
	}
	return d.fixedNow
}
