// Package dialect rewrites the JSON Schema of a tool's arguments into what a
// provider understands.
//
// A tool has one schema, and its arguments are always checked against that one.
// What a provider is sent may say less: providers know different parts of JSON
// Schema, and refuse a whole request for one keyword that they do not know, or
// silently ignore it. So each has a [Dialect], and what that cannot say is
// rewritten to what is nearest, put in words into the description that the model
// reads, and reported.
package dialect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/history"
)

// Bounds of what a dialect takes and gives, whatever the schema.
const (
	maxSource = 512 << 10 // bytes of a schema
	maxNodes  = 4000      // schemas within one schema that is sent
	maxBytes  = 512 << 10 // bytes of a schema that is sent
	maxLosses = 20        // losses reported of one schema
	maxTold   = 400       // bytes of a constraint that is told in words
	maxEnums  = 1000      // constants within a schema that is enforced

	// maxUnroll is how often a schema may stand within itself where references
	// have to be written out.
	maxUnroll = 3
)

// A Dialect is what one API understands of JSON Schema. The zero value is of no
// use; each of the functions of this package returns one.
type Dialect struct {
	keywords map[string]bool // that are understood
	formats  map[string]bool // nil: all
	root     map[string]bool // keywords that may stand at the root; nil: all
	notRoot  map[string]bool // keywords that may not

	// References. Where they are not understood they are written out.
	refs     bool
	refAlone bool // nothing may stand beside a reference, and one must not be required

	names      func(string) bool // of properties; nil: all
	depth      int               // levels of schemas
	typeLists  bool              // a type may be a list
	nullFlag   bool              // null is allowed by a flag, and there is no type null
	anyOfAlone bool              // nothing may stand beside anyOf
	textEnums  bool              // an enumeration holds nothing but text
	typed      bool              // each schema needs a type
	filled     bool              // an object needs properties
	itemized   bool              // an array needs items
	capitals   bool              // types are in capitals
	strict     bool              // objects are closed and all their properties required
}

func set(words string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

// The keywords of JSON Schema that say something about a value, by how many
// providers know them.
const (
	common = `type properties required items enum anyOf description title minItems maxItems minimum maximum `
	all    = common + `additionalProperties prefixItems const oneOf allOf not if then else patternProperties
		propertyNames minProperties maxProperties dependentRequired dependentSchemas unevaluatedProperties
		unevaluatedItems contains minContains maxContains uniqueItems minLength maxLength pattern format
		exclusiveMinimum exclusiveMaximum multipleOf contentEncoding contentMediaType default examples deprecated readOnly writeOnly`
)

// anthropicName is what Anthropic accepts as the name of a property.
func anthropicName(s string) bool {
	return s != "" && len(s) <= 64 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}) < 0
}

// Anthropic is the dialect of the Messages API: all of JSON Schema, except for
// combinations at the root and for names of properties.
func Anthropic() Dialect {
	return Dialect{
		keywords: set(all), notRoot: set("anyOf oneOf allOf"), refs: true, typeLists: true,
		names: anthropicName, depth: 64,
	}
}

// OpenAI is the dialect of Chat Completions and Responses where they do not
// enforce a schema: all of JSON Schema, except for combinations at the root.
func OpenAI() Dialect {
	return Dialect{
		keywords: set(all), notRoot: set("anyOf oneOf allOf enum const not if then else"), refs: true, typeLists: true,
		itemized: true, depth: 64,
	}
}

// OpenAIStrict is the dialect of the same APIs where they enforce a schema. A
// property that may be absent is sent as one that may be null; its null then
// means that it is absent. A schema that cannot be enforced is [Result.Unfit].
func OpenAIStrict() Dialect {
	return Dialect{
		keywords: set(common + `additionalProperties const pattern format multipleOf exclusiveMinimum exclusiveMaximum`),
		formats:  set(`date-time time date duration email hostname ipv4 ipv6 uuid`),
		refs:     true, typeLists: true, typed: true, itemized: true, strict: true, depth: 10,
	}
}

// Gemini is the dialect of the field parameters of Gemini and Vertex: a part of
// OpenAPI's schemas.
func Gemini() Dialect {
	return Dialect{
		keywords: set(common + `minProperties maxProperties minLength maxLength pattern format default`),
		formats:  set(`date-time enum int32 int64 float double`), nullFlag: true, anyOfAlone: true, textEnums: true,
		typed: true, filled: true, itemized: true, capitals: true, depth: 32,
	}
}

