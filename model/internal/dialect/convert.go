package dialect

import (
	"slices"
)

// full counts a schema, and reports whether there are too many.
func (c *converter) full() bool {
	c.nodes++
	c.spent = c.spent || c.nodes > maxNodes
	return c.spent
}

// schema rewrites one schema. Nullable says that null has to fit as well.
func (c *converter) schema(v *value, depth int, nullable bool) *value {
	if cut := c.cut(v, depth, nullable); cut != nil {
		return cut
	}
	if v.is('f') && !c.d.keywords["not"] {
		c.lose(v.at, "nothing fits here, which cannot be said; anything does")
		v = object(v.at)
	}
	v = c.plain(v)
	if ref := v.get("$ref"); ref != nil {
		return c.reference(v, ref.str(), depth, nullable)
	}
	if arms := v.get("allOf"); arms != nil && !c.d.keywords["allOf"] {
		return c.together(v, arms, depth, nullable)
	}
	if v.has("oneOf") && !c.d.keywords["oneOf"] && !v.has("anyOf") {
		v = rename(v, "oneOf", "anyOf")
	}
	if v.has("const") && !c.d.keywords["const"] {
		v = rename(v, "const", "enum").set("enum", list(v.get("const")))
	}
	if places := v.get("prefixItems"); places != nil && !c.d.keywords["prefixItems"] && !c.d.strict {
		v = c.anyPlace(v, places)
	}
	if arms := v.get("anyOf"); arms != nil {
		if single, null := withoutNull(arms); c.d.nullFlag || len(single) == 1 && !null {
			return c.alternatives(v, single, depth, nullable || null)
		}
	}
	return c.typed(v, depth, nullable)
}

// cut returns what takes the place of a schema for which there is no room.
func (c *converter) cut(v *value, depth int, nullable bool) *value {
	switch {
	case c.full():
		c.lose(v.at, "the schema has more than %d parts in the form that is sent; nothing is said of this one and what follows it", maxNodes)
	case depth > c.d.depth:
		c.lose(v.at, "the provider takes %d levels; what is below is left out", c.d.depth)
	default:
		return nil
	}
	c.unfit = true
	return c.anything(v.at, types(v), nullable)
}

// together rewrites a schema with allOf for a dialect that has none.
func (c *converter) together(v, arms *value, depth int, nullable bool) *value {
	if len(arms.items) == 1 { // a reference in it is still one
		return c.schema(c.both(c.plain(arms.items[0]), v.without("allOf")), depth, nullable)
	}
	flat, through := c.flat(v, nil)
	for _, to := range through {
		if c.times(to) > c.unroll {
			return c.recursion(v, flat, nullable)
		}
	}
	c.stack = append(c.stack, through...)
	defer func() { c.stack = c.stack[:len(c.stack)-len(through)] }()
	return c.schema(flat, depth, nullable)
}

// anyPlace says of a list with a schema for each place that each item fits one
// of them.
func (c *converter) anyPlace(v, places *value) *value {
	c.lose(places.at, "a schema for each place of a list cannot be said; the items may fit any of them")
	arms := list()
	for _, item := range append(slices.Clone(places.items), v.get("items")) {
		if item.is('{') && !slices.ContainsFunc(arms.items, func(o *value) bool { return same(o, item) }) {
			arms.items = append(arms.items, item)
		}
	}
	out := c.tell(v.without("prefixItems", "items"), "prefixItems", places)
	if v.get("items").is('f') && !v.has("maxItems") {
		out = out.copy().set("maxItems", number(len(places.items)))
	}
	switch len(arms.items) {
	case 0:
		return out
	case 1:
		return out.copy().set("items", arms.items[0])
	}
	return out.copy().set("items", object(places.at).set("anyOf", arms))
}

// rename returns v with a keyword under another name.
func rename(v *value, from, to string) *value {
	out := v.copy()
	out.names[slices.Index(out.names, from)] = to
	return out
}

// withoutNull returns the alternatives that are not null, and whether null is one.
func withoutNull(arms *value) (others []*value, null bool) {
	for _, arm := range arms.items {
		if t := arm.get("type"); t.is('"') && t.str() == "null" {
			null = true
		} else {
			others = append(others, arm)
		}
	}
	return others, null
}

// alternatives rewrites a schema with anyOf where there is only one, or where
// nothing may stand beside it.
func (c *converter) alternatives(v *value, arms []*value, depth int, nullable bool) *value {
	base := v.without("anyOf")
	if len(arms) == 0 {
		return c.typed(base.set("type", text("null")), depth, nullable)
	}
	describes := slices.ContainsFunc(arms, func(arm *value) bool {
		return slices.ContainsFunc(arm.names, func(name string) bool { return name != "required" && !annotations[name] })
	})
	if !describes { // the arms say which properties are needed, and nothing else
		c.lose(v.at+"/anyOf", "this cannot be said beside what the object is; it is put in words")
		return c.schema(c.tell(base, "anyOf", v.get("anyOf")), depth, nullable)
	}
	if len(arms) == 1 {
		return c.schema(c.both(c.plain(arms[0]), base), depth, nullable)
	}
	out := list()
	for _, arm := range arms {
		out.items = append(out.items, c.schema(c.both(c.plain(arm), base), depth+1, nullable))
	}
	return object(v.at).set("anyOf", out)
}

