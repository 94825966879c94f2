package schema_test

import (
	"encoding/json"
	"log/slog"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/schema"
)

type (
	ID     struct{ ID, Kind string }
	Stamp  struct{ ID, At string }
	Deep   struct{ ID } // the fields of ID, one level further down
	Tagged struct {
		Kind string `json:"kind"`
	}
	Left  struct{ Deep }
	Right struct{ Deep }

	plain     struct{ A, B string }
	embedding struct{ ID }
	hides     struct{ ID, B string }
	shadowed  struct {
		ID
		Kind string `json:"own_kind"` // hides ID.Kind in Go and not in JSON
	}
	collides struct {
		ID
		Stamp
	}
	decided struct {
		ID
		Other struct{} `json:"Kind"`
	}
	named struct {
		ID `json:"id"`
	}
	skipped struct {
		ID `json:"-"`
		A  string
	}
	byPointer struct {
		*ID
		A string
	}
	diamond struct {
		Left
		Right
	}
	mixed struct {
		Tagged
		Kind string
	}
	hidden struct {
		tagged
		A string
	}
	tagged struct {
		C string `json:"c"`
	}
)

// Whatever way structs are put together, the schema has the properties that
// the JSON of a value has.
func TestFieldsAreThoseOfTheJSON(t *testing.T) {
	for _, v := range []any{
		&plain{}, &embedding{}, &hides{}, &shadowed{}, &collides{}, &decided{}, &named{}, &skipped{}, &byPointer{ID: &ID{}}, &diamond{}, &mixed{}, &hidden{},
	} {
		typ := reflect.TypeOf(v).Elem()
		t.Run(typ.Name(), func(t *testing.T) {
			s, err := schema.ForType(typ)
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Output(v)
			if err != nil {
				t.Fatal(err)
			}
			var described struct {
				Properties map[string]json.RawMessage
				Required   []string
			}
			var got map[string]json.RawMessage
			if err := json.Unmarshal(s.JSON(), &described); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(keys(got), keys(described.Properties)); diff != "" {
				t.Errorf("properties (-JSON +schema):\n%s", diff)
			}
		})
	}
}

func keys(m map[string]json.RawMessage) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

type (
	list        []list
	dict        map[string]dict
	pointer     *pointer
	node        struct{ Left, Right *node }
	even        struct{ Odd *odd }
	odd         struct{ Even []even }
	pair[T any] struct {
		First T        `json:"first"`
		Rest  *pair[T] `json:"rest"`
	}
)

