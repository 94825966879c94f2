package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/schema"
)

type (
	reason string

	// level lists its own values, for every field of the type.
	level string

	point  struct{ X, Y int }
	place  struct{ Lat, Lon float64 }
	person struct {
		Name    string   `json:"name"`
		Friends []person `json:"friends,omitempty"`
	}
)

func (level) JSONSchema() json.RawMessage {
	return json.RawMessage(`{"type":"string","enum":["low","high"],"description":"how bad it is"}`)
}

// A refused document is one that must not reach the tool, and what the model
// is told of it.
type refused map[string]string

// feature asserts that what a Go author wrote is inferred and shown to the
// model, that what fits arrives as the value that it means, and that nothing
// else does.
func feature[T any](name, shown, in string, want T, bad refused) func(*testing.T) {
	return func(t *testing.T) {
		s, err := schema.Arguments[T](nil)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s.String(), shown) {
			t.Errorf("%s: the model is shown %s, want it to have %s", name, s, shown)
		}
		var got T
		if _, _, err := s.DecodeArguments(in, &got); err != nil {
			t.Fatalf("%s: %s: %v", name, in, err)
		}
		if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s arrived as (-want +got):\n%s", name, in, diff)
		}
		for in, problem := range bad {
			_, _, err := s.DecodeArguments(in, new(T))
			var v *schema.ValidationError
			if !errors.As(err, &v) || !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: %s: error %v, want it to have %q", name, in, err, problem)
			}
			if err := s.Validate([]byte(in)); err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: Validate(%s) = %v, want what decoding says", name, in, err)
			}
		}
	}
}

