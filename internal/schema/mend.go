package schema

import (
	"slices"
	"strings"
)

// demand is a set of schemas that a value must all fit; demands are the
// alternatives, one of which it must fit. They answer the one question that a
// correction depends on: which kinds of value are allowed at this place,
// whatever route the schema takes to it.
type (
	demand  []*node
	demands []demand
)

// maxDemands bounds the alternatives that are followed. With more, nothing
// below is corrected.
const maxDemands = 64

// mender corrects what a document has in places where it cannot stay.
type mender struct {
	budget
	lenient bool
	repairs []Repair
}

// mend corrects the members and elements of v, which must meet one of ds. It
// replaces what they hold in place.
func (w *mender) mend(ds demands, v *value, at *place) {
	if !w.spend(len(ds)*len(ds)) || len(w.repairs) > maxRepairs {
		return
	}
	if ds = ds.expand(v, &w.budget); ds == nil {
		return
	}
	if w.lenient && v.kind == text && w.decode(ds.kinds(), v, at) {
		return // what is inside has its turn in the next round
	}
	switch v.kind {
	case array:
		for i, item := range v.items {
			w.mend(ds.element(i), item, at.element(i))
		}
	case object:
		var gone []int
		for i, key := range v.keys {
			below, here := ds.member(key), at.member(key)
			if v.items[i].kind == null && ds.optional(key) && below.expand(v.items[i], &w.budget).kinds()&null == 0 {
				gone = append(gone, i)
				w.repairs = append(w.repairs, Repair{Path: here.String(), Kind: NullDropped})
				continue
			}
			w.mend(below, v.items[i], here)
		}
		if gone != nil {
			v.drop(func(i int) bool { _, drop := slices.BinarySearch(gone, i); return drop })
		}
	}
}

// decode replaces a string by what it encodes, if only that can be meant: no
// alternative allows a string here, and what it encodes is of a kind that one
// does allow. A boolean is decoded only where nothing else is allowed.
func (w *mender) decode(kinds kind, v *value, at *place) bool {
	if kinds == 0 || kinds&text != 0 {
		return false
	}
	doc, err := parseBelow(v.text, at.depth())
	if err != nil {
		return false
	}
	inner := doc.root
	switch inner.kind {
	case array, object, number:
		if kinds&inner.kind == 0 {
			return false
		}
	case boolean:
		if kinds != boolean {
			return false
		}
	default:
		return false
	}
	*v = *inner
	w.repairs = append(w.repairs, Repair{Path: at.String(), Kind: Decoded})
	if doc.broken != nil {
		w.repairs = append(w.repairs, Repair{Path: at.String(), Kind: UnicodeReplaced})
	}
	return true
}

// expand follows references and combinations until every alternative is a
// list of schemas, and leaves out those that v contradicts by a constant. It
// returns nil when there are too many.
func (ds demands) expand(v *value, b *budget) demands {
	g := grower{budget: b}
	for _, d := range ds {
		g.grow(nil, d)
	}
	if g.full {
		return nil
	}
	fits := slices.DeleteFunc(slices.Clone(g.out), func(d demand) bool {
		return slices.ContainsFunc(d, func(n *node) bool { return b.contradicts(n, v) })
	})
	if len(fits) > 0 {
		return fits
	}
	return g.out
}

// grower lists alternatives, each as soon as all its choices are made.
type grower struct {
	*budget
	out  demands
	full bool // too many
}

// grow adds to d the nodes that are to do, and what applies along with them.
func (g *grower) grow(d demand, todo []*node) {
	switch {
	case g.full || !g.spend(1+len(d)) || len(g.out) > maxDemands:
		g.full = true
	case len(todo) == 0:
		g.out = append(g.out, d)
	case slices.Contains(d, todo[0]):
		g.grow(d, todo[1:])
	default:
		n := todo[0]
		next := slices.Concat(todo[1:], n.allOf)
		if n.ref != nil {
			next = append(next, n.ref)
		}
		g.choose(append(slices.Clip(d), n), next, n.anyOf, n.oneOf)
	}
}

// choose grows one alternative for every way to pick an arm of each union.
func (g *grower) choose(d demand, todo []*node, unions ...[]*node) {
	for i, arms := range unions {
		if arms == nil {
			continue
		}
		for _, arm := range arms {
			if g.full {
				return
			}
			g.choose(d, append(slices.Clip(todo), arm), unions[i+1:]...)
		}
		return
	}
	g.grow(d, todo)
}

// kinds returns the kinds that at least one alternative allows.
func (ds demands) kinds() kind {
	var union kind
	for _, d := range ds {
		kinds := anyKind
		for _, n := range d {
			kinds &= n.allowed
		}
		union |= kinds
	}
	return union
}

// member returns what is demanded of the property named key.
func (ds demands) member(key string) demands {
	return ds.below(func(n *node) []*node {
		var subs []*node
		if sub := n.props[key]; sub != nil {
			subs = append(subs, sub)
		}
		for _, p := range n.patternProps {
			if p.re.MatchString(key) {
				subs = append(subs, p.sub)
			}
		}
		if subs == nil && n.additional != nil {
			subs = append(subs, n.additional)
		}
		return subs
	})
}

// element returns what is demanded of an element.
func (ds demands) element(i int) demands {
	return ds.below(func(n *node) []*node {
		switch {
		case i < len(n.prefixItems):
			return n.prefixItems[i : i+1]
		case n.items != nil:
			return []*node{n.items}
		}
		return nil
	})
}

// below collects from every alternative the schemas for one member. An
// alternative that says nothing of it allows everything.
func (ds demands) below(of func(*node) []*node) demands {
	out := make(demands, 0, len(ds))
	for _, d := range ds {
		var subs demand
		for _, n := range d {
			subs = append(subs, of(n)...)
		}
		if !slices.ContainsFunc(out, func(have demand) bool { return slices.Equal(have, subs) }) {
			out = append(out, subs)
		}
	}
	return out
}

// optional reports whether some alternative has the property and does without
// it. The entries of a map are no properties: whoever writes one means it.
func (ds demands) optional(key string) bool {
	return slices.ContainsFunc(ds, func(d demand) bool {
		return slices.ContainsFunc(d, func(n *node) bool { return n.props[key] != nil }) &&
			!slices.ContainsFunc(d, func(n *node) bool { return slices.Contains(n.required, key) })
	})
}

// RepairKind says what was corrected.
type RepairKind string

// The corrections.
const (
	EmptyArguments  RepairKind = "empty"   // nothing, or null, was taken as {}
	NullDropped     RepairKind = "null"    // a null for an optional property was taken as absent
	Decoded         RepairKind = "decoded" // a value that was encoded twice was decoded
	UnicodeReplaced RepairKind = "unicode" // broken Unicode was replaced by U+FFFD
)

// A Repair is one correction of a document, to be logged.
type Repair struct {
	Path string     `json:"path"` // where, such as target.queries; empty for the document itself
	Kind RepairKind `json:"kind"`
}

// String returns the kind and the path.
func (r Repair) String() string {
	return strings.TrimSuffix(string(r.Kind)+" "+r.Path, " ")
}
