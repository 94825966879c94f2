package schema

import "fmt"

// analyze rejects schemas that apply to the same value without end, such as
// {"$ref": "#"}, and those that do so for too long. On the way it works out
// what can be known of every node.
func (c *compiler) analyze() error {
	a := analysis{depth: make(map[*node]int, len(c.list))}
	for _, n := range c.list {
		if err := a.visit(n, 1); err != nil {
			return err
		}
	}
	for _, n := range c.list { // after it is known that references end
		n.fixed = fixedProps(n)
	}
	return nil
}

// visiting is the depth of a node whose parts are being visited.
const visiting = -1

type analysis struct {
	depth map[*node]int // longest row of subschemas that starts at a node
}

func (a *analysis) visit(n *node, level int) error {
	switch d := a.depth[n]; {
	case d == visiting:
		return &defect{n.src, n.where, "", "refers to itself without descending into the value"}
	case d > 0 && level+d <= maxInPlace:
		return nil
	case level > maxInPlace:
		return &defect{n.src, n.where, "", fmt.Sprintf("more than %d subschemas apply to one value in a row", maxInPlace)}
	}
	a.depth[n] = visiting
	var err error
	deepest := 0
	n.inPlace(func(sub *node) {
		if err == nil {
			err = a.visit(sub, level+1)
			deepest = max(deepest, a.depth[sub])
		}
	})
	a.depth[n] = deepest + 1
	n.allowed = allowedKinds(n)
	return err
}

// allowedKinds combines what n says with what its parts allow, which is known
// already.
func allowedKinds(n *node) kind {
	if n.never {
		return 0
	}
	kinds := anyKind
	if n.kinds != 0 {
		kinds = n.kinds
	}
	if n.enum != nil {
		kinds &= union(n.enum, func(v *value) kind { return v.kind })
	}
	if n.ref != nil {
		kinds &= n.ref.allowed
	}
	for _, sub := range n.allOf {
		kinds &= sub.allowed
	}
	for _, arms := range [][]*node{n.anyOf, n.oneOf} {
		if arms != nil {
			kinds &= union(arms, func(arm *node) kind { return arm.allowed })
		}
	}
	return kinds
}

func union[T any](list []T, of func(T) kind) kind {
	var all kind
	for _, item := range list {
		all |= of(item)
	}
	return all
}

func fixedProps(n *node) []fixed {
	var list []fixed
	for _, name := range n.order {
		sub := n.props[name]
		for sub.enum == nil && sub.ref != nil {
			sub = sub.ref
		}
		if sub.enum != nil {
			list = append(list, fixed{name, sub})
		}
	}
	return list
}
