package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	anything = "any value"

	// maxPhrase bounds the bytes of a description, maxListed the names or
	// values that one lists.
	maxPhrase = 300
	maxListed = 20

	// maxWords bounds the schemas that one description looks at, maxLevel how
	// far it descends.
	maxWords = 200
	maxLevel = 3
)

// article names a kind with its article.
func article(k kind) string {
	switch k {
	case null:
		return "null"
	case boolean:
		return "true or false"
	case number:
		return "a number"
	case text:
		return "a string"
	case array:
		return "an array"
	default:
		return "an object"
	}
}

// describe says in words what a schema allows.
func describe(n *node) string {
	w := words{left: maxWords}
	return clip(w.phrase(n, 0), maxPhrase)
}

// describeAll joins the descriptions of several schemas, each once.
func describeAll(nodes []*node, sep string) string {
	w := words{left: maxWords}
	return w.join(nodes, sep, 1)
}

// words puts schemas into words, as many as are left.
type words struct{ left int }

func (w *words) join(nodes []*node, sep string, level int) string {
	var parts []string
	for _, n := range nodes {
		if w.left <= 0 || len(parts) == maxListed {
			break
		}
		if d := w.phrase(n, level); !slices.Contains(parts, d) {
			parts = append(parts, d)
		}
	}
	return clip(strings.Join(parts, sep), maxPhrase)
}

func (w *words) phrase(n *node, level int) string {
	if w.left--; w.left < 0 || level > maxLevel {
		return anything
	}
	switch {
	case n.never:
		return "nothing"
	case n.enum != nil:
		return enumPhrase(n.enum)
	case n.kinds != 0:
		return w.kinds(n, level)
	case n.ref != nil:
		return w.phrase(n.ref, level)
	case n.anyOf != nil:
		return w.join(n.anyOf, " or ", level)
	case n.oneOf != nil:
		return w.join(n.oneOf, " or ", level)
	case len(n.allOf) == 1:
		return w.phrase(n.allOf[0], level)
	case n.props != nil:
		return objectPhrase(n)
	case n.items != nil:
		return "an array; each element " + w.phrase(n.items, level+1)
	case n.not != nil:
		return "anything but " + w.phrase(n.not, level+1)
	}
	return anything
}

func (w *words) kinds(n *node, level int) string {
	var parts []string
	for k := boolean; k <= object; k <<= 1 {
		if n.kinds&k == 0 {
			continue
		}
		switch {
		case k == number && n.integer:
			parts = append(parts, "an integer")
		case k == text:
			parts = append(parts, textPhrase(n))
		case k == array && n.items != nil && level < maxLevel:
			parts = append(parts, "an array; each element "+w.phrase(n.items, level+1))
		case k == object && level > 0:
			parts = append(parts, objectPhrase(n))
		default:
			parts = append(parts, article(k))
		}
	}
	if n.kinds&null != 0 {
		parts = append(parts, "null")
	}
	return strings.Join(parts, " or ")
}

func textPhrase(n *node) string {
	if f, ok := formats[n.format]; ok {
		return f.phrase
	}
	if example := such(n, text); example != "" || n.format == "" {
		return "a string" + example
	}
	return fmt.Sprintf("a string (%s)", clip(n.format, 40))
}

// such quotes the first example of a schema, if it has one of that kind.
func such(n *node, k kind) string {
	examples := n.src.get("examples")
	if examples == nil || len(examples.items) == 0 || examples.items[0].kind != k {
		return ""
	}
	return ", such as " + show(examples.items[0])
}

func objectPhrase(n *node) string {
	var constant []string
	for _, f := range n.fixed {
		if len(f.sub.enum) == 1 && len(constant) < maxListed {
			constant = append(constant, clip(f.name, 40)+" "+show(f.sub.enum[0]))
		}
	}
	switch {
	case constant != nil:
		return "an object with " + strings.Join(constant, ", ")
	case len(n.order) == 0:
		return "an object"
	}
	return "an object with " + listNames(n.order)
}

func enumPhrase(values []*value) string {
	if len(values) == 1 {
		return show(values[0])
	}
	parts := make([]string, 0, min(len(values), maxListed+1))
	for i, v := range values {
		if i == maxListed {
			parts = append(parts, fmt.Sprintf("%d more", len(values)-i))
			break
		}
		parts = append(parts, show(v))
	}
	return "one of " + strings.Join(parts, ", ")
}

func listNames(names []string) string {
	shown := make([]string, 0, min(len(names), maxListed+1))
	for i, name := range names {
		if i == maxListed {
			shown = append(shown, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		shown = append(shown, clip(name, 60))
	}
	return strings.Join(shown, ", ")
}

// maxShown bounds the bytes of a quoted value.
const maxShown = 80

// show renders a value for a message.
func show(v *value) string {
	switch v.kind {
	case text:
		return strconv.Quote(clip(v.text, maxShown))
	case array:
		return "an array of " + count(len(v.items), "element")
	case object:
		if len(v.keys) == 0 {
			return "an empty object"
		}
		return clip("an object with "+listNames(v.keys), maxShown)
	case number:
		return clip(v.text, maxShown)
	default:
		return string(v.append(nil))
	}
}

// showGot renders what came instead of what was expected.
func showGot(v *value) string {
	switch {
	case v == nil:
		return ""
	case v.kind == text:
		return "the string " + show(v)
	case v.kind == number:
		return "the number " + show(v)
	}
	return show(v)
}

// nearest returns the candidate that differs from s by at most two edits or
// only by case and separators, if there is one.
func nearest(s string, candidates []string) string {
	const maxEdits, maxLength, maxCandidates = 2, 64, 200
	if len(s) > maxLength || len(candidates) > maxCandidates {
		return ""
	}
	best, found := maxEdits+1, ""
	for _, c := range candidates {
		if len(c) > maxLength {
			continue
		}
		if fold(c) == fold(s) {
			return c
		}
		// A short name has too many neighbours for two edits to mean anything.
		if d := distance(s, c); d < best && d*3 <= utf8.RuneCountInString(c)+1 {
			best, found = d, c
		}
	}
	return found
}

func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours between a and b.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	var older []int // the row before the one above
	above := make([]int, len(to)+1)
	for j := range above {
		above[j] = j
	}
	for i, r := range from {
		row := make([]int, len(to)+1)
		row[0] = i + 1
		for j, q := range to {
			cost := above[j]
			if r != q {
				cost = 1 + min(above[j], above[j+1], row[j])
			}
			if i > 0 && j > 0 && r == to[j-1] && from[i-1] == q {
				cost = min(cost, older[j-1]+1)
			}
			row[j+1] = cost
		}
		older, above = above, row
	}
	return above[len(to)]
}
