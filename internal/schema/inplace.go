package schema

import "strings"

// checkInPlace applies the keywords that hold further schemas for the same
// value.
func (e *evaluator) checkInPlace(n *node, v *value, at *place, rep *report, seen *evaluated) bool {
	ok := true
	if n.ref != nil {
		ok = e.check(n.ref, v, at, rep, seen)
	}
	for _, sub := range n.allOf {
		if !ok && rep == nil {
			return false
		}
		ok = e.check(sub, v, at, rep, seen) && ok
	}
	if n.anyOf != nil {
		ok = e.checkAny(n.anyOf, v, at, rep, seen) && ok
	}
	if n.oneOf != nil && (ok || rep != nil) {
		ok = e.checkOne(n.oneOf, v, at, rep, seen) && ok
	}
	if n.not != nil && e.check(n.not, v, nil, nil, nil) {
		if rep != nil {
			rep.add(at, v, "must not be %s", describe(n.not))
		}
		ok = false
	}
	if n.cond != nil {
		branch := n.orElse
		if e.check(n.cond, v, at, nil, seen) {
			branch = n.then
		}
		if branch != nil {
			ok = e.check(branch, v, at, rep, seen) && ok
		}
	}
	if v.kind == object {
		for _, d := range n.dependentSchemas {
			if v.find(d.property) >= 0 {
				ok = e.check(d.sub, v, at, rep, seen) && ok
			}
		}
	}
	return ok
}

func (e *evaluator) checkAny(arms []*node, v *value, at *place, rep *report, seen *evaluated) bool {
	ok := false
	for _, arm := range arms {
		if e.check(arm, v, at, nil, seen) {
			ok = true
			if seen == nil {
				return true
			}
		}
	}
	if !ok && rep != nil {
		e.explainUnion(arms, v, at, rep)
	}
	return ok
}

func (e *evaluator) checkOne(arms []*node, v *value, at *place, rep *report, seen *evaluated) bool {
	var fits []*node
	for _, arm := range arms {
		if e.check(arm, v, at, nil, nil) {
			if fits = append(fits, arm); len(fits) > 1 && rep == nil {
				return false
			}
		}
	}
	switch {
	case len(fits) == 1:
		if seen != nil {
			e.check(fits[0], v, at, nil, seen)
		}
		return true
	case len(fits) > 1:
		rep.add(at, v, "fits %d of the %d alternatives, must fit exactly one: %s", len(fits), len(arms), describeAll(fits, "; "))
	case rep != nil:
		e.explainUnion(arms, v, at, rep)
	}
	return false
}

// explainUnion says why v fits none of the arms: by the problems of the one
// that is meant, as far as that can be told from its kind and its constant
// properties.
func (e *evaluator) explainUnion(arms []*node, v *value, at *place, rep *report) {
	meant := e.relevant(arms, v)
	if len(meant) == 0 || e.exhausted() {
		rep.add(at, v, "expected %s", describeAll(arms, " or "))
		return
	}
	if len(meant) == 1 {
		e.check(meant[0], v, at, rep, nil)
		return
	}
	var best *report
	for _, arm := range meant {
		r := &report{budget: rep.budget}
		e.check(arm, v, at, r, nil)
		if best == nil || r.total < best.total {
			best = r
		}
	}
	rep.add(at, v, "fits none of the %d alternatives: %s", len(arms), describeAll(arms, "; "))
	rep.merge(best)
}

// relevant returns the arms that v may have been written for: those that
// allow its kind and do not contradict it in a constant property. When all
// contradict it, those that allow its kind.
func (b *budget) relevant(arms []*node, v *value) []*node {
	var kinds, exact []*node
	for _, arm := range arms {
		if arm.allowed&v.kind == 0 {
			continue
		}
		kinds = append(kinds, arm)
		if !b.contradicts(arm, v) {
			exact = append(exact, arm)
		}
	}
	if exact != nil {
		return exact
	}
	return kinds
}

// contradicts reports whether v has a property with another value than n
// lists for it. It says no when the budget is spent.
func (b *budget) contradicts(n *node, v *value) bool {
	if v.kind != object || !b.spend(1+len(n.fixed)) {
		return false
	}
	for _, f := range n.fixed {
		if member := v.get(f.name); member != nil && !b.inEnum(f.sub, member) {
			return true
		}
	}
	if n.ref != nil && b.contradicts(n.ref, v) {
		return true
	}
	for _, sub := range n.allOf {
		if b.contradicts(sub, v) {
			return true
		}
	}
	return false
}

// enumTexts returns the strings of an enum.
func enumTexts(n *node) []string {
	var texts []string
	for _, v := range n.enum {
		if v.kind == text {
			texts = append(texts, v.text)
		}
	}
	return texts
}

// wanted appends what is expected to a message about a missing value.
func wanted(n *node) string {
	if n == nil {
		return ""
	}
	if d := describe(n); d != anything {
		return "; expected " + d
	}
	return ""
}

func unknownProperty(n *node, key string) string {
	if len(n.order) == 0 {
		return "unknown property; no properties are allowed here"
	}
	var b strings.Builder
	b.WriteString("unknown property")
	if hint := nearest(key, n.order); hint != "" {
		b.WriteString("; did you mean " + clip(hint, 60) + "?")
	}
	b.WriteString("; allowed: ")
	b.WriteString(listNames(n.order))
	return b.String()
}
