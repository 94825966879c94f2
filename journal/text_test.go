package journal_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/journal"
)

// stored is a record after it was written and read again.
func stored[R journal.Record](t *testing.T, r R) R {
	t.Helper()
	data, err := journal.Encode(journal.Batch{Records: []journal.Record{r}})
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(data) {
		t.Errorf("the stored form is not UTF-8: %q", data)
	}
	b, err := journal.Decode(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return b.Records[0].(R)
}

// A value that is there and empty is not one that is absent: a client shows the
// one, and something else in place of the other.
func TestEmptyValuesAreKept(t *testing.T) {
	for _, value := range []string{`{}`, `[]`, `""`, `null`, `0`, `false`} {
		t.Run(value, func(t *testing.T) {
			v := jsontext.Value(value)
			got := []jsontext.Value{
				stored(t, &journal.Born{InitialData: v}).InitialData,
				stored(t, &journal.State{Value: v}).Value,
				stored(t, &journal.Outcome{Output: v}).Output,
				stored(t, &journal.Outcome{Writes: []journal.VarWrite{{Value: v}}}).Writes[0].Value,
				stored(t, &journal.Settled{Error: v}).Error,
				stored(t, &journal.TurnDone{Blocks: []journal.Block{{Opaque: v}}}).Blocks[0].Opaque,
			}
			for i := range got {
				if string(got[i]) != value {
					t.Errorf("value %d came back as %q", i, []byte(got[i]))
				}
			}
		})
	}
	if got := stored(t, &journal.Outcome{}).Output; got != nil {
		t.Errorf("no output came back as %q", []byte(got))
	}
	blank := journal.TurnDone{Blocks: []journal.Block{{Opaque: jsontext.Value{}}}}
	if got := stored(t, &blank).Blocks[0].Opaque; got != nil {
		t.Errorf("a blank value of a provider came back as %q", []byte(got))
	}
}

// What a provider wants back is signed by it, so it must come back as it was.
func TestRawJSONIsKept(t *testing.T) {
	for name, value := range map[string]string{
		"numbers":                `[1.0,1e5,-0,12345678901234567890.10,1E+2]`,
		"order of names":         `{"b":1,"a":2}`,
		"names that repeat":      `{"a":1,"a":{"a":1,"a":2}}`,
		"escapes":                `"\u0041\/\u00e9\n\u000a\""`,
		"halves of a character":  `{"s":"\ud83d","\udc00":1}`,
		"characters in the text": `"é😀\u2028<>&"`,
		"nesting":                strings.Repeat("[", 500) + strings.Repeat("]", 500),
	} {
		t.Run(name, func(t *testing.T) {
			done := &journal.TurnDone{Blocks: []journal.Block{{Kind: journal.Reasoning, Opaque: jsontext.Value(value)}}}
			if got := stored(t, done).Blocks[0].Opaque; string(got) != value {
				t.Errorf("came back as %s", got)
			}
		})
	}
	spaced := stored(t, &journal.State{Value: jsontext.Value("{ \"a\" :\n[1, \"b c\"] }")})
	if got := string(spaced.Value); got != `{"a":[1,"b c"]}` {
		t.Errorf("space between tokens: %s", got)
	}
}

// Arguments are text, whatever they look like.
func TestArgumentsAreKept(t *testing.T) {
	for _, arguments := range []string{`{"x": 1 ,"x":2}`, `{"x":`, "plain", "\x00\u2028", `"\ud800"`} {
		done := &journal.TurnDone{Blocks: []journal.Block{{Kind: journal.ToolCall, Call: "c", Arguments: arguments}}}
		if got := stored(t, done).Blocks[0].Arguments; got != arguments {
			t.Errorf("%q came back as %q", arguments, got)
		}
	}
}

func TestBrokenText(t *testing.T) {
	for in, want := range map[string]string{
		"a\xffb":       "a\ufffdb",
		"\xff\xfe":     "\ufffd\ufffd",
		"\xed\xa0\x80": "\ufffd\ufffd\ufffd", // half of a surrogate pair
		"é\xc3":        "é\ufffd",
		"fine é😀":      "fine é😀",
	} {
		if got := stored(t, &journal.Outcome{Content: in}).Content; got != want {
			t.Errorf("%q came back as %q, want %q", in, got, want)
		}
	}
	if got := string(stored(t, &journal.Outcome{Output: jsontext.Value("\"\xff\xfe\"")}).Output); got != "\"\ufffd\"" {
		t.Errorf("broken text in raw JSON came back as %q", got)
	}
}

func TestUnsent(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		sent       []int
		want       string
	}{
		{"nothing was sent", "abc", nil, "abc"},
		{"of another block", "abc", []int{}, "abc"},
		{"a part", "abc", []int{1}, "bc"},
		{"all", "abc", []int{3}, ""},
		{"more than there is", "abc", []int{9}, ""},
		{"less than nothing", "abc", []int{-5}, "abc"},
		{"up to a character", "aé", []int{1}, "é"},
		{"within a character", "aé", []int{2}, "é"},
		{"within a long one", "a😀b", []int{4}, "😀b"},
		{"after a long one", "a😀b", []int{5}, "b"},
		{"within broken text", "a\xf0\x9fb", []int{2}, "\x9fb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			done := &journal.TurnDone{Blocks: []journal.Block{{Text: tt.text}}, Sent: tt.sent}
			if got := done.Unsent(0); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// What is left to send is the same before and after a turn was stored, also
// when storing it has made its text longer, and the record itself stays as it
// was.
func TestUnsentOfBrokenText(t *testing.T) {
	for _, text := range []string{"a\xffbc", "\xff\xfe\xfd", "é\xffé😀\xc3", "\xed\xa0\x80x"} {
		for sent := range len(text) + 2 {
			done := &journal.TurnDone{Blocks: []journal.Block{{Kind: journal.Text, Text: text}}, Sent: []int{sent}}
			before := *done
			want := strings.ToValidUTF8(string([]rune(done.Unsent(0))), "")
			if got := stored(t, done).Unsent(0); got != want {
				t.Errorf("%q, %d sent: %q is left when it was stored, %q before", text, sent, got, want)
			}
			if done.Blocks[0].Text != text || done.Sent[0] != sent || &done.Blocks[0] != &before.Blocks[0] {
				t.Fatalf("writing the record has changed it")
			}
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for name, r := range map[string]journal.Record{
		"nothing":       nil,
		"half a value":  &journal.State{Value: jsontext.Value(`{"a":`)},
		"two values":    &journal.State{Value: jsontext.Value(`1 2`)},
		"an empty one":  &journal.State{Value: jsontext.Value{}},
		"not a literal": &journal.Outcome{Output: jsontext.Value(`nope`)},
	} {
		t.Run(name, func(t *testing.T) {
			if data, err := journal.Encode(journal.Batch{Records: []journal.Record{r}}); err == nil {
				t.Errorf("no error, but %s", data)
			} else if r != nil && !strings.Contains(err.Error(), string(r.Kind())) {
				t.Errorf("the error does not name the record: %v", err)
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	for name, tt := range map[string]struct{ in, reason string }{
		"an array":                 {`[]`, "malformed"},
		"no version":               {`{"at":0,"r":[]}`, "format 0"},
		"a newer form":             {`{"v":3,"at":"now","r":{"x":1}}`, "format 3"},
		"a record of no form":      {`{"v":1,"r":[1]}`, "not an object"},
		"a record without data":    {`{"v":1,"r":[{"k":"abort"}]}`, "no data"},
		"data before the kind":     {`{"v":1,"r":[{"d":{},"k":"abort"}]}`, "before its kind"},
		"a version after the data": {`{"v":1,"r":[{"k":"abort","d":{},"v":2}]}`, "after the data"},
		"two data":                 {`{"v":1,"r":[{"k":"abort","d":{},"d":{}}]}`, "after the data"},
		"version zero":             {`{"v":1,"r":[{"k":"abort","v":0,"d":{}}]}`, "version 0"},
		"data that are no object":  {`{"v":1,"r":[{"k":"abort","d":null}]}`, "not an object"},
		"more than a batch":        {`{"v":1,"r":[]}{}`, "malformed"},
		"broken text":              {"{\"v\":1,\"r\":[],\"x\":\"\xff\"}", "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := journal.Decode([]byte(tt.in))
			var format *journal.FormatError
			if !errors.As(err, &format) {
				t.Fatalf("error %v, want a FormatError; read %v", err, b)
			}
			if !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("error %q does not say %q", err, tt.reason)
			}
		})
	}
}

// An error of a record says where in the batch it is.
func TestFormatErrorSaysWhere(t *testing.T) {
	_, err := journal.Decode([]byte(`{"v":1,"at":0,"r":[{"k":"abort","d":{}},{"k":"outcome","d":{"writes":[{"n":"x"}]}}]}`))
	for _, want := range []string{"outcome", "/r/1/d/writes/0/n"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

// A batch must not change when the buffer that it was read from is used again.
func TestDecodeSharesNoMemory(t *testing.T) {
	for i, b := range life() {
		data, err := journal.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := journal.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		for j := range data {
			data[j] = '#'
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Errorf("batch %d changed with the buffer:\n%s", i, diff)
		}
	}
}
