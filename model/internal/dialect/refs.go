package dialect

import (
	"slices"
	"strconv"
	"strings"
)

// resolve returns what a reference within the schema refers to, or nil.
func (c *converter) resolve(ref string) *value {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	if fragment == "" {
		return c.src
	}
	if !strings.HasPrefix(fragment, "/") {
		return anchored(c.src, fragment)
	}
	v := c.src
	for step := range strings.SplitSeq(fragment[1:], "/") {
		step = fragmentEscapes.Replace(step)
		switch {
		case v.is('{'):
			v = v.get(step)
		case v.is('['):
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v.items) {
				return nil
			}
			v = v.items[i]
		default:
			return nil
		}
		if v == nil {
			return nil
		}
	}
	return v
}

// fragmentEscapes are the escapes of a JSON Pointer that stands in a URI.
var fragmentEscapes = strings.NewReplacer("~1", "/", "~0", "~", "%25", "%", "%22", `"`, "%20", " ")

// anchored finds the schema that has an anchor.
func anchored(v *value, anchor string) *value {
	if v.get("$anchor").is('"') && v.get("$anchor").str() == anchor {
		return v
	}
	for _, item := range v.items {
		if found := anchored(item, anchor); found != nil {
			return found
		}
	}
	return nil
}

// recursive reports whether v refers to itself, through whatever lies between.
func (c *converter) recursive(v *value) bool {
	if known, ok := c.loops[v]; ok {
		return known
	}
	seen := map[*value]bool{}
	var reaches func(from *value) bool
	reaches = func(from *value) bool {
		if seen[from] {
			return false
		}
		seen[from] = true
		if ref := from.get("$ref"); ref.is('"') {
			if to := c.resolve(ref.str()); to != nil && (to == v || reaches(to)) {
				return true
			}
		}
		return slices.ContainsFunc(from.items, reaches)
	}
	c.loops[v] = reaches(v)
	return c.loops[v]
}

// flat returns a schema without a reference and without allOf at its top: what
// they say is put into it. Through are the references that were followed.
func (c *converter) flat(v *value, through []*value) (*value, []*value) {
	v = c.plain(v)
	if c.full() {
		return v.without("$ref", "allOf"), through
	}
	if ref := v.get("$ref"); ref != nil {
		to := c.resolve(ref.str())
		v = v.without("$ref")
		switch {
		case to == nil:
			c.lose(v.at+"/$ref", "%s refers to nothing in this schema; anything fits here", clip(ref.str()))
		case slices.Contains(through, to):
			c.lose(v.at+"/$ref", "this refers to itself and says nothing")
		default:
			target, _ := c.flat(to, append(slices.Clone(through), to))
			v, through = c.both(v, target), append(through, to)
		}
	}
	if arms := v.get("allOf"); arms != nil {
		v = v.without("allOf")
		for _, arm := range arms.items {
			var flat *value
			flat, through = c.flat(arm, through)
			v = c.both(v, flat)
		}
	}
	return v, through
}

// define returns the name of the definition of v, which is written later.
func (c *converter) define(v *value) string {
	if name, ok := c.names[v]; ok {
		return name
	}
	base := strings.Map(func(r rune) rune {
		if anthropicName(string(r)) && r != '.' {
			return r
		}
		return '_'
	}, v.at[strings.LastIndexByte(v.at, '/')+1:])
	base = base[:min(len(base), 48)]
	if base == "" {
		base = "root"
	}
	name := base
	for n := 2; c.taken[name]; n++ {
		name = base + "_" + strconv.Itoa(n)
	}
	c.taken[name] = true
	c.names[v] = name
	c.pending = append(c.pending, v)
	return name
}

// definitions writes what the references refer to.
func (c *converter) definitions() *value {
	defs := object("")
	for len(c.pending) > 0 {
		v := c.pending[0]
		c.pending = c.pending[1:]
		defs.set(c.names[v], c.schema(v, 1, false))
	}
	return defs
}

// clip bounds what is quoted of a schema.
func clip(s string) string {
	if len(s) <= 80 {
		return s
	}
	return strings.ToValidUTF8(s[:80], "") + "…"
}
