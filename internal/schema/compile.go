package schema

import (
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxSchema bounds the bytes of a schema, maxSchemaValues its parts.
	maxSchema       = 1 << 20
	maxSchemaValues = 50_000

	// maxInPlace bounds how many subschemas may apply to one value in a row.
	// With MaxDepth it bounds the stack of a check.
	maxInPlace = 100
)

// defect is a keyword of a schema that cannot be used.
type defect struct {
	in      *value // the schema that has the keyword
	where   string // its pointer
	keyword string
	msg     string
}

func (d *defect) Error() string {
	where := d.where
	if where == "" {
		where = "the root"
	}
	if d.keyword == "" {
		return fmt.Sprintf("schema: %s: %s", where, d.msg)
	}
	return fmt.Sprintf("schema: %s: %s: %s", where, d.keyword, d.msg)
}

// compiler turns a JSON Schema into nodes, one for each subschema that
// something refers to.
type compiler struct {
	root   *value
	nodes  map[*value]*node
	list   []*node // nodes in the order of discovery
	draft7 bool    // $ref hides its siblings

	resources map[string]*value // by absolute URI, without fragment
	anchors   map[string]*value // by URI with fragment
	base      map[*value]string // of the schemas that were indexed
}

// compile returns the root node of a schema and all its nodes.
func compile(root *value) (*node, []*node, error) {
	c := &compiler{
		root:      root,
		nodes:     map[*value]*node{},
		resources: map[string]*value{},
		anchors:   map[string]*value{},
		base:      map[*value]string{},
	}
	if draft := root.get("$schema"); draft != nil && draft.kind == text {
		c.draft7 = strings.Contains(draft.text, "/draft-0")
	}
	c.resources[""] = root
	c.index(root, "")
	n, err := c.schema(root, "")
	if err != nil {
		return nil, nil, err
	}
	if err := c.analyze(); err != nil {
		return nil, nil, err
	}
	for _, n := range c.list {
		if n.preset == nil {
			continue
		}
		if err := check(n, n.preset); err != nil {
			return nil, nil, &defect{n.src, n.where, "default", "does not fit its own schema: " + err.Error()}
		}
	}
	return n, c.list, nil
}

// subschemas lists the keywords whose values are schemas.
var subschemas = struct{ one, list, named []string }{
	one: []string{
		"not", "if", "then", "else", "items", "additionalItems", "contains", "additionalProperties",
		"propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
	},
	list:  []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"},
	named: []string{"$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies"},
}

// index records the names by which references reach v and what is below it.
func (c *compiler) index(v *value, base string) {
	if v.kind != object {
		return
	}
	if _, seen := c.base[v]; seen {
		return
	}
	hidden := c.draft7 && v.get("$ref") != nil
	if id := v.get("$id"); id != nil && id.kind == text && !hidden {
		if anchor, ok := strings.CutPrefix(id.text, "#"); ok { // draft-07's form of an anchor
			c.anchors[base+"#"+anchor] = v
		} else if uri, _, err := resolveURI(base, id.text); err == nil {
			base = uri
			c.resources[base] = v
		}
	}
	c.base[v] = base
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if anchor := v.get(keyword); anchor != nil && anchor.kind == text {
			c.anchors[base+"#"+anchor.text] = v
		}
	}
	for _, keyword := range subschemas.one {
		if sub := v.get(keyword); sub != nil {
			c.index(sub, base)
		}
	}
	for _, keyword := range subschemas.list {
		if subs := v.get(keyword); subs != nil && subs.kind == array {
			for _, sub := range subs.items {
				c.index(sub, base)
			}
		}
	}
	for _, keyword := range subschemas.named {
		if subs := v.get(keyword); subs != nil && subs.kind == object {
			for _, sub := range subs.items {
				c.index(sub, base)
			}
		}
	}
}

// resolveURI resolves a reference and splits off the fragment.
func resolveURI(base, ref string) (uri, fragment string, err error) {
	b, err := url.Parse(base)
	if err != nil {
		return "", "", err
	}
	r, err := url.Parse(ref)
	if err != nil {
		return "", "", err
	}
	if base == "" && !r.IsAbs() && r.Host == "" && r.Path == "" {
		return "", r.Fragment, nil
	}
	u := b.ResolveReference(r)
	fragment = u.Fragment
	u.Fragment, u.RawFragment = "", ""
	return u.String(), fragment, nil
}

