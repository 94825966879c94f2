package dialect

import (
	"slices"
	"strings"
)

// keywords rewrites what a schema says, keyword by keyword. Typ is its only
// type, or empty.
func (c *converter) keywords(v *value, typ string, depth int, nullable bool) *value {
	out := object(v.at)
	told := object(v.at) // what is to be told in words
	for i, name := range v.names {
		item, at := v.items[i], v.at+"/"+escape(name)
		switch {
		case name == "type" || name == "properties" || name == "required":
			out.set(name, item) // keeps its place; below it gets its value
		case name == "additionalProperties" && v.has("patternProperties") && !c.d.keywords["patternProperties"]:
			// It speaks of what no pattern fits, and the patterns cannot be said.
		case !c.d.keywords[name]:
			c.unsaid(out, told, name, item, at)
		case name == "format" && c.d.formats != nil && !c.d.formats[item.str()]:
			c.lose(at, "the format %s is not understood; it is put in words", clip(item.str()))
			told.set(name, item)
		case name == "enum":
			c.enum(out, told, item, typ, at)
		case name == "items" || name == "contains" || name == "not" || name == "if" || name == "then" || name == "else" ||
			name == "propertyNames" || name == "unevaluatedItems" || name == "unevaluatedProperties" || name == "additionalProperties":
			c.below(out, v, name, item, depth)
		case name == "anyOf" || name == "oneOf" || name == "allOf" || name == "prefixItems":
			arms := list()
			for _, arm := range item.items {
				arms.items = append(arms.items, c.schema(arm, depth+1, false))
			}
			if len(arms.items) > 0 {
				out.set(name, arms)
			}
		case name == "patternProperties" || name == "dependentSchemas":
			each := object(at)
			for i, key := range item.names {
				each.set(key, c.schema(item.items[i], depth+1, false))
			}
			out.set(name, each)
		default:
			out.set(name, item)
		}
	}
	found := types(v)
	if typ != "" {
		found = []string{typ}
	}
	if len(found) > 0 && (v.has("type") || c.d.typed) {
		out = withType(out, found)
	}
	if slices.Contains(found, "object") || v.has("properties") || v.has("required") {
		c.properties(out, told, v, depth)
	}
	for i, name := range told.names {
		out = c.tell(out, name, told.items[i])
	}
	return c.finish(out, v, found, nullable)
}

// below rewrites the one schema under a keyword.
func (c *converter) below(out, v *value, name string, item *value, depth int) {
	switch {
	case item.is('t') && name != "items", item.is('f') && (c.d.keywords["not"] || name == "additionalProperties"):
		out.set(name, item)
	case item.is('f') && name == "items":
		if places := v.get("prefixItems"); !v.has("maxItems") {
			out.set("maxItems", number(len(places.orEmpty())))
		}
	default:
		out.set(name, c.schema(item, depth+1, false))
	}
}

// withType sets the type in its place, or in front where it follows from what
// the schema says. A combination says it by itself.
func withType(out *value, found []string) *value {
	t := texts(found)
	if len(found) == 1 {
		t = text(found[0])
	}
	switch {
	case out.has("type"):
		return out.set("type", t)
	case out.has("anyOf") || out.has("$ref"):
		return out
	}
	typed := object(out.at).set("type", t)
	typed.names, typed.items = append(typed.names, out.names...), append(typed.items, out.items...)
	return typed
}

// unsaid deals with a keyword that the dialect does not have.
func (c *converter) unsaid(out, told *value, name string, item *value, at string) {
	switch {
	case name == "default" && !c.d.keywords[name]:
		told.set(name, item)
	case annotations[name]:
	case name == "additionalProperties" && (item.is('f') || item.is('t')): // models add nothing unasked
	case name == "exclusiveMinimum" && item.is('0') && c.d.keywords["minimum"] && !out.has("minimum"):
		c.lose(at, "the limit itself is excluded, which is put in words")
		told.set(name, item)
		out.set("minimum", item)
	case name == "exclusiveMaximum" && item.is('0') && c.d.keywords["maximum"] && !out.has("maximum"):
		c.lose(at, "the limit itself is excluded, which is put in words")
		told.set(name, item)
		out.set("maximum", item)
	case !known[name]: // an extension, which says nothing to a model either
	default:
		c.lose(at, "%s is not understood; it is put in words where it is short", name)
		told.set(name, item)
		if c.d.strict && (name == "patternProperties" || name == "prefixItems") {
			c.unfit = true
		}
	}
}

// known are the keywords of JSON Schema.
var known = set(all)

// enum writes a list of constants.
func (c *converter) enum(out, told, item *value, typ, at string) {
	if !item.is('[') || len(item.items) == 0 {
		return
	}
	if c.enums += len(item.items); c.d.strict && c.enums > maxEnums {
		c.unfit = true
	}
	if !c.d.textEnums {
		out.set("enum", item)
		return
	}
	words := list()
	for _, i := range item.items {
		switch i.kind {
		case '"':
			words.items = append(words.items, i)
		case '0':
			words.items = append(words.items, text(i.raw))
		case 'n':
		default:
			c.lose(at, "only text can be listed; the list is put in words")
			told.set("enum", item)
			return
		}
	}
	if len(words.items) == 0 || typ == "boolean" {
		return
	}
	out.set("enum", words)
}

