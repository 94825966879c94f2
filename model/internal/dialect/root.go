package dialect

import "slices"

// rootObject returns the schema as that of an object: arguments are one,
// whatever a server of tools says.
func (c *converter) rootObject() *value {
	v := c.plain(c.src)
	if v.has("$ref") || v.has("allOf") && c.d.forbids("allOf") {
		v, _ = c.flat(v, nil)
	}
	for _, name := range [...]string{"anyOf", "oneOf"} {
		if arms := v.get(name); arms.is('[') && c.d.forbids(name) {
			v = c.oneObject(v.without(name), arms, name)
		}
	}
	for _, name := range slices.Clone(v.names) {
		if c.d.notRoot[name] {
			v = c.without(v, name, "cannot be said at the root")
		}
	}
	if v.has("type") && !slices.Contains(types(v), "object") {
		c.lose(v.at+"/type", "the arguments of a tool are an object, and no object fits this schema; the model is told nothing of them")
		c.unfit = true
		v = object(v.at)
	}
	out := schemaOf(v.at, "object")
	if !v.has("properties") {
		out.set("properties", object(v.at+"/properties"))
	}
	for i, name := range v.names {
		if name != "type" {
			out.set(name, v.items[i])
		}
	}
	return out
}

// forbids reports whether a combination must not stand at the root.
func (d Dialect) forbids(keyword string) bool {
	return d.notRoot[keyword] || !d.keywords[keyword] || d.root != nil && !d.root[keyword] || d.strict || d.anyOfAlone
}

// oneObject returns one object for the alternatives of a root: it has the
// properties of all of them, and requires what each of them requires.
func (c *converter) oneObject(base, arms *value, keyword string) *value {
	out := base.copy()
	var all []*value
	for _, arm := range arms.items {
		arm, _ = c.flat(arm, nil)
		if t := types(arm); len(t) > 0 && !slices.Contains(t, "object") && len(arm.names) > 0 {
			continue // null, or what no arguments can be
		}
		for _, nested := range [...]string{"anyOf", "oneOf"} {
			if inner := arm.get(nested); inner.is('[') && !c.full() {
				arm = c.oneObject(arm.without(nested), inner, nested)
			}
		}
		all = append(all, arm)
	}
	if len(all) == 0 {
		return out
	}
	c.lose(arms.at, "alternatives cannot be said at the root; the model is offered the properties of all of them in one object")
	properties := object(arms.at)
	if p := base.get("properties"); p.is('{') {
		properties = p.copy()
	}
	required := all[0].get("required").strs()
	closed := base.get("additionalProperties").is('f')
	open := false
	for _, arm := range all {
		needs := arm.get("required").strs()
		required = slices.DeleteFunc(required, func(s string) bool { return !slices.Contains(needs, s) })
		closed = closed || arm.get("additionalProperties").is('f')
		open = open || !arm.get("additionalProperties").is('f') && !base.get("additionalProperties").is('f')
		c.addProperties(properties, arm.get("properties"))
	}
	if len(properties.items) > 0 {
		out.set("properties", properties)
	}
	if required = union(base.get("required").strs(), required); len(required) > 0 {
		out.set("required", texts(required))
	}
	if closed && !open {
		out.set("additionalProperties", literal("false"))
	}
	return c.tell(out, keyword, arms)
}

// addProperties adds properties of an alternative. One that differs between
// alternatives may be either, and constants become one list.
func (c *converter) addProperties(to, from *value) {
	if !from.is('{') {
		return
	}
	for i, name := range from.names {
		mine, theirs := to.get(name), from.items[i]
		switch {
		case mine == nil:
			to.set(name, theirs)
		case same(mine, theirs):
		default:
			to.set(name, c.either(mine, theirs))
		}
	}
}

// either returns a schema for what fits one of two.
func (c *converter) either(a, b *value) *value {
	x, y := c.plain(a), c.plain(b)
	if v, w := constants(x), constants(y); v != nil && w != nil {
		out := x.without("const")
		if !same(typeList(x), typeList(y)) {
			out = out.without("type")
		}
		for _, item := range w {
			if !slices.ContainsFunc(v, func(o *value) bool { return same(o, item) }) {
				v = append(slices.Clone(v), item)
			}
		}
		return out.set("enum", list(v...))
	}
	arms := list(a)
	if inner := x.get("anyOf"); inner.is('[') && len(x.names) == 1 {
		arms = list(slices.Clone(inner.items)...)
	}
	if !slices.ContainsFunc(arms.items, func(o *value) bool { return same(o, b) }) {
		arms.items = append(arms.items, b)
	}
	return object(a.at).set("anyOf", arms)
}

// constants returns the values of a schema that does nothing but list them.
func constants(v *value) []*value {
	for _, name := range v.names {
		if name != "const" && name != "enum" && name != "type" && !annotations[name] {
			return nil
		}
	}
	switch {
	case v.has("const"):
		return []*value{v.get("const")}
	case v.get("enum").is('['):
		return v.get("enum").items
	}
	return nil
}

func typeList(v *value) *value { return texts(types(v)) }
