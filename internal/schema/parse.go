package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of a document.
const (
	MaxDocument = 8 << 20 // bytes
	MaxDepth    = 200     // levels of nested arrays and objects
	MaxValues   = 1 << 18 // values, counting every element and member
)

const (
	// maxLiteral and maxExponent bound a number, so that computing with it
	// exactly is cheap. A float64 ends at 1e308.
	maxLiteral  = 1000
	maxExponent = 1000

	// maxBroken bounds the places of broken Unicode that are reported.
	maxBroken = 20
)

// document is a parsed JSON text.
type document struct {
	root    *value
	text    string   // the JSON text without surrounding white space
	broken  []string // where Unicode was replaced, the first few
	changed bool     // root says something else than text, byte for byte
}

// bytes returns the JSON of the document, the sender's own bytes if nothing
// was changed.
func (d *document) bytes() []byte {
	if !d.changed {
		return []byte(d.text)
	}
	return d.root.append(make([]byte, 0, len(d.text)))
}

// parse reads exactly one JSON value. It accepts what RFC 8259 allows, with two
// differences: a name may occur once in an object, and Unicode that is not
// valid (raw bytes or half a surrogate pair) becomes U+FFFD instead of an error,
// because a model that emits it cannot know what is wrong.
func parse(in string) (*document, error) { return parseBelow(in, 0) }

// parseBelow parses a document that will stand at some depth of another one.
func parseBelow(in string, depth int) (*document, error) {
	if len(in) > MaxDocument {
		return nil, &SyntaxError{Line: 1, Column: 1, Message: fmt.Sprintf("%d bytes of JSON, the limit is %d", len(in), MaxDocument)}
	}
	p := &parser{in: in, depth: depth, valid: utf8.ValidString(in)}
	p.space()
	start := p.pos
	root, err := p.value()
	if err != nil {
		return nil, err
	}
	end := p.pos
	p.space()
	if p.pos < len(in) {
		switch in[p.pos] {
		case '{', '[':
			return nil, p.errorf(p.pos, "expected the end, got a second value; send one JSON value")
		case '}', ']':
			return nil, p.errorf(p.pos, "expected the end, got an unmatched %s", p.got(p.pos))
		}
		return nil, p.errorf(p.pos, "expected the end, got %s", p.got(p.pos))
	}
	return &document{root: root, text: in[start:end], broken: p.broken, changed: p.repaired}, nil
}

type parser struct {
	in       string
	pos      int
	depth    int
	count    int
	at       *place
	slab     []value
	valid    bool // in is valid UTF-8
	repaired bool
	broken   []string
}

func (p *parser) errorf(at int, format string, args ...any) error {
	return newSyntaxError(p.in, at, fmt.Sprintf(format, args...))
}

func (p *parser) space() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// got names what stands at a position.
func (p *parser) got(at int) string {
	if at >= len(p.in) {
		return "the end of the text"
	}
	r, size := utf8.DecodeRuneInString(p.in[at:])
	switch {
	case r == utf8.RuneError && size == 1:
		return fmt.Sprintf("the byte 0x%02x", p.in[at])
	case r < ' ':
		return fmt.Sprintf("the control character U+%04X", r)
	}
	return strconv.QuoteRune(r)
}

func (p *parser) make(k kind) (*value, error) {
	if p.count++; p.count > MaxValues {
		return nil, p.errorf(p.pos, "more than %d values", MaxValues)
	}
	if len(p.slab) == 0 {
		p.slab = make([]value, min(64, 4+p.count))
	}
	v := &p.slab[0]
	p.slab = p.slab[1:]
	v.kind = k
	return v, nil
}

func (p *parser) value() (*value, error) {
	if p.pos >= len(p.in) {
		return nil, p.errorf(p.pos, "expected a value, got the end of the text")
	}
	switch c := p.in[p.pos]; {
	case c == '{':
		return p.object()
	case c == '[':
		return p.array()
	case c == '"':
		v, err := p.make(text)
		if err != nil {
			return nil, err
		}
		v.text, err = p.string()
		return v, err
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	case c == 't':
		return p.word("true", boolean)
	case c == 'f':
		return p.word("false", boolean)
	case c == 'n':
		return p.word("null", null)
	case c == '\'':
		return nil, p.errorf(p.pos, "expected a value, got a single quote; strings take double quotes")
	case c == '}' || c == ']':
		return nil, p.errorf(p.pos, "expected a value, got %s%s", p.got(p.pos), p.afterComma())
	}
	return nil, p.errorf(p.pos, "expected a value, got %s", p.got(p.pos))
}

