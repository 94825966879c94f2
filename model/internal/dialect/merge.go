package dialect

import (
	"math/big"
	"slices"
)

// both returns a schema for what fits a and b. What cannot be put together is
// lost of b.
func (c *converter) both(a, b *value) *value {
	out := a.copy()
	for i, name := range b.names {
		mine, theirs := a.get(name), b.items[i]
		switch {
		case mine == nil:
			out.set(name, theirs)
		case annotations[name] || same(mine, theirs):
		default:
			if merged := c.keyword(name, mine, theirs); merged != nil {
				out.set(name, merged)
			} else {
				c.lose(b.at+"/"+escape(name), "this stands beside another %s, and the two cannot be sent as one; the other one is", name)
			}
		}
	}
	return out
}

// keyword puts together what two schemas say under one keyword, or returns nil.
func (c *converter) keyword(name string, a, b *value) *value {
	switch name {
	case "type":
		return commonTypes(a, b)
	case "properties", "patternProperties", "dependentSchemas":
		return eachOf(a, b)
	case "required":
		return texts(union(a.strs(), b.strs()))
	case "enum":
		return commonItems(a, b)
	case "items", "additionalProperties", "propertyNames":
		return allOf(a, b)
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		return tighter(a, b, 1)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		return tighter(a, b, -1)
	case "allOf":
		return list(append(slices.Clone(a.items), b.items...)...)
	case "not":
		return object(a.at).set("anyOf", list(a, b))
	}
	return nil
}

// commonTypes returns the types that two schemas allow. An integer is a number.
func commonTypes(a, b *value) *value {
	var all []string
	right := types(object("").set("type", b))
	for _, t := range types(object("").set("type", a)) {
		switch {
		case slices.Contains(right, t), t == "integer" && slices.Contains(right, "number"):
			all = append(all, t)
		case t == "number" && slices.Contains(right, "integer"):
			all = append(all, "integer")
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return text(all[0])
	}
	return texts(all)
}

// eachOf puts two sets of named schemas together.
func eachOf(a, b *value) *value {
	if !a.is('{') || !b.is('{') {
		return nil
	}
	out := a.copy()
	for i, name := range b.names {
		if mine := a.get(name); mine != nil {
			out.set(name, allOf(mine, b.items[i]))
		} else {
			out.set(name, b.items[i])
		}
	}
	return out
}

// allOf is a schema for what fits a and b.
func allOf(a, b *value) *value {
	switch {
	case same(a, b), b.is('t'), a.is('f'):
		return a
	case a.is('t'), b.is('f'):
		return b
	}
	return object(a.at).set("allOf", list(a, b))
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// commonItems returns what is in both lists.
func commonItems(a, b *value) *value {
	out := list()
	for _, item := range a.items {
		if slices.ContainsFunc(b.items, func(other *value) bool { return same(item, other) }) {
			out.items = append(out.items, item)
		}
	}
	if len(out.items) == 0 {
		return nil
	}
	return out
}

// tighter returns the larger of two limits, or the smaller if sign is negative.
func tighter(a, b *value, sign int) *value {
	x, ok := new(big.Float).SetString(a.raw)
	y, also := new(big.Float).SetString(b.raw)
	switch {
	case !ok || !also:
		return nil
	case x.Cmp(y)*sign >= 0:
		return a
	}
	return b
}
