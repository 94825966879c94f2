package schema

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxSteps bounds the work of one check: the number of times a subschema is
// applied to a value. A document at the limits of this package stays far below;
// a recursive union, which may ask for exponentially many, does not.
const maxSteps = 4 << 20

// budget counts work.
type budget struct{ spent int }

// spend takes from the budget and reports whether some is left.
func (b *budget) spend(cost int) bool {
	b.spent += cost
	return b.spent <= maxSteps
}

func (b *budget) exhausted() bool { return b.spent > maxSteps }

// evaluator checks values against nodes. With a report it finds all problems,
// without one it stops at the first.
type evaluator struct {
	budget
	changed bool // a number was rewritten as an integer
}

// check applies n to v, which stands at a place. When seen is not nil, it
// receives what n evaluated.
func (e *evaluator) check(n *node, v *value, at *place, rep *report, seen *evaluated) bool {
	if !e.spend(1) {
		return false
	}
	if n.never {
		rep.add(at, v, "nothing is allowed here")
		return false
	}
	own := seen
	if own != nil || n.tracks() {
		own = new(evaluated)
	}
	if !e.checkKind(n, v, at, rep) {
		return false // whatever else is wrong follows from this
	}
	ok := e.checkInPlace(n, v, at, rep, own)
	if !ok && rep == nil {
		return false
	}
	switch v.kind {
	case number:
		ok = e.checkNumber(n, v, at, rep) && ok
	case text:
		ok = e.checkText(n, v, at, rep) && ok
	case array:
		ok = e.checkArray(n, v, at, rep, own) && ok
	case object:
		ok = e.checkObject(n, v, at, rep, own) && ok
	}
	if ok && n.tracks() {
		ok = e.checkUnevaluated(n, v, at, rep, own)
	}
	if ok && seen != nil {
		seen.merge(own)
	}
	return ok
}

// checkKind applies type, enum and const.
func (e *evaluator) checkKind(n *node, v *value, at *place, rep *report) bool {
	if n.kinds != 0 {
		if n.kinds&v.kind == 0 || v.kind == number && n.integer && !v.integer() {
			if rep != nil {
				rep.add(at, v, "expected %s", describe(n))
			}
			return false
		}
		if v.kind == number && n.integer && !v.plainInteger() {
			e.plain(v)
		}
	}
	if n.enum == nil || e.inEnum(n, v) {
		return true
	}
	if rep == nil {
		return false
	}
	if hint := nearest(v.text, enumTexts(n)); v.kind == text && hint != "" {
		rep.add(at, v, "expected %s; did you mean %s?", describe(n), strconv.Quote(hint))
		return false
	}
	rep.add(at, v, "expected %s", describe(n))
	return false
}

// plain writes an integer without fraction and exponent: 5.0 is 5, and Go
// decodes only that. One that would become too long stays.
func (e *evaluator) plain(v *value) {
	if s := v.rat().Num().String(); len(s) <= maxLiteral {
		v.text = s
		e.changed = true
	}
}

func (b *budget) inEnum(n *node, v *value) bool {
	b.spend(len(n.enum) / 8)
	return slices.ContainsFunc(n.enum, v.equal)
}

func (e *evaluator) checkNumber(n *node, v *value, at *place, rep *report) bool {
	if n.lower == nil && n.upper == nil && n.multipleOf == nil {
		return true
	}
	ok := true
	r := v.rat()
	if b := n.lower; b != nil {
		if cmp := r.Cmp(b.limit); cmp < 0 || cmp == 0 && b.exclusive {
			rep.add(at, v, "must be %s %s", pick(b.exclusive, "greater than", "at least"), b.text)
			ok = false
		}
	}
	if b := n.upper; b != nil {
		if cmp := r.Cmp(b.limit); cmp > 0 || cmp == 0 && b.exclusive {
			rep.add(at, v, "must be %s %s", pick(b.exclusive, "less than", "at most"), b.text)
			ok = false
		}
	}
	if m := n.multipleOf; m != nil && !new(big.Rat).Quo(r, m).IsInt() {
		rep.add(at, v, "must be a multiple of %s", n.src.get("multipleOf").text)
		ok = false
	}
	return ok
}

func (e *evaluator) checkText(n *node, v *value, at *place, rep *report) bool {
	ok := true
	if n.minLength != nil || n.maxLength != nil {
		length := utf8.RuneCountInString(v.text)
		if m := n.minLength; m != nil && length < *m {
			rep.add(at, v, "must have at least %s, has %d", count(*m, "character"), length)
			ok = false
		}
		if m := n.maxLength; m != nil && length > *m {
			rep.add(at, v, "must have at most %s, has %d", count(*m, "character"), length)
			ok = false
		}
	}
	if n.pattern != nil {
		e.spend(len(v.text) / 64)
		if !n.pattern.MatchString(v.text) {
			rep.add(at, v, "must match the regular expression %s%s", n.src.get("pattern").text, such(n, text))
			ok = false
		}
	}
	if n.inFormat != nil && !n.inFormat(v.text) {
		rep.add(at, v, "expected %s", formats[n.format].phrase)
		ok = false
	}
	return ok
}

func (e *evaluator) checkArray(n *node, v *value, at *place, rep *report, seen *evaluated) bool {
	ok := true
	if m := n.minItems; m != nil && len(v.items) < *m {
		rep.add(at, v, "must have at least %s, has %d", count(*m, "element"), len(v.items))
		ok = false
	}
	if m := n.maxItems; m != nil && len(v.items) > *m {
		rep.add(at, v, "must have at most %s, has %d", count(*m, "element"), len(v.items))
		ok = false
	}
	for i, item := range v.items {
		sub := n.items
		if i < len(n.prefixItems) {
			sub = n.prefixItems[i]
		}
		if sub == nil {
			continue
		}
		seen.item(i)
		if ok = e.check(sub, item, rep.element(at, i), rep, nil) && ok; !ok && rep == nil {
			return false
		}
	}
	if n.contains != nil {
		ok = e.checkContains(n, v, at, rep, seen) && ok
	}
	if n.unique {
		ok = e.checkUnique(v, at, rep) && ok
	}
	return ok
}