func TestFeatures(t *testing.T) {
	seven, noon := 7, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]func(*testing.T){
		"nothing": feature("nothing", `{"type":"object","properties":{},"additionalProperties":false}`, ``, struct{}{},
			refused{`{"a":1}`: "a: unknown property; no properties are allowed here"}),
		"description": feature("description", `"a":{"type":"string","description":"who is asked"}`, `{"a":"x"}`, struct {
			A string `json:"a" jsonschema:"who is asked"`
		}{"x"}, refused{`{}`: "a: is required; expected a string"}),
		"enum": feature("enum", `"enum":["late","damaged"]`, `{"a":"late"}`, struct {
			A reason `json:"a" enum:"late,damaged"`
		}{"late"}, refused{
			`{"a":"later"}`: `a: expected one of "late", "damaged"; did you mean "late"?, got the string "later"`,
			`{"a":null}`:    `got null`,
			`{"a":0}`:       `got the number 0`,
		}),
		"enum of integers": feature("enum", `"enum":[1,2]`, `{"a":2}`, struct {
			A int `json:"a" enum:"1, 2"`
		}{2}, refused{`{"a":3}`: "a: expected one of 1, 2, got the number 3"}),
		"enum of elements": feature("enum", `"items":{"type":"string","enum":["x","y"]}`, `{"a":["y"]}`, struct {
			A []string `json:"a" enum:"x,y"`
		}{[]string{"y"}}, refused{`{"a":["y","z"]}`: `a[1]: expected one of "x", "y", got the string "z"`}),
		"enum of a type": feature("enum", `"a":{"type":"string","enum":["low","high"],"description":"how bad it is"}`, `{"a":"low"}`, struct {
			A level `json:"a"`
		}{"low"}, refused{`{"a":"mid"}`: `expected one of "low", "high"`}),
		"min and max": feature("limits", `"minimum":1,"maximum":5`, `{"a":5}`, struct {
			A int `json:"a" min:"1" max:"5"`
		}{5}, refused{`{"a":6}`: "a: must be at most 5, got the number 6", `{"a":0}`: "a: must be at least 1"}),
		"exclusive limits": feature("limits", `"exclusiveMinimum":0,"exclusiveMaximum":1`, `{"a":0.5}`, struct {
			A float64 `json:"a" exclusiveMin:"0" exclusiveMax:"1"`
		}{0.5}, refused{`{"a":0}`: "a: must be greater than 0, got the number 0", `{"a":1.0}`: "a: must be less than 1"}),
		"limits of a type": feature("limits", `"minimum":-128,"maximum":127`, `{"a":-128}`, struct {
			A int8 `json:"a"`
		}{-128}, refused{`{"a":128}`: "a: must be at most 127, got the number 128", `{"a":1.5}`: "a: expected an integer, got the number 1.5"}),
		"limits of large types": feature("limits", `"u":{"type":"integer","minimum":0}`, `{"i":-9223372036854775808,"u":18446744073709551615}`, struct {
			I int64  `json:"i"`
			U uint64 `json:"u"`
		}{math.MinInt64, math.MaxUint64}, refused{
			`{"i":9223372036854775808,"u":0}`:  "i: must be from -9223372036854775808 to 9223372036854775807, got the number 9223372036854775808",
			`{"i":0,"u":18446744073709551616}`: "u: must be from 0 to 18446744073709551615",
			`{"i":0,"u":-1}`:                   "u: must be at least 0, got the number -1",
		}),
		"length": feature("length", `"minLength":2,"maxLength":3`, `{"a":"€€"}`, struct {
			A string `json:"a" minLength:"2" maxLength:"3"`
		}{"€€"}, refused{`{"a":"x"}`: "a: must have at least 2 characters, has 1", `{"a":"xxxx"}`: "at most 3"}),
		"pattern": feature("pattern", `"pattern":"^ORD-[0-9]+$"`, `{"a":"ORD-7"}`, struct {
			A string `json:"a" pattern:"^ORD-[0-9]+$" example:"ORD-42"`
		}{"ORD-7"}, refused{`{"a":"7"}`: `a: must match the regular expression ^ORD-[0-9]+$, such as "ORD-42", got the string "7"`}),
		"format": feature("format", `"format":"email"`, `{"a":"a@example.com"}`, struct {
			A string `json:"a" format:"email"`
		}{"a@example.com"}, refused{`{"a":"me"}`: `a: expected an email address, got the string "me"`}),
		"number of elements": feature("items", `"minItems":1,"maxItems":2`, `{"a":[1]}`, struct {
			A []int `json:"a" minItems:"1" maxItems:"2"`
		}{[]int{1}}, refused{`{"a":[]}`: "a: must have at least 1 element, has 0", `{"a":[1,2,3]}`: "at most 2"}),
		"default": feature("default", `"a":{"type":"integer","default":3}`, `{"b":null}`, struct {
			A int    `json:"a" default:"3"`
			B string `json:"b" default:"x" enum:"x,y"`
			C *int   `json:"c" default:"7"`
			D []int  `json:"d" default:"[1,2]"`
		}{3, "x", &seven, []int{1, 2}}, refused{`{"a":"three"}`: "a: expected an integer"}),
		"default is not forced": feature("default", `"default":true`, `{"a":false}`, struct {
			A bool `json:"a" default:"true"`
		}{false}, nil),
		"example": feature("example", `"examples":["Lisbon"]`, `{"a":"Porto"}`, struct {
			A string `json:"a" example:"Lisbon"`
		}{"Porto"}, refused{`{"a":7}`: `a: expected a string, such as "Lisbon", got the number 7`}),
		"time": feature("time", `"a":{"type":"string","format":"date-time"}`, `{"a":"2026-01-02T12:00:00Z"}`, struct {
			A time.Time `json:"a"`
		}{noon}, refused{
			`{"a":"noon"}`:                `a: expected a date and time such as "2026-01-02T15:04:05Z", got the string "noon"`,
			`{"a":"2026-01-02"}`:          `got the string "2026-01-02"`,
			`{"a":"2026-01-02T5:00:00Z"}`: "expected a date and time",
			`{"a":1767355200}`:            "expected a date and time",
		}),
		"duration": feature("duration", `"a":{"type":"string","description":"how long to wait; a duration such as \"1m30s\"","examples":["1m30s"]}`, `{"a":"1m30s","b":["2h"]}`, struct {
			A time.Duration   `json:"a" jsonschema:"how long to wait"`
			B []time.Duration `json:"b"`
		}{90 * time.Second, []time.Duration{2 * time.Hour}}, refused{
			`{"a":"90","b":[]}`:        `a: expected a duration such as "1m30s", got the string "90"`,
			`{"a":90,"b":[]}`:          `a: expected a string, such as "1m30s", got the number 90`,
			`{"a":"1s","b":["PT30S"]}`: `b[0]: expected a duration such as "1m30s", got the string "PT30S"`,
		}),
		"map": feature("map", `"a":{"type":"object","additionalProperties":{"type":"integer"}}`, `{"a":{"x":1,"5":2}}`, struct {
			A map[string]int `json:"a"`
		}{map[string]int{"x": 1, "5": 2}}, refused{`{"a":{"5":"y"}}`: `a["5"]: expected an integer, got the string "y"`}),
		"map as input": feature("map", `{"type":"object","additionalProperties":{}}`, `{"x":[1,null]}`, map[string]any{"x": []any{1.0, nil}}, refused{`[1]`: "expected an object, got an array of 1 element"}),
		"keys that are read": feature("map", `"additionalProperties":{"type":"integer"}`, `{"a":{"::1":1}}`, struct {
			A map[netip.Addr]int `json:"a"`
		}{map[netip.Addr]int{netip.MustParseAddr("::1"): 1}}, refused{
			`{"a":{"x":1}}`:            `a.x: ParseAddr("x"): unable to parse IP, got the string "x"`,
			`{"a":{"::1":1,"0::1":2}}`: `a["0::1"]: means the same as a name before it`,
		}),
		"embedded": feature("embedded", `{"type":"object","properties":{"X":{"type":"integer"},"Y":{"type":"integer"},"Lat":{"type":"number"},"Lon":{"type":"number"},"z":{"type":"integer"}},"required":["X","Y","Lat","Lon","z"],"additionalProperties":false}`,
			`{"X":1,"Y":2,"Lat":0,"Lon":0,"z":3}`, struct {
				point
				place
				Z int `json:"z"`
			}{point{1, 2}, place{}, 3}, refused{`{"X":1,"Y":2,"Lat":0,"Lon":0,"z":3,"point":{}}`: "point: unknown property"}),
		"recursive": feature("recursive", `"$ref":"#/$defs/person"`, `{"name":"a","friends":[{"name":"b"}]}`, person{"a", []person{{Name: "b"}}},
			refused{`{"name":"a","friends":[{"nam":"b"}]}`: "friends[0].nam: unknown property; did you mean name?"}),
		"anything": feature("any", `"a":{},"b":{}`, `{"a":12345678901234567890,"b":{"n":12345678901234567890,"s":"\ud83d"}}`, struct {
			A any             `json:"a"`
			B json.RawMessage `json:"b"`
		}{json.Number("12345678901234567890"), json.RawMessage(`{"n":12345678901234567890,"s":"` + "\uFFFD" + `"}`)}, refused{`{"a":1}`: "b: is required"}),
		"optional": feature("optional", `"required":["must"]`, `{"must":"","p":null,"z":null}`, struct {
			Must string  `json:"must"`
			P    *string `json:"p"`
			E    string  `json:"e,omitempty"`
			Z    int     `json:"z,omitzero"`
		}{}, refused{`{"p":"x"}`: "must: is required", `{"must":null}`: "must: expected a string, got null", `{"must":"","e":7}`: "e: expected a string"}),
		"bytes": feature("bytes", `"a":{"type":"string","contentEncoding":"base64"}`, `{"a":"aGk=","b":"aGk="}`, struct {
			A []byte  `json:"a"`
			B [2]byte `json:"b"`
		}{[]byte("hi"), [2]byte{'h', 'i'}}, refused{
			`{"a":"hi!","b":"aGk="}`: `a: expected base64, got the string "hi!"`,
			`{"a":"","b":"aGkh"}`:    `b: expected 2 bytes in base64, got the string "aGkh"`,
			`{"a":[1],"b":"aGk="}`:   "a: expected a string",
		}),
		"text": feature("text", `"a":{"type":"string"}`, `{"a":"::1","c":"red"}`, struct {
			A netip.Addr `json:"a"`
			C color      `json:"c"`
		}{netip.MustParseAddr("::1"), color{"red"}}, refused{`{"a":"here","c":"red"}`: `a: ParseAddr("here"): unable to parse IP, got the string "here"`}),
		"left out": feature("left out", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`, `{"a":"x"}`, struct {
			A string `json:"a"`
			B string `json:"-"`
			c string
		}{A: "x"}, refused{`{"a":"x","B":"y"}`: "B: unknown property", `{"a":"x","c":"y"}`: "c: unknown property", `{"a":"x","-":"y"}`: `["-"]: unknown property`}),
		"pointer as input": feature("pointer", `"required":["X","Y"]`, `{"X":1,"Y":2}`, &point{1, 2}, refused{`{"x":1,"Y":2}`: "x: unknown property; did you mean X?"}),
	} {
		t.Run(name, test)
	}
}

func TestFormats(t *testing.T) {
	for format, tt := range map[string]struct{ fit, not []string }{
		"date-time": {[]string{"2026-01-02T15:04:05Z", "2026-01-02T15:04:05.5+02:00"}, []string{"", "2026-01-02", "2026-13-02T15:04:05Z"}},
		"date":      {[]string{"2024-02-29"}, []string{"2023-02-29", "29.02.2024"}},
		"time":      {[]string{"15:04:05Z", "15:04:05-07:00"}, []string{"15:04", "25:00:00Z"}},
		"email":     {[]string{"a.b+c@example.com"}, []string{"a", "A <a@example.com>", "a@"}},
		"hostname":  {[]string{"localhost", "a-b.example.com"}, []string{"", "-a", "a_b", "a..b", strings.Repeat("a", 64)}},
		"ipv4":      {[]string{"127.0.0.1"}, []string{"::1", "127.0.0", "256.0.0.1"}},
		"ipv6":      {[]string{"::1"}, []string{"127.0.0.1", "::1%eth0"}},
		"uri":       {[]string{"https://example.com/a?b#c", "mailto:a@example.com"}, []string{"", "/a", "example.com", "https://a b"}},
		"uuid":      {[]string{"123e4567-e89b-12d3-a456-426614174000"}, []string{"123e4567", "123e4567-e89b-12d3-a456-42661417400g"}},
	} {
		typ := fieldOfType[string](reflect.StructTag(`json:"a" format:"` + format + `"`))
		s, err := schema.ForType(typ)
		if err != nil {
			t.Fatal(err)
		}
		byHand := mustParse(t, s.String())
		for _, in := range tt.fit {
			if err := s.Validate(fmt.Appendf(nil, `{"a":%q}`, in)); err != nil {
				t.Errorf("%s: %q: %v", format, in, err)
			}
		}
		for _, in := range tt.not {
			doc := fmt.Appendf(nil, `{"a":%q}`, in)
			if err := s.Validate(doc); err == nil || !strings.Contains(err.Error(), "a: expected a") {
				t.Errorf("%s: %q: error %v", format, in, err)
			}
			// In a schema that was not made of a Go type a format describes.
			if err := byHand.Validate(doc); err != nil {
				t.Errorf("%s by hand: %q: %v", format, in, err)
			}
		}
	}
}
