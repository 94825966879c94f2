package journal_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/journal"
)

func TestSame(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[2]}`, ` { "b" : [ 2 ], "a" : 1 } `, true},
		{`"\u0041"`, `"A"`, true},
		{`9007199254740992`, `9007199254740993`, false},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567891}`, false},
		{`1.0`, `1`, true},
		{`1e0`, `1`, true},
		{`0.1`, `0.1`, true},
		{`[1,2]`, `[2,1]`, false},
		{`{"a":null}`, `{}`, false},
		{`not json`, `not json`, true},
		{`not json`, `{}`, false},
	} {
		if got := journal.Same(jsontext.Value(tt.a), jsontext.Value(tt.b)); got != tt.same {
			t.Errorf("%s and %s: %v, want %v", tt.a, tt.b, got, tt.same)
		}
	}
}
