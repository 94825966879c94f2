package schema

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A constraint is a struct tag that constrains a value.
type constraint struct {
	tag      string
	keyword  string // of JSON Schema
	kinds    kind   // the kinds of value that it applies to
	elements bool   // on a slice it constrains the elements
	// literal reads the tag's content for a value of the schema.
	literal func(s *value, content string) (*value, error)
}

func constraints() []constraint {
	return []constraint{
		{"enum", "enum", text | number, true, listLiteral},
		{"min", "minimum", number, true, numberLiteral},
		{"max", "maximum", number, true, numberLiteral},
		{"exclusiveMin", "exclusiveMinimum", number, true, numberLiteral},
		{"exclusiveMax", "exclusiveMaximum", number, true, numberLiteral},
		{"pattern", "pattern", text, true, textLiteral},
		{"format", "format", text, true, formatLiteral},
		{"minLength", "minLength", text, true, numberLiteral},
		{"maxLength", "maxLength", text, true, numberLiteral},
		{"minItems", "minItems", array, false, numberLiteral},
		{"maxItems", "maxItems", array, false, numberLiteral},
		{"default", "default", anyKind, false, valueLiteral},
		{"example", "examples", anyKind, false, exampleLiteral},
	}
}

// loosens reports whether a limit is wider than that of the type.
func (c constraint) loosens(old, v *value) bool {
	switch c.keyword {
	case "minimum", "minItems":
		return v.rat().Cmp(old.rat()) < 0
	case "maximum", "maxItems":
		return v.rat().Cmp(old.rat()) > 0
	}
	return false
}

// keyed matches what other packages put into a jsonschema tag.
var keyed = regexp.MustCompile(`^[A-Za-z]+=`)

// constrain adds to the schema of the field's type what the field's tags say.
func (f field) constrain(s *value) (*value, error) {
	if d := f.tag.Get("jsonschema"); d != "" {
		if keyed.MatchString(d) {
			return nil, fmt.Errorf("the tag jsonschema:%q is taken for the description: write constraints as tags of their own, such as enum:\"a,b\"", d)
		}
		if s.get("$ref") != nil { // some services ignore what stands beside a reference
			s = newObject().set("allOf", newArray(s))
		}
		if own := s.get("description"); own != nil && own.text == durationPhrase { // a model has to know the form
			d += "; " + durationPhrase
		}
		s.set("description", newText(d))
	}
	for _, c := range constraints() {
		content, ok := f.tag.Lookup(c.tag)
		if !ok {
			continue
		}
		target := s
		if items := s.get("items"); items != nil && c.elements {
			target = items
		}
		if c.kinds != anyKind && schemaKind(target)&c.kinds == 0 {
			return nil, fmt.Errorf("the tag %s does not apply to a %v", c.tag, f.typ)
		}
		v, err := c.literal(target, content)
		if err != nil {
			return nil, fmt.Errorf("the tag %s:%q: %w", c.tag, content, err)
		}
		if old := target.get(c.keyword); old != nil && c.loosens(old, v) {
			return nil, fmt.Errorf("the tag %s:%q: the type's own limit is %s", c.tag, content, old.text)
		}
		target.set(c.keyword, v)
	}
	return s, f.verify(s)
}

// verify rejects tags that contradict each other or the type of the field.
func (f field) verify(s *value) error {
	if s.refers() {
		return nil // needs the definitions; Parse checks the default
	}
	typ := f.typ
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if items := s.get("items"); items != nil {
		if err := verifyValues(items, typ.Elem()); err != nil {
			return err
		}
	}
	return verifyValues(s, typ)
}

// verifyValues checks that the values which the tags name fit the schema and
// the Go type, and that some value can fit.
func verifyValues(s *value, typ reflect.Type) error {
	for _, pair := range [][2]string{{"minimum", "maximum"}, {"minLength", "maxLength"}, {"minItems", "maxItems"}} {
		low, high := s.get(pair[0]), s.get(pair[1])
		if low != nil && high != nil && low.rat().Cmp(high.rat()) > 0 {
			return fmt.Errorf("%s %s is above %s %s", pair[0], low.text, pair[1], high.text)
		}
	}
	n, all, err := compile(s)
	if err != nil {
		return err
	}
	enforce(all)
	if n.lower != nil && n.upper != nil {
		if cmp := n.lower.limit.Cmp(n.upper.limit); cmp > 0 || cmp == 0 && (n.lower.exclusive || n.upper.exclusive) {
			return fmt.Errorf("no number is between %s and %s", n.lower.text, n.upper.text)
		}
	}
	unlisted := s.clone()
	unlisted.drop(func(i int) bool { return unlisted.keys[i] == "enum" || unlisted.keys[i] == "default" })
	loose, all, err := compile(unlisted)
	if err != nil {
		return err
	}
	enforce(all)
	for _, named := range []struct {
		what   string
		values []*value
		fit    *node
	}{
		{"enum", n.enum, loose},
		{"example", elements(s.get("examples")), n},
		{"default", elements(newArray(s.get("default"))), n},
	} {
		for _, v := range named.values {
			if err := check(named.fit, v); err != nil {
				return fmt.Errorf("%s %s: %w", named.what, show(v), err)
			}
			if err := Unmarshal(v.append(nil), reflect.New(typ).Interface()); err != nil {
				return fmt.Errorf("%s %s does not fit %v: %w", named.what, show(v), typ, err)
			}
		}
	}
	return nil
}

// elements returns the elements of an array that may be missing, or have none.
func elements(v *value) []*value {
	if v == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.items), func(item *value) bool { return item == nil })
}

// schemaKind is the kind of value that an inferred schema allows, none if it
// is a reference.
func schemaKind(s *value) kind {
	if s.get("$ref") != nil || s.get("allOf") != nil {
		return 0
	}
	t := s.get("type")
	if t == nil || t.kind != text {
		return anyKind
	}
	return typeKinds[t.text]
}

func textLiteral(_ *value, content string) (*value, error) {
	if content == "" {
		return nil, errors.New("is empty")
	}
	return newText(content), nil
}

func formatLiteral(_ *value, content string) (*value, error) {
	if _, ok := formats[content]; !ok {
		return nil, errors.New("is not a format that is checked; there are " + formatNames())
	}
	return newText(content), nil
}

func numberLiteral(_ *value, content string) (*value, error) {
	doc, err := parse(content)
	if err != nil || doc.root.kind != number {
		return nil, errors.New("want a number")
	}
	return doc.root, nil
}

// valueLiteral reads text as itself where the schema wants a string, and as
// JSON elsewhere.
func valueLiteral(s *value, content string) (*value, error) {
	if schemaKind(s) == text {
		return newText(content), nil
	}
	doc, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("want JSON: %w", err)
	}
	return doc.root, nil
}

func exampleLiteral(s *value, content string) (*value, error) {
	v, err := valueLiteral(s, content)
	return newArray(v), err
}

func listLiteral(s *value, content string) (*value, error) {
	list := newArray()
	for part := range strings.SplitSeq(content, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return nil, errors.New("has an empty value")
		}
		v, err := valueLiteral(s, part)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list.items, v.equal) {
			return nil, fmt.Errorf("lists %s twice", strconv.Quote(part))
		}
		list.items = append(list.items, v)
	}
	return list, nil
}