// typed rewrites a schema without a reference, by its types.
func (c *converter) typed(v *value, depth int, nullable bool) *value {
	found := types(v)
	if c.d.nullFlag || !c.d.typeLists {
		found, nullable = dropNull(v, found, nullable)
	}
	switch {
	case len(found) == 0 && c.d.typed && !v.has("anyOf"):
		return c.untyped(v, nullable)
	case len(found) > 1 && !c.d.typeLists:
		arms := list()
		for _, t := range found {
			arms.items = append(arms.items, c.keywords(only(v, t), t, depth+1, nullable))
		}
		return object(v.at).set("anyOf", arms)
	}
	one := ""
	if len(found) == 1 {
		one = found[0]
	}
	return c.keywords(v, one, depth, nullable)
}

// dropNull takes the type null away, for a dialect where null is a flag.
func dropNull(v *value, found []string, nullable bool) ([]string, bool) {
	if slices.Contains(found, "null") {
		nullable = true
		found = slices.DeleteFunc(slices.Clone(found), func(t string) bool { return t == "null" })
		if len(found) == 0 {
			found = []string{"string"} // null and nothing else: a text that may be null is nearest
		}
	}
	return found, nullable || v.get("enum").is('[') && slices.ContainsFunc(v.get("enum").items, func(i *value) bool { return i.is('n') })
}

// subject returns the type that a keyword speaks of, or nothing if it speaks of
// all of them.
func subject(keyword string) string {
	switch keyword {
	case "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
		"dependentRequired", "dependentSchemas", "unevaluatedProperties":
		return "object"
	case "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems":
		return "array"
	case "minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType":
		return "string"
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return "number"
	}
	return ""
}

// only returns what v says about values of one type.
func only(v *value, typ string) *value {
	out := object(v.at)
	for i, name := range v.names {
		of := subject(name)
		if name == "enum" && v.items[i].is('[') {
			fitting := list()
			for _, item := range v.items[i].items {
				if t := typeOf(item); t == typ || t == "integer" && typ == "number" {
					fitting.items = append(fitting.items, item)
				}
			}
			if len(fitting.items) > 0 {
				out.set(name, fitting)
			}
			continue
		}
		if of == "" || of == typ || of == "number" && typ == "integer" {
			out.set(name, v.items[i])
		}
	}
	return out.set("type", text(typ))
}

// untyped rewrites a schema that any value fits.
func (c *converter) untyped(v *value, nullable bool) *value {
	if !c.d.strict {
		c.lose(v.at, "any value fits here, which cannot be said; the model is offered text, numbers and booleans")
	}
	out := c.anything(v.at, nil, nullable)
	if d := v.get("description"); d != nil && !c.d.anyOfAlone {
		out.set("description", d)
	}
	return out
}

// anything is a schema that says no more than the types, which may be none.
func (c *converter) anything(at string, found []string, nullable bool) *value {
	switch {
	case len(found) > 0:
		if len(found) == 1 || c.d.typeLists {
			v := object(at).set("type", texts(found))
			if len(found) == 1 {
				v = schemaOf(at, found[0])
			}
			return c.finish(v, v, found, nullable)
		}
		return c.finish(schemaOf(at, found[0]), schemaOf(at, found[0]), found[:1], nullable)
	case c.d.strict:
		c.unfit = true
		return object(at)
	case !c.d.typed:
		return object(at)
	}
	arms := list()
	for _, t := range [...]string{"string", "number", "boolean"} {
		arms.items = append(arms.items, c.finish(schemaOf(at, t), schemaOf(at, t), []string{t}, nullable))
	}
	return object(at).set("anyOf", arms)
}

// reference rewrites a schema that refers to another one.
func (c *converter) reference(v *value, ref string, depth int, nullable bool) *value {
	to := c.resolve(ref)
	beside := v.without("$ref")
	switch {
	case to == nil:
		c.lose(v.at+"/$ref", "%s refers to nothing in this schema; anything fits here", clip(ref))
		return c.schema(beside, depth, nullable)
	case !c.d.refs, c.d.refAlone && !c.recursive(to):
		return c.writeOut(beside, to, depth, nullable)
	}
	pointer := text("#/$defs/" + c.define(to))
	out := object(v.at)
	if !c.d.refAlone {
		if len(beside.items) > 0 {
			out = c.keywords(beside, "", depth, false)
		}
		out.set("$ref", pointer)
	} else {
		out.set("$ref", pointer)
		for _, name := range beside.names {
			if !annotations[name] {
				c.lose(v.at+"/"+escape(name), "nothing may stand beside a reference; this is left out")
			}
		}
	}
	if !nullable {
		return out
	}
	described := object(v.at)
	if d := out.get("description"); d != nil {
		described.set("description", d)
		out = out.without("description")
	}
	return described.set("anyOf", list(out, schemaOf(v.at, "null")))
}

// writeOut puts what is referred to in the place of the reference.
func (c *converter) writeOut(beside, to *value, depth int, nullable bool) *value {
	target := c.plain(to)
	if target.at == "" {
		target.at = "#" // within itself it is no root
	}
	if c.times(to) > c.unroll {
		return c.recursion(beside, target, nullable)
	}
	c.stack = append(c.stack, to)
	defer func() { c.stack = c.stack[:len(c.stack)-1] }()
	return c.schema(c.both(beside, target), depth, nullable)
}

// times counts how often what is being written stands within v.
func (c *converter) times(v *value) int {
	n := 0
	for _, outer := range c.stack {
		if outer == v {
			n++
		}
	}
	return n
}

// recursion ends a schema that stands within itself.
func (c *converter) recursion(v, target *value, nullable bool) *value {
	c.lose(v.at, "the schema contains itself; it is written out %d times, and what is below is left out", c.unroll+1)
	return c.anything(v.at, types(target), nullable)
}
