package schema_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/schema"
)

// Schemas of all shapes come from tool servers; a tool that cannot be offered
// must be known before it is.
func TestObject(t *testing.T) {
	const (
		objA = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`
		objB = `{"type":"object","properties":{"b":{"type":"string"}},"required":["b"]}`
	)
	for _, tt := range []struct{ name, in, want string }{ // want is empty if it can be a tool's
		{"recursive, below the root", `{"type":"object","properties":{"root":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`, ""},
		{"a property that is null", `{"type":"object","properties":{"x":{"type":"null"}}}`, ""},
		{"an array without items", `{"type":"object","properties":{"x":{"type":"array"}}}`, ""},
		{"nothing said", `{}`, "no type"},
		{"anything", `true`, "no type"},
		{"a union at the root", `{"anyOf":[` + objA + `,` + objB + `]}`, "anyOf at the root"},
		{"a reference at the root", `{"$ref":"#/$defs/n","$defs":{"n":` + objA + `}}`, "$ref at the root"},
		{"no type", `{"properties":{"x":{"type":"null"}}}`, "no type"},
		{"an array", `{"type":"array","items":{}}`, "must be an object"},
		{"an object or null", `{"type":["object","null"]}`, "must be an object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := mustParse(t, tt.in).Object()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// Whatever the schema allows, arguments are an object.
func TestArgumentsAreAnObject(t *testing.T) {
	for _, s := range []string{`{}`, `true`, `{"type":"array"}`, `{"anyOf":[{"type":"string"},{"type":"object"}]}`} {
		for _, in := range []string{`[1,2]`, `"hi"`, `1`, `true`} {
			if out, _, err := mustParse(t, s).PrepareArguments(in); err == nil {
				t.Errorf("%s with %s gave %s", in, s, out)
			}
		}
	}
}

// The arguments of a recursive tool are checked at every depth, up to the limit.
func TestRecursiveArguments(t *testing.T) {
	s := mustParse(t, `{"type":"object","properties":{"root":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}},"additionalProperties":false}}}`)
	nest := func(levels int, leaf string) string {
		return `{"root":` + strings.Repeat(`{"kids":[`, levels) + leaf + strings.Repeat(`]}`, levels) + `}`
	}
	if _, _, err := s.PrepareArguments(nest(90, "{}")); err != nil {
		t.Error(err)
	}
	_, _, err := s.PrepareArguments(nest(3, `{"kid":[]}`))
	if err == nil || !strings.Contains(err.Error(), "root.kids[0].kids[0].kids[0].kid: unknown property; did you mean kids?") {
		t.Errorf("error %v", err)
	}
	var syntax *schema.SyntaxError
	if _, _, err := s.PrepareArguments(nest(5000, "{}")); !errors.As(err, &syntax) {
		t.Errorf("error %v", err)
	}
	// One level is encoded as a string, the next one inside it too.
	out, repairs, err := s.PrepareArguments(`{"root":"{\"kids\":\"[{}]\"}"}`)
	if err != nil || string(out) != `{"root":{"kids":[{}]}}` || len(repairs) != 2 {
		t.Errorf("%s, %v, %v", out, repairs, err)
	}
}

// What a schema cannot say about a Go type is said in the same form.
func TestDecodeErrors(t *testing.T) {
	type input struct {
		Big   int64 `json:"big"`
		Small struct{ N []float32 }
		Any   any            `json:"any,omitempty"`
		Map   map[string]any `json:"map,omitempty"`
	}
	s, err := schema.For[input]()
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`{"big":9223372036854775808,"Small":{"N":[]}}`: "big: must be from -9223372036854775808 to 9223372036854775807, got the number 9223372036854775808",
		`{"big":1,"Small":{"N":[1,1e300]}}`:            "Small.N[1]: must be from -3.4e38 to 3.4e38, got the number 1e300",
		`{"big":1,"Small":{"N":[]},"nope":1}`:          "nope: unknown property; allowed: big, Small, any, map",
		`{"Big":1,"Small":{"N":[]}}`:                   "Big: unknown property; did you mean big?",
	} {
		var v *schema.ValidationError
		if err := s.Decode([]byte(in), new(input)); !errors.As(err, &v) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", in, err, want)
		}
	}
	got, err := schema.Decode[input](s, []byte(`{"big":9007199254740993,"Small":{"N":[1.5]},"any":12345678901234567890,"map":{"a":9007199254740993,"b":[7,0.5]}}`))
	if err != nil {
		t.Fatal(err)
	}
	list, _ := got.Map["b"].([]any)
	if got.Big != 9007199254740993 || got.Any != json.Number("12345678901234567890") || got.Map["a"] != json.Number("9007199254740993") || list[0] != 7.0 || list[1] != 0.5 {
		t.Errorf("digits were lost: %+v", got)
	}
}

type faulty struct{}

func (faulty) MarshalText() ([]byte, error) { panic("no") }

func (*faulty) UnmarshalText([]byte) error { panic("no") }

func TestMarshalErrors(t *testing.T) {
	type list struct {
		Next *list
		Item any
	}
	loop := &list{}
	loop.Next = &list{Next: loop}
	ring := map[string]any{}
	ring["again"] = []any{ring}
	for _, tt := range []struct {
		name string
		in   any
		want string
	}{
		{"not a number", map[string]any{"a": []any{1, math.NaN()}}, "float64 at a[1]"},
		{"infinity", struct{ X float64 }{math.Inf(-1)}, "float64 at X"},
		{"channel", list{Item: make(chan int)}, "chan int at Item has no JSON form"},
		{"function", []any{func() {}}, "func() at [0] has no JSON form"},
		{"cycle of pointers", loop, "cycle"},
		{"cycle of maps", ring, "cycle"},
		{"a method panics", []faulty{{}}, "panicked"},
		{"too large", strings.Repeat("x", schema.MaxDocument), "more than 8388608 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := schema.Marshal(tt.in)
			if err == nil || out != nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 1000 {
				t.Errorf("%.50s, error %.600v; want %q", out, err, tt.want)
			}
		})
	}
	if err := schema.Unmarshal([]byte(`"x"`), new(faulty)); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("error %v", err)
	}
}

func TestOutput(t *testing.T) {
	type result struct {
		Status string  `json:"status" enum:"open,closed"`
		Note   *string `json:"note"`
	}
	s, err := schema.For[result]()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output(result{Status: "open"}); err != nil || string(out) != `{"status":"open"}` {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := s.Output(result{Status: "opened"}); err == nil || out != nil || !strings.Contains(err.Error(), `"opened"`) {
		t.Errorf("%s, %v", out, err)
	}
	var none *schema.Schema
	if out, err := none.Output([]string{"<a>"}); err != nil || string(out) != `["<a>"]` {
		t.Errorf("%s, %v", out, err)
	}
}

func TestDefaults(t *testing.T) {
	type page struct {
		Size int    `json:"size" default:"20" min:"1"`
		Sort string `json:"sort" default:"date" enum:"date,name"`
	}
	type search struct {
		Query string `json:"query"`
		Page  page   `json:"page,omitzero"`
		More  []page `json:"more,omitempty"`
	}
	s, err := schema.For[search]()
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`{"query":"x"}`:                          `{"query":"x"}`,
		`{"query":"x","page":{}}`:                `{"query":"x","page":{"size":20,"sort":"date"}}`,
		`{"query":"x","page":{"size":null}}`:     `{"query":"x","page":{"size":20,"sort":"date"}}`,
		`{"query":"x","more":[{"sort":"name"}]}`: `{"query":"x","more":[{"sort":"name","size":20}]}`,
	} {
		out, err := s.Normalize([]byte(in))
		if err != nil || string(out) != want {
			t.Errorf("%s became %s (%v), want %s", in, out, err, want)
		}
	}
}
