package dialect

import (
	"slices"
	"strings"
)

// annotations say nothing about which values fit; what a dialect does not know
// of them is left out without a word.
var annotations = set(`title description default example examples deprecated readOnly writeOnly $comment $schema $id id
	$anchor $vocabulary nullable discriminator xml externalDocs contentEncoding contentMediaType contentSchema
	$defs definitions minContains maxContains`)

// plain returns a schema as an object, in the forms of draft 2020-12 and without
// what speaks to tools only.
func (c *converter) plain(v *value) *value {
	switch {
	case v.is('t'):
		return object(v.at)
	case v.is('f'):
		return object(v.at).set("not", object(v.at))
	case !v.is('{'):
		return object(v.at)
	}
	out := object(v.at)
	for i, name := range v.names {
		item := v.items[i]
		switch name {
		case "$schema", "$id", "id", "$comment", "$vocabulary", "$anchor", "$defs", "definitions", "nullable",
			"discriminator", "xml", "externalDocs", "contentSchema":
			continue
		case "items":
			if item.is('[') {
				out.set("prefixItems", item)
				if rest := v.get("additionalItems"); rest != nil {
					out.set("items", rest)
				}
				continue
			}
		case "additionalItems":
			continue
		case "exclusiveMinimum", "exclusiveMaximum":
			limit := strings.ToLower(strings.TrimPrefix(name, "exclusive"))
			if !item.is('0') {
				if item.is('t') && v.has(limit) {
					out = out.without(limit).set(name, v.get(limit))
				}
				continue
			}
		case "minimum", "maximum":
			if v.get("exclusive" + strings.ToUpper(name[:1]) + name[1:]).is('t') {
				continue
			}
		case "dependencies":
			dependencies(out, item)
			continue
		}
		if !wellFormed(name, item) {
			c.lose(v.at+"/"+escape(name), "this is no value for %s; it is left out", clip(name))
			continue
		}
		out.set(name, item)
	}
	return out
}

// wellFormed reports whether a keyword has a value of a form that it can have.
// What comes from elsewhere need not, and providers refuse it.
func wellFormed(keyword string, v *value) bool {
	switch keyword {
	case "type":
		return v.is('"') && typeNames[v.str()] || v.is('[') && len(v.items) > 0 && !slices.ContainsFunc(v.strs(), func(s string) bool { return !typeNames[s] })
	case "properties", "patternProperties", "dependentSchemas", "dependentRequired":
		return v.is('{')
	case "required", "enum", "anyOf", "oneOf", "allOf", "prefixItems", "examples":
		return v.is('[')
	case "items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties":
		return v.is('{') || v.is('t') || v.is('f')
	case "title", "description", "format", "pattern", "$ref", "contentEncoding", "contentMediaType":
		return v.is('"')
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems",
		"minProperties", "maxProperties", "minContains", "maxContains":
		return v.is('0')
	case "uniqueItems", "deprecated", "readOnly", "writeOnly":
		return v.is('t') || v.is('f')
	}
	return true
}

// typeNames are the types.
var typeNames = set("object array string number integer boolean null")

// dependencies splits the draft-07 form of what is two keywords today.
func dependencies(out, deps *value) {
	required, schemas := object(deps.at), object(deps.at)
	if deps.is('{') {
		for i, name := range deps.names {
			if deps.items[i].is('[') {
				required.set(name, deps.items[i])
			} else {
				schemas.set(name, deps.items[i])
			}
		}
	}
	if len(required.items) > 0 {
		out.set("dependentRequired", required)
	}
	if len(schemas.items) > 0 {
		out.set("dependentSchemas", schemas)
	}
}

// types returns the types that a schema names, or, where it names none, the one
// that its other keywords speak of. None means any.
func types(v *value) []string {
	switch t := v.get("type"); {
	case t.is('"'):
		return []string{t.str()}
	case t.is('['):
		return union(nil, t.strs())
	}
	for _, w := range [...]struct{ typ, keywords string }{
		{"object", "properties additionalProperties patternProperties required minProperties maxProperties propertyNames"},
		{"array", "items prefixItems minItems maxItems uniqueItems contains"},
		{"string", "pattern minLength maxLength format"},
		{"number", "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"},
	} {
		for k := range strings.FieldsSeq(w.keywords) {
			if v.has(k) {
				return []string{w.typ}
			}
		}
	}
	values := v.get("enum")
	if c := v.get("const"); c != nil {
		values = list(c)
	}
	if !values.is('[') {
		return nil
	}
	var found []string
	for _, item := range values.items {
		if t := typeOf(item); !slices.Contains(found, t) {
			found = append(found, t)
		}
	}
	return found
}

// typeOf returns the type of a value.
func typeOf(v *value) string {
	switch v.kind {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if strings.ContainsAny(v.raw, ".eE") {
		return "number"
	}
	return "integer"
}