// afterComma explains the most frequent reason for a closing bracket in the
// wrong place.
func (p *parser) afterComma() string {
	if strings.HasSuffix(strings.TrimRight(p.in[:p.pos], " \t\r\n"), ",") {
		return "; remove the comma before it"
	}
	return ""
}

func (p *parser) word(w string, k kind) (*value, error) {
	if !strings.HasPrefix(p.in[p.pos:], w) {
		return nil, p.errorf(p.pos, "expected a value, got a word that is not true, false or null")
	}
	p.pos += len(w)
	v, err := p.make(k)
	if err != nil {
		return nil, err
	}
	v.truth = w == "true"
	return v, nil
}

// enter opens an array or object.
func (p *parser) enter(k kind) (*value, error) {
	if p.depth++; p.depth > MaxDepth {
		return nil, p.errorf(p.pos, "nested deeper than %d levels", MaxDepth)
	}
	p.pos++
	p.space()
	return p.make(k)
}

func (p *parser) array() (*value, error) {
	open, at := p.pos, p.at
	v, err := p.enter(array)
	if err != nil {
		return nil, err
	}
	step := place{up: at}
	p.at = &step
	defer func() { p.at = at; p.depth-- }()
	if p.peek(']') {
		return v, nil
	}
	for {
		step.index = len(v.items)
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, item)
		p.space()
		if p.peek(']') {
			return v, nil
		}
		if !p.peek(',') {
			return nil, p.unclosed(open, "array", "',' or ']'")
		}
		p.space()
	}
}

func (p *parser) object() (*value, error) {
	open, at := p.pos, p.at
	v, err := p.enter(object)
	if err != nil {
		return nil, err
	}
	step := place{up: at, index: -1}
	p.at = &step
	defer func() { p.at = at; p.depth-- }()
	if p.peek('}') {
		return v, nil
	}
	for {
		if err := p.name(open, v, &step); err != nil {
			return nil, err
		}
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, item)
		p.space()
		if p.peek('}') {
			return v, nil
		}
		if !p.peek(',') {
			return nil, p.unclosed(open, "object", "',' or '}'")
		}
		p.space()
	}
}

// name reads the name of a member and the colon after it.
func (p *parser) name(open int, v *value, step *place) error {
	start := p.pos
	if p.pos >= len(p.in) || p.in[p.pos] != '"' {
		if p.pos < len(p.in) && p.in[p.pos] == '}' {
			return p.errorf(p.pos, "expected a property name, got '}'%s", p.afterComma())
		}
		return p.unclosed(open, "object", "a property name in double quotes")
	}
	key, err := p.string()
	if err != nil {
		return err
	}
	if v.find(key) >= 0 {
		return p.errorf(start, "the property %s occurs twice in one object", strconv.Quote(clip(key, 40)))
	}
	step.key = key
	v.addKey(key)
	p.space()
	if !p.peek(':') {
		return p.errorf(p.pos, "expected ':' after the property name %s, got %s", strconv.Quote(clip(key, 40)), p.got(p.pos))
	}
	p.space()
	return nil
}

// unclosed reports what is missing inside an array or object that began at
// open.
func (p *parser) unclosed(open int, what, expected string) error {
	if p.pos >= len(p.in) {
		line, column := lineColumn(p.in, open)
		return p.errorf(p.pos, "expected %s, got the end of the text: the %s that starts at line %d, column %d is not closed", expected, what, line, column)
	}
	return p.errorf(p.pos, "expected %s in the %s, got %s", expected, what, p.got(p.pos))
}