// GeminiJSON is the dialect of the field parametersJsonSchema of Gemini and
// Vertex: the part of JSON Schema that they document.
func GeminiJSON() Dialect {
	return Dialect{
		keywords: set(common + `additionalProperties prefixItems format`),
		formats:  set(`date-time date time`), refs: true, refAlone: true, typeLists: true, itemized: true, depth: 32,
	}
}

// Bedrock is the dialect of Converse: that of Anthropic, without references, and
// with no more at the root than Amazon's own models take.
func Bedrock() Dialect {
	return Dialect{
		keywords: set(all), root: set("type properties required"), typeLists: true, names: anthropicName, depth: 32,
	}
}

// A Result is a schema as it is sent.
type Result struct {
	Schema json.RawMessage // an object, compact
	Losses []model.Loss    // their Tool is empty

	// Empty says that there are no arguments at all, for an API that then wants
	// no schema.
	Empty bool

	// Unfit says that Schema is no schema of this dialect, because the dialect
	// has nothing that comes near. Only strict dialects have that.
	Unfit bool
}

// empty is the schema of a tool without arguments.
const empty = `{"type":"object","properties":{}}`

// Convert rewrites a schema. It accepts anything: what is no schema of an object
// becomes one, with a loss that says so.
func (d Dialect) Convert(schema json.RawMessage) Result {
	if len(schema) == 0 {
		return Result{Schema: json.RawMessage(empty), Empty: true}
	}
	if len(schema) > maxSource {
		return lost(fmt.Sprintf("the schema has %d bytes, more than %d; the model is told nothing of the arguments", len(schema), maxSource))
	}
	var src *value
	if object := history.Object(schema); object != nil {
		src, _ = parse(object)
	}
	if src == nil {
		return lost("this is no JSON object; the model is told nothing of the arguments")
	}
	for unroll := maxUnroll; ; unroll-- {
		c := converter{d: d, src: src, unroll: unroll, last: unroll == 0, names: map[*value]string{}, taken: map[string]bool{}, loops: map[*value]bool{}}
		out := c.document()
		if c.spent && !c.last {
			continue // references that are written out multiply; less deep
		}
		r := Result{Schema: out.json(nil), Losses: c.losses, Unfit: c.unfit, Empty: len(c.losses) == 0 && noArguments(out)}
		if len(r.Schema) <= maxBytes {
			return r
		}
		if c.last {
			return lost(fmt.Sprintf("the schema takes more than %d bytes in the form that the provider understands; the model is told nothing of the arguments", maxBytes))
		}
	}
}

// noArguments reports whether a schema that is sent allows nothing but an empty
// object, as far as it says.
func noArguments(schema *value) bool {
	more := schema.get("additionalProperties")
	return len(schema.get("properties").items) == 0 && (more == nil || more.raw == "false")
}

func lost(text string) Result {
	return Result{Schema: json.RawMessage(empty), Losses: []model.Loss{{Text: text}}, Unfit: true, Empty: true}
}

// A converter rewrites one schema.
type converter struct {
	d      Dialect
	src    *value
	unroll int
	last   bool // nothing comes after this try

	nodes  int
	enums  int
	spent  bool // there are too many nodes
	unfit  bool
	losses []model.Loss

	stack   []*value          // references that are being written out
	names   map[*value]string // of the definitions, by what they define
	pending []*value          // definitions that are not written yet
	taken   map[string]bool   // names of definitions
	loops   map[*value]bool   // whether what is referred to contains itself
}

// document rewrites the whole schema.
func (c *converter) document() *value {
	out := c.schema(c.rootObject(), 0, false)
	if !out.has("properties") { // there was no room for any
		none := schemaOf("", "object").set("properties", object(""))
		out = c.finish(none, none, []string{"object"}, false)
	}
	if c.d.root != nil {
		for _, name := range slices.Clone(out.names) {
			if !c.d.root[name] {
				out = out.without(name)
			}
		}
	}
	if defs := c.definitions(); len(defs.items) > 0 {
		out.set("$defs", defs)
	}
	return out
}

// lose reports a loss.
func (c *converter) lose(at, format string, args ...any) {
	switch n := len(c.losses); {
	case n < maxLosses:
		l := model.Loss{Path: at, Text: fmt.Sprintf(format, args...)}
		if !slices.Contains(c.losses, l) {
			c.losses = append(c.losses, l)
		}
	case n == maxLosses:
		c.losses = append(c.losses, model.Loss{Text: "more is lost than is listed here"})
	}
}
