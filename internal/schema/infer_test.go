package schema_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/schema"
)

type refund struct {
	OrderID string `json:"orderId" jsonschema:"order number, such as ORD-2024-0042" pattern:"^ORD-"`
	Reason  string `json:"reason" enum:"damaged,not_received,changed_mind"`
}

type base struct {
	ID int `json:"id"`
}

type everything struct {
	base
	Name    string            `json:"name"`
	Age     *int              `json:"age"`
	Ratio   float64           `json:"ratio,omitempty" min:"0" max:"1"`
	Tags    []string          `json:"tags,omitzero" enum:"a,b" maxItems:"3"`
	When    time.Time         `json:"when"`
	Wait    time.Duration     `json:"wait,omitzero" default:"5s"`
	Raw     json.RawMessage   `json:"raw,omitempty"`
	Any     any               `json:"any,omitempty"`
	Data    []byte            `json:"data,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Pair    [2]int            `json:"pair,omitzero"`
	Level   uint8             `json:"level" default:"3"`
	private int
	Skipped string `json:"-"`
}

type tree struct {
	Value string  `json:"value"`
	Kids  []*tree `json:"kids,omitempty"`
}

type forest struct {
	Root tree `json:"root"`
}

type color struct{ name string }

func (c *color) UnmarshalText(b []byte) error { c.name = string(b); return nil }

type money struct{}

func (m *money) UnmarshalJSON([]byte) error { return nil }

type described struct{ money }

func (described) JSONSchema() json.RawMessage {
	return json.RawMessage(`{"type":"string","pattern":"^[0-9]+$"}`)
}

func TestFor(t *testing.T) {
	_ = everything{}.private
	tests := []struct {
		name string
		got  func() (*schema.Schema, error)
		want string
	}{
		{"nothing", schema.For[struct{}], `{"type":"object","properties":{},"additionalProperties":false}`},
		{"tags", schema.For[refund], `{"type":"object","properties":{"orderId":{"type":"string","description":"order number, such as ORD-2024-0042","pattern":"^ORD-"},"reason":{"type":"string","enum":["damaged","not_received","changed_mind"]}},"required":["orderId","reason"],"additionalProperties":false}`},
		{"everything", schema.For[everything], `{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"age":{"type":"integer"},"ratio":{"type":"number","minimum":0,"maximum":1},"tags":{"type":"array","items":{"type":"string","enum":["a","b"]},"maxItems":3},"when":{"type":"string","format":"date-time"},"wait":{"type":"string","description":"a duration such as \"1m30s\"","examples":["1m30s"],"default":"5s"},"raw":{},"any":{},"data":{"type":"string","contentEncoding":"base64"},"labels":{"type":"object","additionalProperties":{"type":"string"}},"pair":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2},"level":{"type":"integer","minimum":0,"maximum":255,"default":3}},"required":["id","name","when"],"additionalProperties":false}`},
		{"recursive", schema.For[forest], `{"type":"object","properties":{"root":{"$ref":"#/$defs/tree"}},"required":["root"],"additionalProperties":false,"$defs":{"tree":{"type":"object","properties":{"value":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["value"],"additionalProperties":false}}}`},
		{"recursive root", schema.For[tree], `{"type":"object","properties":{"value":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["value"],"additionalProperties":false,"$defs":{"tree":{"type":"object","properties":{"value":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["value"],"additionalProperties":false}}}`},
		{"text", schema.For[color], `{"type":"string"}`},
		{"its own", schema.For[described], `{"type":"string","pattern":"^[0-9]+$"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := tt.got()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, s.String()); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		got  func() (*schema.Schema, error)
		want string
	}{
		"channel":      {schema.For[struct{ C chan int }], "field C"},
		"json methods": {schema.For[struct{ M money }], "JSONSchema"},
		"number keys":  {schema.For[map[int]string], "keys"},
		"bad number": {schema.For[struct {
			N int `min:"x"`
		}], "min"},
		"wrong kind": {schema.For[struct {
			S string `min:"1"`
		}], "min"},
		"bad default": {schema.For[struct {
			N int `default:"x"`
		}], "default"},
		"default range": {schema.For[struct {
			N int `default:"9" max:"3"`
		}], "default"},
		"string option": {schema.For[struct {
			N int `json:",string"`
		}], "string"},
		"bad pattern": {schema.For[struct {
			S string `pattern:"("`
		}], "pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tt.got(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want it to have %q", err, tt.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	s, err := schema.For[everything]()
	if err != nil {
		t.Fatal(err)
	}
	got, err := schema.Decode[everything](s, []byte(`{"id":7,"name":"x","age":null,"when":"2026-01-02T03:04:05Z","tags":["b"],"data":"aGk=","labels":{"k":"v"},"pair":[1,2]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := everything{
		base: base{7}, Name: "x", When: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Wait: 5 * time.Second, Tags: []string{"b"},
		Data: []byte("hi"), Labels: map[string]string{"k": "v"}, Pair: [2]int{1, 2}, Level: 3,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(everything{})); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	for _, bad := range []string{
		`{"id":7,"NAME":"x","when":"2026-01-02T03:04:05Z"}`, // names match exactly
		`{"id":7.5,"name":"x","when":"2026-01-02T03:04:05Z"}`,
		`{"id":7,"name":"x","when":"2026-01-02T03:04:05Z","level":-1}`,
		`{"id":7,"id":8,"name":"x","when":"2026-01-02T03:04:05Z"}`,
	} {
		if _, err := schema.Decode[everything](s, []byte(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestMarshal(t *testing.T) {
	type loop struct{ Next *loop }
	l := &loop{}
	l.Next = l
	for _, tt := range []struct {
		in   any
		want string // empty for an error
	}{
		{map[string]int{"b": 1, "a": 2}, `{"a":2,"b":1}`},
		{[]string(nil), `[]`},
		{nil, `null`},
		{"<a> & \xff", `"<a> & �"`},
		{90 * time.Second, `"1m30s"`},
		{json.Number("12345678901234567890"), `12345678901234567890`},
		{json.RawMessage(`{"b":1,"a":2}`), `{"b":1,"a":2}`},
		{math.NaN(), ""},
		{math.Inf(1), ""},
		{make(chan int), ""},
		{func() {}, ""},
		{l, ""},
	} {
		got, err := schema.Marshal(tt.in)
		if (err == nil) != (tt.want != "") || string(got) != tt.want {
			t.Errorf("Marshal(%T) = %s, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}