// resolve finds the schema that a reference in v means.
func (c *compiler) resolve(v *value, ref string) (*value, string, error) {
	uri, fragment, err := resolveURI(c.base[v], ref)
	if err != nil {
		return nil, "", fmt.Errorf("%s is not a URI reference", strconv.Quote(ref))
	}
	resource := c.resources[uri]
	if resource == nil {
		return nil, "", fmt.Errorf("%s is not part of this schema; schemas are not fetched, put it under $defs", strconv.Quote(ref))
	}
	if fragment == "" {
		return resource, "#", nil
	}
	if !strings.HasPrefix(fragment, "/") {
		if target := c.anchors[uri+"#"+fragment]; target != nil {
			return target, "#" + fragment, nil
		}
		return nil, "", fmt.Errorf("there is no anchor %s", strconv.Quote(fragment))
	}
	target := resource
	for token := range strings.SplitSeq(fragment[1:], "/") {
		if target = target.step(unescapePointer(token)); target == nil {
			return nil, "", fmt.Errorf("%s points at nothing", strconv.Quote(ref))
		}
	}
	c.index(target, uri)
	return target, fragment, nil
}

// step descends by one token of a pointer.
func (v *value) step(token string) *value {
	if v.kind != array {
		return v.get(token)
	}
	if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v.items) {
		return v.items[i]
	}
	return nil
}

// schema compiles one subschema, once.
func (c *compiler) schema(v *value, where string) (*node, error) {
	if n := c.nodes[v]; n != nil {
		return n, nil
	}
	n := &node{src: v, where: where}
	c.nodes[v] = n
	c.list = append(c.list, n)
	switch v.kind {
	case boolean:
		n.never = !v.truth
		return n, nil
	case object:
	default:
		return nil, &defect{v, where, "", "a schema is an object, true or false, this is " + article(v.kind)}
	}
	if ref := v.get("$ref"); ref != nil && c.draft7 {
		return n, c.keyword(n, "$ref", ref)
	}
	for i, key := range v.keys {
		if err := c.keyword(n, key, v.items[i]); err != nil {
			return nil, err
		}
	}
	return n, c.join(n)
}

// keyword compiles one keyword of n. Those that only describe are ignored.
func (c *compiler) keyword(n *node, key string, v *value) error {
	err := c.parse(n, key, v)
	if err == nil {
		return nil
	}
	if d := new(defect); errors.As(err, &d) {
		return err // of a subschema
	}
	return &defect{n.src, n.where, key, err.Error()}
}

func (c *compiler) parse(n *node, key string, v *value) (err error) {
	sub := func() (*node, error) { return c.schema(v, n.where+"/"+escapePointer(key)) }
	switch key {
	case "$ref":
		n.ref, err = c.reference(n, v)
	case "$dynamicRef", "$recursiveRef":
		err = errors.New("is not supported; use $ref")
	case "allOf":
		n.allOf, err = c.schemas(n, key, v)
	case "anyOf":
		n.anyOf, err = c.schemas(n, key, v)
	case "oneOf":
		n.oneOf, err = c.schemas(n, key, v)
	case "not":
		n.not, err = sub()
	case "if":
		n.cond, err = sub()
	case "then":
		n.then, err = sub()
	case "else":
		n.orElse, err = sub()
	case "type":
		err = n.setType(v)
	case "enum":
		if v.kind != array || len(v.items) == 0 {
			return errors.New("must be a list of at least one value")
		}
		n.enum = v.items
	case "const":
		n.enum = []*value{v}
	case "format":
		n.format, err = wantText(v)
	case "default":
		n.preset = v
	case "unevaluatedItems":
		n.unevaluatedItems, err = sub()
	case "unevaluatedProperties":
		n.unevaluatedProps, err = sub()
	default:
		return c.parseByKind(n, key, v)
	}
	return err
}

