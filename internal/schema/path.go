package schema

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// place is where in a document a value is: a member or an element of the
// place above it. The root is nil.
type place struct {
	up    *place
	key   string
	index int // of an element; -1 for a member
}

func (p *place) member(key string) *place { return &place{up: p, key: key, index: -1} }
func (p *place) element(i int) *place     { return &place{up: p, index: i} }

// depth is the number of steps from the root.
func (p *place) depth() int {
	n := 0
	for ; p != nil; p = p.up {
		n++
	}
	return n
}

// maxPath bounds the bytes of a rendered path.
const maxPath = 200

// String renders the place as a program would write it: orders[2].id. The
// root is the empty string.
func (p *place) String() string {
	var steps []*place
	for ; p != nil; p = p.up {
		steps = append(steps, p)
	}
	var b strings.Builder
	for i := len(steps) - 1; i >= 0; i-- {
		writeStep(&b, steps[i].key, steps[i].index)
		if b.Len() > maxPath {
			return clip(b.String(), maxPath)
		}
	}
	return b.String()
}

func writeStep(b *strings.Builder, key string, index int) {
	switch {
	case index >= 0:
		b.WriteByte('[')
		b.WriteString(strconv.Itoa(index))
		b.WriteByte(']')
	case plainName(key):
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(key)
	default:
		b.WriteByte('[')
		b.WriteString(strconv.Quote(clip(key, maxPath)))
		b.WriteByte(']')
	}
}

// plainName reports whether key can stand in a path without quotes.
func plainName(key string) bool {
	for i := 0; i < len(key); i++ {
		c := key[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '$', c == '-' && i > 0, '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return key != ""
}

// place returns where in v an RFC 6901 pointer points.
func (v *value) place(pointer string) *place {
	var at *place
	if pointer == "" {
		return at
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		index, err := strconv.Atoi(token)
		if v != nil && v.kind == array && err == nil {
			at = at.element(index)
		} else {
			at = at.member(unescapePointer(token))
		}
		if v != nil {
			v = v.step(unescapePointer(token))
		}
	}
	return at
}

// pointerPath renders an RFC 6901 pointer in the same notation.
func pointerPath(pointer string) string {
	if pointer == "" {
		return ""
	}
	var b strings.Builder
	for token := range strings.SplitSeq(pointer[1:], "/") {
		index, err := strconv.Atoi(token)
		if err != nil || index < 0 {
			index = -1
		}
		writeStep(&b, unescapePointer(token), index)
		if b.Len() > maxPath {
			break
		}
	}
	return clip(b.String(), maxPath)
}

func escapePointer(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func unescapePointer(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// clip shortens s to at most limit bytes, never inside a rune, and says so.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	cut := max(limit-len(mark), 0)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