func (e *evaluator) checkContains(n *node, v *value, at *place, rep *report, seen *evaluated) bool {
	found := 0
	for i, item := range v.items {
		if e.check(n.contains, item, nil, nil, nil) {
			found++
			seen.item(i)
		}
	}
	least := 1
	if n.minContains != nil {
		least = *n.minContains
	}
	short, long := found < least, n.maxContains != nil && found > *n.maxContains
	if short && rep != nil {
		rep.add(at, v, "must contain at least %d of %s, has %d", least, describe(n.contains), found)
	}
	if long && rep != nil {
		rep.add(at, v, "must contain at most %d of %s, has %d", *n.maxContains, describe(n.contains), found)
	}
	return !short && !long
}

func (e *evaluator) checkUnique(v *value, at *place, rep *report) bool {
	if len(v.items) < 2 {
		return true
	}
	first := make(map[string]int, len(v.items))
	var buf []byte
	for i, item := range v.items {
		buf = item.canonical(append(buf[:0], byte(item.kind)))
		if j, dup := first[string(buf)]; dup {
			rep.add(rep.element(at, i), item, "repeats element %d; the elements must differ", j)
			return false
		}
		first[string(buf)] = i
	}
	return true
}

func (e *evaluator) checkObject(n *node, v *value, at *place, rep *report, seen *evaluated) bool {
	ok := true
	for _, name := range n.required {
		if v.find(name) >= 0 {
			continue
		}
		if rep == nil {
			return false
		}
		rep.add(rep.member(at, name), nil, "is required%s", wanted(n.props[name]))
		ok = false
	}
	if m := n.minProps; m != nil && len(v.keys) < *m {
		rep.add(at, v, "must have at least %s, has %d", count(*m, "property"), len(v.keys))
		ok = false
	}
	if m := n.maxProps; m != nil && len(v.keys) > *m {
		rep.add(at, v, "must have at most %s, has %d", count(*m, "property"), len(v.keys))
		ok = false
	}
	if !ok && rep == nil {
		return false
	}
	if n.props != nil || n.patternProps != nil || n.additional != nil || n.names != nil {
		for i, key := range v.keys {
			if ok = e.checkMember(n, key, v.items[i], at, rep, seen) && ok; !ok && rep == nil {
				return false
			}
		}
	}
	for _, d := range n.dependentNeeds {
		if v.find(d.property) < 0 {
			continue
		}
		for _, need := range d.needs {
			if v.find(need) < 0 {
				rep.add(rep.member(at, need), nil, "is required because %s is present", strconv.Quote(clip(d.property, 40)))
				ok = false
			}
		}
	}
	return ok
}

// checkMember applies to one member whatever n says of it.
func (e *evaluator) checkMember(n *node, key string, v *value, at *place, rep *report, seen *evaluated) bool {
	ok, known := true, false
	here := rep.member(at, key)
	if n.names != nil {
		ok = e.check(n.names, newText(key), here, rep, nil)
	}
	if sub := n.props[key]; sub != nil {
		known = true
		ok = e.check(sub, v, here, rep, nil) && ok
	}
	for _, p := range n.patternProps {
		if p.re.MatchString(key) {
			known = true
			ok = e.check(p.sub, v, here, rep, nil) && ok
		}
	}
	switch {
	case known, n.additional == nil:
	case n.additional.never:
		if rep != nil {
			rep.add(here, nil, "%s", unknownProperty(n, key))
		}
		return false
	default:
		known = true
		ok = e.check(n.additional, v, here, rep, nil) && ok
	}
	if known {
		seen.member(key)
	}
	return ok
}

// checkUnevaluated applies unevaluatedItems and unevaluatedProperties, which
// concern what nothing beside them looked at.
func (e *evaluator) checkUnevaluated(n *node, v *value, at *place, rep *report, own *evaluated) bool {
	ok := true
	if sub := n.unevaluatedItems; sub != nil && v.kind == array {
		for i, item := range v.items {
			if !own.items[i] {
				ok = e.check(sub, item, rep.element(at, i), rep, nil) && ok
				own.item(i)
			}
		}
	}
	if sub := n.unevaluatedProps; sub != nil && v.kind == object {
		for i, key := range v.keys {
			if own.members[key] {
				continue
			}
			if sub.never {
				rep.add(rep.member(at, key), nil, "unknown property")
				ok = false
				continue
			}
			ok = e.check(sub, v.items[i], rep.member(at, key), rep, nil) && ok
			own.member(key)
		}
	}
	return ok
}

// evaluated is what a schema and its parts looked at in one array or object.
// A nil one records nothing.
type evaluated struct {
	items   map[int]bool
	members map[string]bool
}

func (s *evaluated) item(i int) {
	if s == nil {
		return
	}
	if s.items == nil {
		s.items = map[int]bool{}
	}
	s.items[i] = true
}

func (s *evaluated) member(key string) {
	if s == nil {
		return
	}
	if s.members == nil {
		s.members = map[string]bool{}
	}
	s.members[key] = true
}

func (s *evaluated) merge(other *evaluated) {
	for i := range other.items {
		s.item(i)
	}
	for key := range other.members {
		s.member(key)
	}
}

func pick(which bool, yes, no string) string {
	if which {
		return yes
	}
	return no
}

// count renders a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if thing == "property" {
		return fmt.Sprintf("%d properties", n)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