// peek consumes c if it is next.
func (p *parser) peek(c byte) bool {
	if p.pos < len(p.in) && p.in[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *parser) digits() int {
	start := p.pos
	for p.pos < len(p.in) && '0' <= p.in[p.pos] && p.in[p.pos] <= '9' {
		p.pos++
	}
	return p.pos - start
}

func (p *parser) number() (*value, error) {
	start := p.pos
	p.peek('-')
	if p.peek('0') {
		if p.digits() > 0 {
			return nil, p.errorf(start, "a number may not begin with 0")
		}
	} else if p.digits() == 0 {
		return nil, p.errorf(p.pos, "expected a digit, got %s", p.got(p.pos))
	}
	if p.peek('.') && p.digits() == 0 {
		return nil, p.errorf(p.pos, "expected a digit after the decimal point, got %s", p.got(p.pos))
	}
	if p.peek('e') || p.peek('E') {
		_ = p.peek('+') || p.peek('-')
		from := p.pos
		if p.digits() == 0 {
			return nil, p.errorf(p.pos, "expected a digit in the exponent, got %s", p.got(p.pos))
		}
		if exponent, err := strconv.Atoi(p.in[from:p.pos]); err != nil || exponent > maxExponent {
			return nil, p.errorf(start, "the exponent of the number is larger than %d", maxExponent)
		}
	}
	if p.pos-start > maxLiteral {
		return nil, p.errorf(start, "a number of more than %d characters", maxLiteral)
	}
	v, err := p.make(number)
	if err != nil {
		return nil, err
	}
	v.text = p.in[start:p.pos]
	return v, nil
}

// string reads a string. The usual one, without escapes, is a part of the
// input and costs no allocation.
func (p *parser) string() (string, error) {
	open := p.pos
	p.pos++
	start := p.pos
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		if c == '"' {
			s := p.in[start:p.pos]
			p.pos++
			return s, nil
		}
		if c == '\\' || c < ' ' || c >= utf8.RuneSelf && !p.valid {
			break
		}
		p.pos++
	}
	b := []byte(p.in[start:p.pos])
	for p.pos < len(p.in) {
		switch c := p.in[p.pos]; {
		case c == '"':
			p.pos++
			return string(b), nil
		case c == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
		case c < ' ':
			return "", p.errorf(p.pos, "%s inside a string; write it as the escape \\u%04x", p.got(p.pos), c)
		case c < utf8.RuneSelf:
			b = append(b, c)
			p.pos++
		default:
			r, size := utf8.DecodeRuneInString(p.in[p.pos:])
			if r == utf8.RuneError && size == 1 {
				p.noteBroken()
			}
			b = utf8.AppendRune(b, r)
			p.pos += size
		}
	}
	line, column := lineColumn(p.in, open)
	return "", p.errorf(p.pos, "the text ends inside the string that starts at line %d, column %d", line, column)
}

// escape reads one escape sequence, which may be a pair of surrogates.
func (p *parser) escape() (rune, error) {
	start := p.pos
	p.pos++
	if p.pos >= len(p.in) {
		return 0, p.errorf(p.pos, "the text ends inside a string")
	}
	c := p.in[p.pos]
	p.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
	default:
		return 0, p.errorf(start, "unknown escape %s; a backslash itself is written twice", strconv.Quote(p.in[start:p.pos]))
	}
	r, ok := p.hex()
	if !ok {
		return 0, p.errorf(start, "expected four hexadecimal digits after \\u")
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if strings.HasPrefix(p.in[p.pos:], `\u`) {
		after := p.pos
		p.pos += 2
		if low, ok := p.hex(); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, nil
			}
		}
		p.pos = after // not its other half; it is read by itself
	}
	p.noteBroken()
	return utf8.RuneError, nil
}

func (p *parser) hex() (rune, bool) {
	if len(p.in)-p.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range []byte(p.in[p.pos : p.pos+4]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.pos += 4
	return r, true
}

// noteBroken records that the string being read had broken Unicode.
func (p *parser) noteBroken() {
	p.repaired = true
	if len(p.broken) >= maxBroken {
		return
	}
	at := p.at.String()
	if n := len(p.broken); n == 0 || p.broken[n-1] != at {
		p.broken = append(p.broken, at)
	}
}
