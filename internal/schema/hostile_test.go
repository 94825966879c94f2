package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Schemas come from tool servers too, and arguments from models that have read
// anything. None of these may hang, exhaust the stack or panic.
func TestHostileSchemas(t *testing.T) {
	chain := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
		for i := range n {
			fmt.Fprintf(&b, `"%d":{"$ref":"#/$defs/%d"},`, i, i+1)
		}
		fmt.Fprintf(&b, `"%d":{}}}`, n)
		return b.String()
	}
	tests := []struct{ name, in, want string }{
		{"refers to itself", `{"$ref":"#"}`, "refers to itself"},
		{"through allOf", `{"allOf":[{"type":"object"},{"$ref":"#"}]}`, "refers to itself"},
		{"through not", `{"not":{"$ref":"#"}}`, "refers to itself"},
		{"through if", `{"if":{"$ref":"#"}}`, "refers to itself"},
		{"in a property", `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/x"}}}`, "refers to itself"},
		{"two in a circle", `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/y"},"y":{"$ref":"#/$defs/x"}}}`, "refers to itself"},
		{"a long row of references", chain(maxInPlace + 1), "in a row"},
		{"a very long one", chain(10_000), "in a row"},
		{"a reference to nothing", `{"properties":{"a":{"$ref":"#/$defs/none"}}}`, "points at nothing"},
		{"a remote reference", `{"$ref":"https://example.com/schema.json"}`, "not fetched"},
		{"a dynamic reference", `{"$dynamicRef":"#x"}`, "not supported"},
		{"lookahead", `{"properties":{"a":{"pattern":"(?=x)"}}}`, "/properties/a: pattern"},
		{"a type that is none", `{"properties":{"a/b":{"type":"strnig"}}}`, "/properties/a~1b: type"},
		{"draft-04", `{"minimum":1,"exclusiveMinimum":true}`, "must be a number"},
		{"a bad default", `{"properties":{"a":{"type":"integer","default":"x"}}}`, "default"},
		{"no schema", `[]`, "a schema is an object"},
		{"no JSON", `{`, "line 1"},
		{"too large", `{"description":"` + strings.Repeat("x", maxSchema) + `"}`, "limit"},
		{"too many parts", `{"enum":[` + strings.Repeat("1,", maxSchemaValues) + `1]}`, "limit"},
		{"a length that is none", `{"minLength":-1}`, "at least 0"},
		{"an empty union", `{"anyOf":[]}`, "at least one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(json.RawMessage(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 1000 {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// A recursive union has exponentially many ways to fail.
func TestExponentialUnion(t *testing.T) {
	s, err := Parse(json.RawMessage(`{"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[
		{"type":"object","properties":{"k":{"$ref":"#/$defs/n"}},"required":["x"]},
		{"type":"object","properties":{"k":{"$ref":"#/$defs/n"}},"minProperties":2},
		{"type":"array","items":{"$ref":"#/$defs/n"}}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{5, 30, MaxDepth - 1} {
		in := strings.Repeat(`{"k":`, depth) + "1" + strings.Repeat("}", depth)
		_, _, err := s.PrepareArguments(in)
		var v *ValidationError
		if !errors.As(err, &v) || len(err.Error()) > 10_000 {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

// The corrections look for what a place allows; that search is bounded as well.
func TestWideUnions(t *testing.T) {
	var arms strings.Builder
	for i := range 300 {
		fmt.Fprintf(&arms, `{"type":"object","properties":{"kind":{"const":"k%d"},"v":{"type":"array"}},"required":["kind"]},`, i)
	}
	list := strings.TrimSuffix(arms.String(), ",")
	s, err := Parse(json.RawMessage(`{"type":"object","properties":{"a":{"allOf":[{"anyOf":[` + list + `]},{"oneOf":[` + list + `]}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.PrepareArguments(`{"a":{"kind":"k7","v":"[1"}}`)
	if err == nil || !strings.Contains(err.Error(), "a.v: expected an array") {
		t.Errorf("error %v, want it to speak of the alternative that is meant", err)
	}
	if _, _, err := s.PrepareArguments(`{"a":{"kind":"none","v":[]}}`); err == nil || len(err.Error()) > 8000 {
		t.Errorf("error %v", err)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	s, err := Parse(json.RawMessage(`{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x","y"]}}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("€", 100_000)
	_, _, err = s.PrepareArguments(`{"a":[` + strings.Repeat(`"`+long+`",`, 20) + `1],"` + long + `":1}`)
	var v *ValidationError
	if !errors.As(err, &v) || len(v.Problems) != MaxProblems || v.More != 12 {
		t.Fatalf("error %v", err)
	}
	if len(err.Error()) > 8000 || strings.Contains(err.Error(), "\uFFFD") {
		t.Errorf("an error of %d bytes: %.300s", len(err.Error()), err)
	}
}

// A schema is read by many calls at once, large parts of it too.
func TestConcurrentUse(t *testing.T) {
	var big strings.Builder
	for i := range indexFrom * 2 {
		fmt.Fprintf(&big, `"k%d":%d,`, i, i)
	}
	object := "{" + strings.TrimSuffix(big.String(), ",") + "}"
	s, err := Parse(json.RawMessage(`{"type":"object","properties":{"a":{"enum":[` + object + `]},"b":{"type":"object","default":` + object + `}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if _, _, err := s.PrepareArguments(`{"a":` + object + `}`); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// No schema and no arguments make it panic or work without end, and what it returns it accepts
// again without another correction.
func FuzzSchema(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type":"object","properties":{"a":{"type":"integer","default":3},"b":{"$ref":"#"}}}`, `{"a":"1","b":{"a":null}}`},
		{`{"anyOf":[{"properties":{"k":{"const":1}}},{"required":["x"]}],"unevaluatedProperties":false}`, `{"k":2}`},
		{`{"$defs":{"n":{"items":{"$ref":"#/$defs/n"}}},"properties":{"r":{"$ref":"#/$defs/n"}}}`, `{"r":"[[[]]]"}`},
		{`{"oneOf":[{"type":["object","null"]},{"minProperties":1}]}`, `null`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, schema, in string) {
		s, err := Parse(json.RawMessage(schema))
		if err != nil {
			return
		}
		if again, err := Parse(s.JSON()); err != nil || again.String() != s.String() {
			t.Fatalf("%s became %s, and that %v (%v)", schema, s, again, err)
		}
		if doc, err := parse(in); err == nil {
			e := evaluator{}
			if e.check(s.root, doc.root, nil, nil, nil); e.spent > 2*maxSteps {
				t.Fatalf("%s: %q took %d steps", schema, in, e.spent)
			}
		}
		out, _, err := s.PrepareArguments(in)
		if err != nil && len(err.Error()) > 10_000 {
			t.Fatalf("%s: %q: an error of %d bytes", schema, in, len(err.Error()))
		}
		if err != nil || s.defaults { // a default may collide with a union
			return
		}
		if again, repairs, err := s.PrepareArguments(string(out)); err != nil || len(repairs) > 0 || string(again) != string(out) {
			t.Fatalf("%s: %q became %s, and that %s (%v, %v)", schema, in, out, again, repairs, err)
		}
	})
}