// properties writes the properties of an object and which of them are required.
func (c *converter) properties(out, told *value, v *value, depth int) {
	from := v.get("properties")
	if !from.is('{') {
		from = object(v.at + "/properties")
	}
	required := v.get("required").strs()
	closed := v.get("additionalProperties").is('f')
	written, unsent := object(from.at), object(from.at)
	for i, name := range from.names {
		item := from.items[i]
		switch {
		case c.d.names != nil && !c.d.names(name):
			c.lose(item.at, "the provider does not take a property of this name; it is put in words")
			unsent.set(name, item)
			continue
		case item.is('f') && !c.d.keywords["not"]:
			continue // never there
		}
		optional := !slices.Contains(required, name)
		written.set(name, c.schema(item, depth+1, c.d.strict && optional))
	}
	if len(unsent.items) > 0 {
		told.set("properties", unsent)
		out.remove("additionalProperties") // it would speak of those too
	}
	if v.has("properties") || c.d.strict {
		out.set("properties", written)
	}
	if c.d.strict {
		if extra := v.get("additionalProperties"); extra != nil && !closed {
			c.lose(v.at+"/additionalProperties", "an object with other properties than those listed cannot be enforced")
			c.unfit = true
		}
		out.set("required", texts(written.names)).set("additionalProperties", literal("false"))
		return
	}
	needed := slices.DeleteFunc(union(nil, required), func(name string) bool { return !c.require(written, name) })
	if len(needed) > 0 {
		out.set("required", texts(needed))
	} else {
		out.remove("required")
	}
}

// require reports whether a property may be required.
func (c *converter) require(written *value, name string) bool {
	p := written.get(name)
	if c.d.refAlone && p != nil && mentions(p, "$ref") {
		c.lose(p.at, "a property that contains itself cannot be required; it is offered as one that may be absent")
		return false
	}
	return p != nil || !c.d.filled && (c.d.names == nil || c.d.names(name))
}

// mentions reports whether a keyword is anywhere in v.
func mentions(v *value, keyword string) bool {
	return v.has(keyword) || slices.ContainsFunc(v.items, func(item *value) bool { return mentions(item, keyword) })
}

// finish makes a schema whole for what the dialect insists on. It is given the
// schema as it is so far, the one that it comes from, and the types.
func (c *converter) finish(out, v *value, found []string, nullable bool) *value {
	if slices.Contains(found, "array") && c.d.itemized && !out.has("items") {
		out = out.copy().set("items", c.anything(v.at+"/items", nil, false))
	}
	if c.d.filled && slices.Contains(found, "object") && len(out.get("properties").orEmpty()) == 0 && v.at != "" {
		c.lose(v.at, "an object without listed properties cannot be said; the model is asked for its JSON as text")
		return c.asText(out, nullable)
	}
	if c.d.textEnums && out.has("enum") {
		out = out.without("minimum", "maximum", "format").set("type", text("string"))
	}
	if nullable {
		out = c.orNull(out)
	}
	if c.d.capitals {
		if t := out.get("type"); t.is('"') {
			out = out.copy().set("type", text(strings.ToUpper(t.str())))
		}
	}
	return out
}

// orEmpty returns the members of an object that may be missing.
func (v *value) orEmpty() []*value {
	if v == nil {
		return nil
	}
	return v.items
}

// asText is a schema for the JSON of what out describes.
func (c *converter) asText(out *value, nullable bool) *value {
	s := schemaOf(out.at, "string")
	d := out.get("description").str()
	if d != "" {
		d += "\n\n"
	}
	s.set("description", text(d+"A JSON object, written as text."))
	return c.finish(s, s, []string{"string"}, nullable)
}

// orNull allows null.
func (c *converter) orNull(out *value) *value {
	if c.d.nullFlag {
		return out.copy().set("nullable", literal("true"))
	}
	if e := out.get("enum"); e.is('[') {
		if !slices.ContainsFunc(e.items, func(i *value) bool { return i.is('n') }) {
			out = out.copy().set("enum", list(append(slices.Clone(e.items), literal("null"))...))
		}
	}
	if con := out.get("const"); con != nil {
		out = rename(out, "const", "enum").set("enum", list(con, literal("null")))
	}
	switch t := out.get("type"); {
	case t.is('"') && t.str() != "null":
		return out.copy().set("type", list(t, text("null")))
	case t.is('['):
		return out.copy().set("type", texts(union(t.strs(), []string{"null"})))
	}
	if arms := out.get("anyOf"); arms.is('[') {
		if _, null := withoutNull(arms); !null {
			return out.copy().set("anyOf", list(append(slices.Clone(arms.items), schemaOf(out.at, "null"))...))
		}
	}
	return out
}

// without removes a keyword that cannot be said, and puts it in words.
func (c *converter) without(v *value, name, why string) *value {
	c.lose(v.at+"/"+escape(name), "%s %s; it is put in words where it is short", name, why)
	return c.tell(v.without(name), name, v.get(name))
}

// tell adds to the description of a schema what it cannot say otherwise. What
// takes too many words is left out.
func (c *converter) tell(v *value, name string, item *value) *value {
	if c.d.root != nil && v.at == "" && !c.d.root["description"] {
		return v
	}
	fragment := object("").set(name, item).String()
	if len(fragment) > maxTold {
		return v
	}
	prefix := "Must also fit the JSON Schema "
	if name == "default" {
		prefix, fragment = "Default: ", item.String()
	}
	d := v.get("description").str()
	if d != "" {
		d += "\n\n"
	}
	return v.copy().set("description", text(d+prefix+fragment))
}
