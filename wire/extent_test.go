package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestMeasure(t *testing.T) {
	tests := []struct {
		in   string
		want extent
	}{
		{`5`, extent{0, 0}},
		{`"{[:"`, extent{0, 0}},
		{`[]`, extent{1, 0}},
		{`[{"a":1,"b":2},{"c":{"d":[3]}}]`, extent{4, 2}},
		{`{"a":{"b":1,"c":2},"d":{"e":3}}`, extent{2, 3}},
		{`{"a\"{":"\\","b\\":"\\\":{","c":0}`, extent{1, 3}},
		{`{":":":"}`, extent{1, 1}},
		{``, extent{0, 0}},
		{`}]:{`, extent{1, 0}},
		{`{"a":"b\"`, extent{1, 1}},
		{strings.Repeat("[", 1<<20), extent{parserDepth + 1, 0}},
	}
	for _, test := range tests {
		if got := measure([]byte(test.in)); got != test.want {
			t.Errorf("measure(%.40s) = %+v, want %+v", test.in, got, test.want)
		}
	}
}

// What is measured must be what the parser reads, or a value could pass for
// another one.
func FuzzMeasure(f *testing.F) {
	for _, s := range []string{
		`{"a":{"b":[1,{"c":"\"\\"}]},"d":0}`, `[{"a":1},{"b":2,"c":"}"}]`, `{"\\":"\\\\","\"":":"}`, `{"a" : [ [ ] ] , "b":1`, "{\"\xff\":\"\x00\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		got, want, whole := measure(v), extent{}, false
		dec := jsontext.NewDecoder(bytes.NewBuffer(v), lenient)
		for {
			if _, err := dec.ReadToken(); err != nil {
				break
			}
			members := 0
			for i := 1; i <= dec.StackDepth(); i++ {
				if kind, n := dec.StackIndex(i); kind == '{' {
					members += int(n+1) / 2 // names and values count
				}
			}
			want.depth, want.members = max(want.depth, dec.StackDepth()), max(want.members, members)
			whole = dec.StackDepth() == 0
		}
		// What the parser stopped at may have been measured further.
		if got.depth < want.depth || got.members < want.members-1 {
			t.Errorf("measure(%q) = %+v, but the parser has read %+v", v, got, want)
		}
		if whole && jsontext.Value(v).IsValid(lenient) && got != want {
			t.Errorf("measure(%q) = %+v, want %+v", v, got, want)
		}
	})
}
