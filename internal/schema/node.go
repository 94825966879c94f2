package schema

import (
	"math/big"
	"regexp"
)

// node is one compiled (sub)schema. A nil or empty field is an absent keyword.
// Nodes form a graph, with cycles where the schema is recursive; they do not
// change after compilation.
type node struct {
	src   *value // the schema it was compiled from
	where string // pointer from the schema's root, for errors

	never bool // the schema false

	// What analysis finds out, for messages and corrections.
	allowed kind    // kinds of value that can fit
	fixed   []fixed // properties that have an enum

	ref          *node
	allOf        []*node
	anyOf        []*node
	oneOf        []*node
	not          *node
	cond         *node // if
	then, orElse *node

	kinds   kind // kinds that type allows; 0 without type
	integer bool // type has integer and not number: numbers may have no fraction
	enum    []*value
	format  string
	preset  *value // default

	inFormat func(string) bool // nil where the format only describes

	lower, upper             *bound
	multipleOf               *big.Rat
	minLength, maxLength     *int
	pattern                  *regexp.Regexp
	minItems, maxItems       *int
	prefixItems              []*node
	items                    *node
	unique                   bool
	contains                 *node
	minContains, maxContains *int

	required         []string
	props            map[string]*node
	order            []string // names of props as they were written
	patternProps     []patternProp
	additional       *node
	names            *node // propertyNames
	minProps         *int
	maxProps         *int
	dependentNeeds   []dependency
	dependentSchemas []dependency

	unevaluatedItems *node
	unevaluatedProps *node
}

// bound is a limit of a number.
type bound struct {
	limit     *big.Rat
	text      string // as the schema wrote it
	exclusive bool
}

type patternProp struct {
	re  *regexp.Regexp
	sub *node
}

// dependency holds when the property is there: other properties are needed,
// or the whole object must fit a schema.
type dependency struct {
	property string
	needs    []string
	sub      *node
}

// fixed is a property whose values are listed, which is what tells the members
// of a union of objects apart.
type fixed struct {
	name string
	sub  *node // has an enum
}

// inPlace calls f for every subschema that applies to the same value as n.
func (n *node) inPlace(f func(*node)) {
	for _, sub := range []*node{n.ref, n.not, n.cond, n.then, n.orElse} {
		if sub != nil {
			f(sub)
		}
	}
	for _, list := range [][]*node{n.allOf, n.anyOf, n.oneOf} {
		for _, sub := range list {
			f(sub)
		}
	}
	for _, d := range n.dependentSchemas {
		f(d.sub)
	}
}

// tracks reports whether checking n needs to know what its parts evaluated.
func (n *node) tracks() bool { return n.unevaluatedItems != nil || n.unevaluatedProps != nil }