func TestRecursiveTypes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		got      func() (*schema.Schema, error)
		fit, not string
	}{
		{"list", schema.For[list], `[[],[[]]]`, `[[1]]`},
		{"map", schema.For[dict], `{"a":{"b":{}}}`, `{"a":{"b":1}}`},
		{"struct", schema.For[node], `{"Left":{"Right":{}}}`, `{"Left":{"Right":{"Up":{}}}}`},
		{"through another", schema.For[even], `{"Odd":{"Even":[{},{"Odd":{"Even":[]}}]}}`, `{"Odd":{"Even":[{"Odd":{}}]}}`},
		{"in a field, twice", schema.For[struct{ A, B node }], `{"A":{},"B":{"Left":{}}}`, `{"A":{},"B":{"Left":1}}`},
		{"generic", schema.For[pair[int]], `{"first":1,"rest":{"first":2}}`, `{"first":1,"rest":{"first":"x"}}`},
		{"two types of one name", schema.For[struct {
			A pair[int]
			B pair[string]
		}], `{"A":{"first":1},"B":{"first":"x","rest":{"first":"y"}}}`, `{"A":{"first":1},"B":{"first":"x","rest":{"first":1}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := tt.got()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Validate([]byte(tt.fit)); err != nil {
				t.Errorf("%s does not fit %s: %v", tt.fit, s, err)
			}
			if err := s.Validate([]byte(tt.not)); err == nil {
				t.Errorf("%s fits %s", tt.not, s)
			}
		})
	}
	if _, err := schema.For[pointer](); err == nil {
		t.Error("a pointer to itself has a schema")
	}
}

func TestTypes(t *testing.T) {
	type B byte
	for _, tt := range []struct {
		in   any
		want string // its schema
	}{
		{int8(-5), `{"type":"integer","minimum":-128,"maximum":127}`},
		{int32(5), `{"type":"integer","minimum":-2147483648,"maximum":2147483647}`},
		{int64(5), `{"type":"integer"}`},
		{uint16(5), `{"type":"integer","minimum":0,"maximum":65535}`},
		{uint64(5), `{"type":"integer","minimum":0}`},
		{float32(.5), `{"type":"number"}`},
		{[]byte("x"), `{"type":"string","contentEncoding":"base64"}`},
		{[2]byte{1, 2}, `{"type":"string","contentEncoding":"base64"}`},
		{[]B{1}, `{"type":"array","items":{"type":"integer","minimum":0,"maximum":255}}`},
		{json.RawMessage(`[1]`), `{}`},
		{json.Number("12345678901234567890"), `{"type":"number"}`},
		{*big.NewInt(5), `{"type":"integer"}`},
		{*big.NewRat(1, 2), `{"type":"string"}`},
		{netip.MustParseAddr("127.0.0.1"), `{"type":"string"}`},
		{slog.LevelWarn, `{"type":"string"}`},
		{90 * time.Second, `{"type":"string","description":"a duration such as \"1m30s\"","examples":["1m30s"]}`},
		{time.Unix(0, 0).UTC(), `{"type":"string","format":"date-time"}`},
		{map[netip.Addr]int{netip.MustParseAddr("::1"): 1}, `{"type":"object","additionalProperties":{"type":"integer"}}`},
		{[]*int{new(int)}, `{"type":"array","items":{"type":"integer"}}`},
	} {
		typ := reflect.TypeOf(tt.in)
		t.Run(typ.String(), func(t *testing.T) {
			s, err := schema.ForType(typ)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, s.String()); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
			// What is written fits, and comes back as it was.
			out, err := s.Output(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			back := reflect.New(typ)
			if err := s.Decode(out, back.Interface()); err != nil {
				t.Fatal(err)
			}
			again, err := s.Output(back.Elem().Interface())
			if err != nil || string(again) != string(out) {
				t.Errorf("%s came back as %s (%v)", out, again, err)
			}
		})
	}
}

type (
	onlyWrites struct{}
	writer     struct{ A int }
	panics     struct{ P *int }
	referring  struct{}
	broken     struct{}
	times      struct {
		time.Time
		Zone string
	}
)

func (onlyWrites) MarshalText() ([]byte, error) { return nil, nil }
func (writer) MarshalJSON() ([]byte, error)     { return nil, nil }
func (p panics) JSONSchema() json.RawMessage {
	return json.RawMessage(`{"minimum":` + string(rune(*p.P)) + `}`)
}

func (referring) JSONSchema() json.RawMessage {
	return json.RawMessage(`{"items":{"$ref":"#/$defs/x"},"$defs":{"x":{}}}`)
}
func (broken) JSONSchema() json.RawMessage { return json.RawMessage(`{"type":`) }

// A bad type or tag fails when the program starts, with a text that names the
// field and says what to do.
func TestForSaysWhatIsWrong(t *testing.T) {
	type order struct {
		Total float64 `enum:"a,b"`
	}
	of := func(fields ...reflect.StructField) func() (*schema.Schema, error) { // what go vet would object to
		return func() (*schema.Schema, error) { return schema.ForType(reflect.StructOf(fields)) }
	}
	for name, tt := range map[string]struct {
		got  func() (*schema.Schema, error)
		want string
	}{
		"named field": {schema.For[order], "schema_test.order.Total"},
		"function":    {schema.For[struct{ F func() }], "field F: func() has no JSON form"},
		"interface":   {schema.For[struct{ R interface{ Read() } }], "has no JSON form"},
		"complex":     {schema.For[complex64], "has no JSON form"},
		"deep inside": {schema.For[struct {
			A []map[string]struct{ C chan int }
		}], "field A: field C"},
		"text, not read":       {schema.For[onlyWrites], "no UnmarshalText"},
		"JSON methods":         {schema.For[writer], "JSONSchema"},
		"promoted methods":     {schema.For[times], "embedded"},
		"JSONSchema panics":    {schema.For[panics], "panicked"},
		"JSONSchema refers":    {schema.For[referring], "$ref"},
		"JSONSchema no schema": {schema.For[broken], "line 1"},
		"two fields, one name": {of(
			reflect.StructField{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"x"`},
			reflect.StructField{Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"x"`},
		), `"x"`},
		"tag on a private field": {of(
			reflect.StructField{Name: "a", PkgPath: "p", Type: reflect.TypeFor[int](), Tag: `json:"a"`},
			reflect.StructField{Name: "B", Type: reflect.TypeFor[int]()},
		), "unexported"},
		"no exported fields": {schema.For[struct{ a int }], "no exported fields"},
		"misspelt option":    {of(reflect.StructField{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"a,omitEmpty"`}), "omitempty"},
		"a name in quotes":   {of(reflect.StructField{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"'-'"`}), "malformed"},
		"pointer to a private struct": {schema.For[struct {
			*plain
			C int
		}], "field plain: a pointer to an unexported type"},
		"misspelt format":        {of(reflect.StructField{Name: "A", Type: reflect.TypeFor[string](), Tag: `format:"e-mail"`}), "there are date, date-time, email"},
		"default outside format": {of(reflect.StructField{Name: "A", Type: reflect.TypeFor[string](), Tag: `format:"email" default:"x"`}), "an email address"},
		"wider than the type":    {of(reflect.StructField{Name: "A", Type: reflect.TypeFor[int8](), Tag: `max:"900"`}), "the type's own limit is 127"},
		"fewer than the array":   {of(reflect.StructField{Name: "A", Type: reflect.TypeFor[[2]int](), Tag: `minItems:"1"`}), "the type's own limit is 2"},
		"no number between":      {of(reflect.StructField{Name: "A", Type: reflect.TypeFor[float64](), Tag: `exclusiveMin:"5" max:"5"`}), "no number is between 5 and 5"},
		"embed option": {schema.For[struct {
			A map[string]int `json:",embed"`
		}], "embed"},
		"empty pattern": {schema.For[struct {
			A string `pattern:""`
		}], "empty"},
		"enum twice": {schema.For[struct {
			A string `enum:"a,b,a"`
		}], "twice"},
		"enum with a hole": {schema.For[struct {
			A string `enum:"a,,b"`
		}], "empty value"},
		"enum outside the range": {schema.For[struct {
			A int `enum:"1,9" max:"5"`
		}], "must be at most 5"},
		"enum of the wrong type": {schema.For[struct {
			A int8 `enum:"1,900"`
		}], "at most 127"},
		"enum outside the pattern": {schema.For[struct {
			A string `enum:"a,b" pattern:"^a$"`
		}], "regular expression"},
		"example outside": {schema.For[struct {
			A string `example:"xx" maxLength:"1"`
		}], "example"},
		"default is no time": {schema.For[struct {
			A time.Time `default:"noon"`
		}], "default"},
		"default is no duration": {schema.For[struct {
			A time.Duration `default:"5"`
		}], "duration"},
		"default of elements": {schema.For[struct {
			A []string `enum:"a" default:"[\"b\"]"`
		}], "default"},
		"limits crossed": {schema.For[struct {
			A int `min:"5" max:"3"`
		}], "minimum 5 is above maximum 3"},
		"lengths crossed": {schema.For[struct {
			A []string `minItems:"5" maxItems:"3"`
		}], "minItems 5"},
		"limit outside the type": {schema.For[struct {
			A string `minLength:"-1"`
		}], "at least 0"},
		"tag of a struct": {schema.For[struct {
			A struct{} `min:"1"`
		}], "does not apply"},
		"tag of a recursive type": {schema.For[struct {
			A node `minLength:"1"`
		}], "does not apply"},
		"constraint as description": {schema.For[struct {
			A string `jsonschema:"enum=a,enum=b"`
		}], "description"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tt.got()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want it to have %q", err, tt.want)
			}
		})
	}
}

// fieldOfType returns a struct with one field, whose tag vet does not see.
func fieldOfType[T any](tag reflect.StructTag) reflect.Type {
	return reflect.StructOf([]reflect.StructField{{Name: "A", Type: reflect.TypeFor[T](), Tag: tag}})
}