// parseByKind compiles the keywords that apply to one kind of value.
func (c *compiler) parseByKind(n *node, key string, v *value) (err error) {
	sub := func() (*node, error) { return c.schema(v, n.where+"/"+escapePointer(key)) }
	switch key {
	case "minimum", "exclusiveMinimum":
		n.lower, err = tighter(n.lower, v, key == "exclusiveMinimum", 1)
	case "maximum", "exclusiveMaximum":
		n.upper, err = tighter(n.upper, v, key == "exclusiveMaximum", -1)
	case "multipleOf":
		if v.kind != number || v.rat().Sign() <= 0 {
			return errors.New("must be a number greater than 0")
		}
		n.multipleOf = v.rat()
	case "minLength":
		n.minLength, err = wantCount(v)
	case "maxLength":
		n.maxLength, err = wantCount(v)
	case "pattern":
		n.pattern, err = wantPattern(v)
	case "minItems":
		n.minItems, err = wantCount(v)
	case "maxItems":
		n.maxItems, err = wantCount(v)
	case "uniqueItems":
		n.unique, err = v.truth, wantBool(v)
	case "prefixItems":
		n.prefixItems, err = c.schemas(n, key, v)
	case "items":
		if v.kind == array { // draft-07's form of prefixItems
			n.prefixItems, err = c.schemas(n, key, v)
			return err
		}
		n.items, err = sub()
	case "contains":
		n.contains, err = sub()
	case "minContains":
		n.minContains, err = wantCount(v)
	case "maxContains":
		n.maxContains, err = wantCount(v)
	case "required":
		n.required, err = wantTexts(v)
	case "properties":
		n.order = v.keys
		n.props, err = c.named(n, key, v)
	case "patternProperties":
		err = c.patternProps(n, v)
	case "additionalProperties":
		n.additional, err = sub()
	case "propertyNames":
		n.names, err = sub()
	case "minProperties":
		n.minProps, err = wantCount(v)
	case "maxProperties":
		n.maxProps, err = wantCount(v)
	case "dependentRequired", "dependentSchemas", "dependencies":
		err = c.dependencies(n, key, v)
	}
	return err
}

