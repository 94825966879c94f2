package schema_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/schema"
)

type searchInput struct {
	Queries  []string         `json:"queries"`
	Target   *target          `json:"target"`
	MaxBytes int              `json:"maxBytes,omitzero"`
	AutoOpen *bool            `json:"auto_open"`
	Content  string           `json:"content,omitempty"`
	Big      uint64           `json:"big,omitzero"`
	Exact    json.Number      `json:"exact,omitzero"`
	Raw      json.RawMessage  `json:"raw,omitzero"`
	Within   *map[string]bool `json:"within"`
}

type target struct {
	Kind string `json:"kind" enum:"agent,all"`
	Name string `json:"name,omitempty"`
}

// What models get wrong, as it arrives in Go.
func TestDecodeArguments(t *testing.T) {
	s, err := schema.Arguments[searchInput](nil)
	if err != nil {
		t.Fatal(err)
	}
	no := false
	for _, tt := range []struct {
		name, in string
		want     searchInput
		repairs  string
		problem  string // what the error has, if it is one
	}{
		{
			"twice encoded", `{"queries":"[\"test\"]","target":"{\"kind\":\"agent\",\"name\":\"r\"}"}`,
			searchInput{Queries: []string{"test"}, Target: &target{"agent", "r"}},
			"decoded queries, decoded target", "",
		},
		{
			"a number and a boolean in strings", `{"queries":[],"maxBytes":"200000","auto_open":"false"}`,
			searchInput{Queries: []string{}, MaxBytes: 200000, AutoOpen: &no},
			"decoded maxBytes, decoded auto_open", "",
		},
		{
			"text stays text", `{"queries":["[1]","7"],"content":"[1,2]"}`,
			searchInput{Queries: []string{"[1]", "7"}, Content: "[1,2]"},
			"", "",
		},
		{
			"a large integer", `{"queries":[],"big":12345678901234567890,"exact":12345678901234567890,"raw":{"n":12345678901234567890}}`,
			searchInput{Queries: []string{}, Big: 12345678901234567890, Exact: "12345678901234567890", Raw: json.RawMessage(`{"n":12345678901234567890}`)},
			"", "",
		},
		{
			"a large integer in a string", `{"queries":[],"big":"12345678901234567890"}`,
			searchInput{Queries: []string{}, Big: 12345678901234567890},
			"decoded big", "",
		},
		{
			"half a surrogate pair", `{"queries":["\ud83d"],"raw":"\ud83d"}`,
			searchInput{Queries: []string{"\uFFFD"}, Raw: json.RawMessage("\"\uFFFD\"")},
			"unicode queries[0], unicode raw", "",
		},
		{
			"null for what is optional", `{"queries":[],"target":null,"maxBytes":null,"content":null}`,
			searchInput{Queries: []string{}},
			"null target, null maxBytes, null content", "",
		},
		{
			"null that is allowed stays", `{"queries":[],"raw":null}`,
			searchInput{Queries: []string{}, Raw: json.RawMessage(`null`)},
			"", "",
		},
		{"nothing", ``, searchInput{}, "", "queries: is required"},
		{"blank", " \n", searchInput{}, "", "queries: is required"},
		{"null", `null`, searchInput{}, "", "queries: is required"},
		{"null for a required field", `{"queries":null}`, searchInput{}, "", "queries: expected an array; each element a string, got null"},
		{"null for an element", `{"queries":["a",null]}`, searchInput{}, "", "queries[1]: expected a string, got null"},
		{"null for a value of a map", `{"queries":[],"within":{"a":null}}`, searchInput{}, "", "within.a: expected true or false, got null"},
		{"another case", `{"QUERIES":[]}`, searchInput{}, "", "QUERIES: unknown property; did you mean queries?"},
		{"misspelt", `{"queries":[],"max_bytes":1}`, searchInput{}, "", "max_bytes: unknown property; did you mean maxBytes?"},
		{"twice the same", `{"queries":["a"],"queries":["b"]}`, searchInput{}, "", `line 1, column 18: the property "queries" occurs twice`},
		{"twice the same, below", `{"queries":[],"target":{"kind":"all","kind":"agent"}}`, searchInput{}, "", `the property "kind" occurs twice`},
		{"twice the same, written differently", `{"queries":["a"],"quer\u0069es":["b"]}`, searchInput{}, "", `the property "queries" occurs twice`},
		{"glued objects", `{"queries":["a"]}{"queries":["b"]}`, searchInput{}, "", "second value"},
		{"raw control characters", "{\"queries\":[\"a\x07b\v\"]}", searchInput{}, "", `U+0007 inside a string; write it as the escape \u0007`},
		{"a trailing comma", `{"queries": ["a"], }`, searchInput{}, "", "remove the comma before it"},
		{"an array", `[1,2]`, searchInput{}, "", "expected an object, got an array of 2 elements"},
		{"a string", `"hi"`, searchInput{}, "", `expected an object, got the string "hi"`},
		{"an array in a string", `"[1,2]"`, searchInput{}, "", `expected an object, got the string "[1,2]"`},
		{"too many digits", `{"queries":[],"big":18446744073709551616}`, searchInput{}, "", "big: must be from 0 to 18446744073709551615"},
		{"a negative number", `{"queries":[],"big":-1}`, searchInput{}, "", "big: must be at least 0, got the number -1"},
		{"a word for a boolean", `{"queries":[],"auto_open":"no"}`, searchInput{}, "", `auto_open: expected true or false, got the string "no"`},
		{"a number for text", `{"queries":[7]}`, searchInput{}, "", "queries[0]: expected a string, got the number 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got searchInput
			clean, repairs, err := s.DecodeArguments(tt.in, &got)
			if tt.problem != "" {
				if !forModel(err) || !strings.Contains(err.Error(), tt.problem) {
					t.Errorf("error %v, want it to have %q", err, tt.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("arrived as (-want +got):\n%s", diff)
			}
			var again searchInput
			if same, more, err := s.DecodeArguments(string(clean), &again); err != nil || len(more) > 0 || string(same) != string(clean) || !cmp.Equal(again, got) {
				t.Errorf("%s was returned, and that gives %+v, %s, %v, %v", clean, again, same, more, err)
			}
			said := make([]string, 0, len(repairs))
			for _, r := range repairs {
				said = append(said, r.String())
			}
			if got := strings.Join(said, ", "); got != tt.repairs {
				t.Errorf("repairs %q, want %q", got, tt.repairs)
			}
		})
	}
}

// forModel reports whether an error is one that a model can do something about,
// and short enough for it.
func forModel(err error) bool {
	var v *schema.ValidationError
	var syntax *schema.SyntaxError
	return (errors.As(err, &v) || errors.As(err, &syntax)) && len(err.Error()) < 8000
}

// A value that fits some alternative is left alone, whatever their order.
func TestUnionsDecode(t *testing.T) {
	type input struct {
		Value any `json:"value"`
	}
	for _, tt := range []struct {
		arms [2]string
		in   string
		want any // nil for JSON's null
	}{
		{[2]string{"number", "null"}, `{"value":null}`, nil},
		{[2]string{"string", "null"}, `{"value":null}`, nil},
		{[2]string{"string", "number"}, `{"value":"7"}`, "7"},
		{[2]string{"string", "number"}, `{"value":7}`, 7.0},
		{[2]string{"number", "null"}, `{"value":"7"}`, 7.0},
		{[2]string{"string", "integer"}, `{"value":12345678901234567890}`, json.Number("12345678901234567890")},
	} {
		for _, union := range []string{"anyOf", "oneOf"} {
			for i := range 2 {
				byHand := mustParse(t, `{"type":"object","properties":{"value":{"`+union+`":[{"type":"`+tt.arms[i]+`"},{"type":"`+tt.arms[1-i]+`"}]}},"required":["value"]}`)
				s, err := schema.Arguments[input](byHand)
				if err != nil {
					t.Fatal(err)
				}
				got := input{"untouched"}
				if _, _, err := s.DecodeArguments(tt.in, &got); err != nil || got.Value != tt.want {
					t.Errorf("%s with %s gave %v, %v; want %v", s, tt.in, got.Value, err, tt.want)
				}
			}
		}
	}
}

// Whatever is wrong is said at once, for the schema and for the types.
func TestAllProblemsAtOnce(t *testing.T) {
	type input struct {
		When  time.Time     `json:"when"`
		Wait  time.Duration `json:"wait"`
		Data  []byte        `json:"data"`
		Count int64         `json:"count"`
		Kind  string        `json:"kind" enum:"a,b"`
		Days  []time.Time   `json:"days,omitempty"`
	}
	s, err := schema.Arguments[input](nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.DecodeArguments(`{"when":"noon","wait":"5","data":"!","count":9223372036854775808,"knd":"a","days":["2026-01-02T15:04:05Z","monday","friday"]}`, new(input))
	want := `8 problems:
- kind: is required; expected one of "a", "b"
- when: expected a date and time such as "2026-01-02T15:04:05Z", got the string "noon"
- knd: unknown property; did you mean kind?; allowed: when, wait, data, count, kind, days
- days[1]: expected a date and time such as "2026-01-02T15:04:05Z", got the string "monday"
- days[2]: expected a date and time such as "2026-01-02T15:04:05Z", got the string "friday"
- wait: expected a duration such as "1m30s", got the string "5"
- data: expected base64, got the string "!"
- count: must be from -9223372036854775808 to 9223372036854775807, got the number 9223372036854775808`
	if err == nil {
		t.Fatal("accepted")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	// Many of them are counted, not listed.
	days := `{"when":"2026-01-02T15:04:05Z","wait":"5s","data":"","count":1,"kind":"a","days":[` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("x", 1000)+`",`, 5000), ",") + `]}`
	for _, s := range []*schema.Schema{s, mustParse(t, `{"type":"object"}`)} { // found by the schema, and by the type alone
		var v *schema.ValidationError
		if _, _, err := s.DecodeArguments(days, new(input)); !errors.As(err, &v) || len(v.Problems) != schema.MaxProblems || v.More != 5000-schema.MaxProblems || !forModel(err) {
			t.Errorf("error %.500v", err)
		}
	}
}

// A schema is given by hand where a type cannot say it. It must describe
// arguments, and the function's input must have a place for them.
func TestArguments(t *testing.T) {
	type query struct {
		Path  string `json:"path"`
		Limit int    `json:"limit"`
	}
	const byHand = `{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":["integer","null"],"default":10}},"required":["path"]}`
	for _, tt := range []struct {
		name string
		got  func(*schema.Schema) (*schema.Schema, error)
		doc  string // empty to infer
		want string // empty if there can be such a tool
	}{
		{"a string", schema.Arguments[string], "", "arguments are an object and string is a string: make it a field of a struct"},
		{"a slice", schema.Arguments[[]string], "", "arguments are an object and []string is an array; each element a string: make it a field of a struct"},
		{"a number", schema.Arguments[int], "", "int is an integer"},
		{"a time", schema.Arguments[time.Time], "", "time.Time is a date and time"},
		{"anything", schema.Arguments[any], "", "interface {} says nothing about the arguments"},
		{"raw JSON", schema.Arguments[json.RawMessage], "", "give the schema by hand"},
		{"a channel", schema.Arguments[chan int], "", "has no JSON form"},
		{"a struct", schema.Arguments[query], "", ""},
		{"a map", schema.Arguments[map[string]int], "", ""},
		{"by hand", schema.Arguments[query], byHand, ""},
		{"by hand, a pointer", schema.Arguments[*query], byHand, ""},
		{"by hand, anything", schema.Arguments[any], byHand, ""},
		{"by hand, a map", schema.Arguments[map[string]any], byHand, ""},
		{"by hand, raw JSON", schema.Arguments[json.RawMessage], byHand, ""},
		{"by hand, what reads itself", schema.Arguments[money], byHand, ""},
		{"by hand, no object", schema.Arguments[query], `{"type":"array"}`, "must be an object"},
		{"by hand, a string", schema.Arguments[string], byHand, "string cannot hold"},
		{"by hand, a slice", schema.Arguments[[]query], byHand, "[]schema_test.query cannot hold"},
		{"by hand, another case", schema.Arguments[struct{ Path, Limit string }], byHand, `property "path" and struct { Path string; Limit string } has no field for it; it has "Path", and names match exactly`},
		{"by hand, a property too many", schema.Arguments[struct {
			Path string `json:"path"`
		}], byHand, `property "limit"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var given *schema.Schema
			if tt.doc != "" {
				given = mustParse(t, tt.doc)
			}
			s, err := tt.got(given)
			switch {
			case tt.want == "":
				if err != nil || s == nil || given != nil && s != given {
					t.Errorf("%v, %v", s, err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("error %v, want it to have %q", err, tt.want)
			}
		})
	}
	s := mustParse(t, byHand)
	for in, want := range map[string]query{`{"path":"a"}`: {"a", 10}, `{"path":"a","limit":3}`: {"a", 3}} {
		var got query
		if _, _, err := s.DecodeArguments(in, &got); err != nil || got != want {
			t.Errorf("%s gave %+v, %v", in, got, err)
		}
	}
}

// A fault of the program is not told to the model, which could not mend it.
func TestMethodsThatPanic(t *testing.T) {
	type input struct {
		F faulty `json:"f"`
	}
	s, err := schema.Arguments[input](nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate([]byte(`{"f":"x"}`)); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("error %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("DecodeArguments hid the panic of a method")
		}
	}()
	_, _, err = s.DecodeArguments(`{"f":"x"}`, new(input))
	t.Errorf("error %v", err)
}

func TestHints(t *testing.T) {
	s := mustParse(t, `{"type":"object","properties":{"name":{},"maxBytes":{},"orderId":{},"id":{},"größe":{}},"additionalProperties":false}`)
	for key, want := range map[string]string{
		"nmae": "name", "names": "name", "nam": "name", "Name": "name", "max_bytes": "maxBytes", "MAX-BYTES": "maxBytes", "oderId": "orderId", "order": "orderId",
		"größße": "größe", "x": "", "age": "", "di": "id", "": "", strings.Repeat("n", 1000): "",
	} {
		in, err := json.Marshal(map[string]int{key: 1})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.DecodeArguments(string(in), new(map[string]any))
		if err == nil || !forModel(err) || strings.Contains(err.Error(), "did you mean") != (want != "") || !strings.Contains(err.Error(), "did you mean "+want+"?") && want != "" {
			t.Errorf("%.20q: error %v, want the hint %q", key, err, want)
		}
	}
}
