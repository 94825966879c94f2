package schema

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestSyntaxErrors(t *testing.T) {
	tests := []struct {
		name, in     string
		line, column int
		want         string
	}{
		{"trailing comma in an object", `{"path": "a.txt", }`, 1, 19, "remove the comma"},
		{"trailing comma in an array", `[1, 2,]`, 1, 7, "remove the comma"},
		{"raw control characters", "{\"cmd\":\"a\x07b\v\"}", 1, 10, `\u0007`},
		{"raw line feed in a string", "{\"a\":\n \"x\ny\"}", 2, 4, `\u000a`},
		{"single quotes", `{'a':1}`, 1, 2, "double quotes"},
		{"single quotes for a value", `{"a":'b'}`, 1, 6, "double quotes"},
		{"a bare name", `{a:1}`, 1, 2, "property name in double quotes"},
		{"no colon", `{"a" 1}`, 1, 6, "':'"},
		{"no comma", `{"a":1 "b":2}`, 1, 8, "',' or '}'"},
		{"cut in an object", `{"a":1`, 1, 7, "starts at line 1, column 1 is not closed"},
		{"cut in a string", `{"a":"b`, 1, 8, "ends inside the string that starts at line 1, column 6"},
		{"cut after a colon", `{"a":`, 1, 6, "expected a value, got the end"},
		{"a second value", `{} {}`, 1, 4, "second value"},
		{"an unmatched bracket", `{}}`, 1, 3, "unmatched"},
		{"text behind", `{} ok`, 1, 4, "expected the end"},
		{"a word", `{"a":undefined}`, 1, 6, "expected a value"},
		{"half a word", `{"a":tru}`, 1, 6, "true, false or null"},
		{"a leading zero", `[01]`, 1, 2, "begin with 0"},
		{"no digit", `[-]`, 1, 3, "expected a digit"},
		{"no fraction", `[1.]`, 1, 4, "decimal point"},
		{"no exponent", `[1e]`, 1, 4, "exponent"},
		{"NaN", `[NaN]`, 1, 2, "expected a value"},
		{"an unknown escape", `["\x41"]`, 1, 3, "unknown escape"},
		{"a short escape", `["\u00g0"]`, 1, 3, "hexadecimal"},
		{"twice the same name", `{"a":1,"a":2}`, 1, 8, "occurs twice"},
		{"twice after repair", "{\"a\\ud83d\":1,\"a\xff\":2}", 1, 14, "occurs twice"},
		{"a column counts characters", `{"ü€": x}`, 1, 8, "expected a value"},
		{"too large a number", `[1e1001]`, 1, 2, "exponent"},
		{"too long a number", "[" + strings.Repeat("1", maxLiteral+1) + "]", 1, 2, "1000"},
		{"too deep", strings.Repeat("[", MaxDepth+1), 1, MaxDepth + 1, "deeper"},
		{"too many values", "[" + strings.Repeat("1,", MaxValues) + "1]", 1, 2*MaxValues + 1, "values"},
		{"too large", strings.Repeat(" ", MaxDocument+1), 1, 1, "limit"},
		{"empty", ``, 1, 1, "expected a value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.in)
			var e *SyntaxError
			if !errors.As(err, &e) {
				t.Fatalf("error %v, want a syntax error", err)
			}
			if e.Line != tt.line || e.Column != tt.column || !strings.Contains(e.Error(), tt.want) {
				t.Errorf("at %d:%d %v; want %d:%d %q", e.Line, e.Column, e, tt.line, tt.column, tt.want)
			}
			if len(e.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(e.Error()))
			}
		})
	}
}

func TestUnicode(t *testing.T) {
	for in, want := range map[string]string{
		`"\ud83d\ude00"`:            `"😀"`,
		`"\ud83d"`:                  "\"\uFFFD\"",
		`"\ude00\ud83d"`:            "\"\uFFFD\uFFFD\"",
		`"\ud83dx"`:                 "\"\uFFFDx\"",
		`"\ud83d\u0041"`:            "\"\uFFFDA\"",
		"\"\xff\xfe\x80\"":          "\"\uFFFD\uFFFD\uFFFD\"",
		"\"a\xf0\x9f\x98\"":         "\"a\uFFFD\uFFFD\uFFFD\"",
		`"\u0000\b\f\n\r\t\"\\\/é"`: `"\u0000\u0008\u000c\n\r\t\"\\/é"`,
	} {
		doc, err := parse(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := string(doc.root.append(nil)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// The parser accepts what the strict parser of the JSON package accepts, means
// the same by it, and differs only in its limits.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"x\u00e9\ud83d"],"b":null}`, "\"\xff\"", `{"a":1,"a":2}`, `[1,]`, `{}{}`, `-0`, ` [ true , false ] `, `1e999`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		doc, err := parse(in)
		dec := jsontext.NewDecoder(strings.NewReader(in), jsontext.AllowInvalidUTF8(true))
		want, wantErr := dec.ReadValue()
		want = bytes.Clone(want)
		if wantErr == nil {
			if _, end := dec.ReadToken(); end != io.EOF {
				wantErr = errors.New("more follows")
			}
		}
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) || e.Offset > len(in) || e.Line < 1 || e.Column < 1 {
				t.Fatalf("%q: %#v", in, err)
			}
			for _, limit := range []string{"deeper", "exponent of", "characters", "more than"} {
				if strings.Contains(e.Message, limit) {
					return
				}
			}
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, the JSON package says %v", in, err, wantErr)
		}
		if err != nil {
			return
		}
		if err := want.Compact(jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(false), jsontext.CanonicalizeRawInts(false)); err != nil {
			t.Fatal(err)
		}
		again, err := parse(string(want))
		if err != nil || !again.root.equal(doc.root) {
			t.Fatalf("%q means %s, the JSON package reads %s (%v)", in, doc.root.append(nil), want, err)
		}
	})
}