// join settles the keywords whose meaning depends on another one.
func (c *compiler) join(n *node) error {
	if both := n.src.get("enum"); both != nil && n.src.get("const") != nil {
		constant := n.src.get("const")
		n.enum = nil
		for _, allowed := range both.items {
			if allowed.equal(constant) {
				n.enum = []*value{constant}
			}
		}
		if n.enum == nil {
			return &defect{n.src, n.where, "const", "is not one of the values of enum"}
		}
	}
	if items := n.src.get("items"); items != nil && items.kind == array {
		if rest := n.src.get("additionalItems"); rest != nil {
			var err error
			if n.items, err = c.schema(rest, n.where+"/additionalItems"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *compiler) reference(n *node, v *value) (*node, error) {
	ref, err := wantText(v)
	if err != nil {
		return nil, err
	}
	target, where, err := c.resolve(n.src, ref)
	if err != nil {
		return nil, err
	}
	return c.schema(target, where)
}

func (c *compiler) schemas(n *node, key string, v *value) ([]*node, error) {
	if v.kind != array || len(v.items) == 0 {
		return nil, errors.New("must be a list of at least one schema")
	}
	subs := make([]*node, len(v.items))
	for i, item := range v.items {
		sub, err := c.schema(item, fmt.Sprintf("%s/%s/%d", n.where, key, i))
		if err != nil {
			return nil, err
		}
		subs[i] = sub
	}
	return subs, nil
}

func (c *compiler) named(n *node, key string, v *value) (map[string]*node, error) {
	if v.kind != object {
		return nil, errors.New("must be an object of schemas")
	}
	subs := make(map[string]*node, len(v.keys))
	for i, name := range v.keys {
		sub, err := c.schema(v.items[i], n.where+"/"+key+"/"+escapePointer(name))
		if err != nil {
			return nil, err
		}
		subs[name] = sub
	}
	return subs, nil
}

func (c *compiler) patternProps(n *node, v *value) error {
	subs, err := c.named(n, "patternProperties", v)
	if err != nil {
		return err
	}
	for _, expr := range v.keys {
		re, err := wantPattern(newText(expr))
		if err != nil {
			return err
		}
		n.patternProps = append(n.patternProps, patternProp{re, subs[expr]})
	}
	return nil
}

// dependencies compiles the three keywords that make one property depend on
// another; draft-07's has both forms.
func (c *compiler) dependencies(n *node, key string, v *value) error {
	if v.kind != object {
		return errors.New("must be an object")
	}
	for i, property := range v.keys {
		item := v.items[i]
		if key != "dependentSchemas" && (key == "dependentRequired" || item.kind == array) {
			needs, err := wantTexts(item)
			if err != nil {
				return err
			}
			n.dependentNeeds = append(n.dependentNeeds, dependency{property: property, needs: needs})
			continue
		}
		sub, err := c.schema(item, n.where+"/"+key+"/"+escapePointer(property))
		if err != nil {
			return err
		}
		n.dependentSchemas = append(n.dependentSchemas, dependency{property: property, sub: sub})
	}
	return nil
}

var typeKinds = map[string]kind{
	"null": null, "boolean": boolean, "number": number, "integer": number, "string": text, "array": array, "object": object,
}

func (n *node) setType(v *value) error {
	names := []string{v.text}
	if v.kind != text {
		var err error
		if names, err = wantTexts(v); err != nil || len(names) == 0 {
			return errors.New("must be a type or a list of types")
		}
	}
	var anyNumber, integer bool
	for _, name := range names {
		k := typeKinds[name]
		if k == 0 {
			return fmt.Errorf("%s is not a type; the types are string, number, integer, boolean, object, array and null", strconv.Quote(name))
		}
		n.kinds |= k
		anyNumber = anyNumber || name == "number"
		integer = integer || name == "integer"
	}
	n.integer = integer && !anyNumber
	return nil
}

// tighter returns the stricter of two limits; sign is 1 for a lower one.
func tighter(old *bound, v *value, exclusive bool, sign int) (*bound, error) {
	if v.kind != number {
		return nil, errors.New("must be a number")
	}
	b := &bound{limit: v.rat(), text: v.text, exclusive: exclusive}
	if old == nil {
		return b, nil
	}
	switch cmp := b.limit.Cmp(old.limit) * sign; {
	case cmp > 0, cmp == 0 && exclusive:
		return b, nil
	}
	return old, nil
}

func wantText(v *value) (string, error) {
	if v.kind != text {
		return "", errors.New("must be a string")
	}
	return v.text, nil
}

func wantBool(v *value) error {
	if v.kind != boolean {
		return errors.New("must be true or false")
	}
	return nil
}

func wantTexts(v *value) ([]string, error) {
	if v.kind != array {
		return nil, errors.New("must be a list of strings")
	}
	texts := make([]string, len(v.items))
	for i, item := range v.items {
		if item.kind != text {
			return nil, errors.New("must be a list of strings")
		}
		texts[i] = item.text
	}
	return texts, nil
}

// maxCount is beyond every length and size that a document can have.
var maxCount = big.NewRat(1<<31-1, 1)

func wantCount(v *value) (*int, error) {
	if !v.integer() || v.rat().Sign() < 0 {
		return nil, errors.New("must be an integer of at least 0")
	}
	r := v.rat()
	if r.Cmp(maxCount) > 0 {
		r = maxCount
	}
	count := int(r.Num().Int64())
	return &count, nil
}

// unicodeEscape is the ECMAScript escape that Go writes in another way.
var unicodeEscape = regexp.MustCompile(`\\u([0-9a-fA-F]{4})`)

func wantPattern(v *value) (*regexp.Regexp, error) {
	if v.kind != text {
		return nil, errors.New("must be a string")
	}
	re, err := regexp.Compile(unicodeEscape.ReplaceAllString(v.text, `\x{$1}`))
	if err != nil {
		return nil, fmt.Errorf("%s is not a regular expression that can be used: %w", strconv.Quote(clip(v.text, 80)), err)
	}
	return re, nil
}
