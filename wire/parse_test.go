package wire_test

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/wire"
)

const (
	dot      = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg=="
	badShape = "Delivered messages must be {"
)

func TestParsePrompt(t *testing.T) {
	user := func(body string) wire.Delivery { return wire.Delivery{Kind: wire.KindUser, Body: body} }
	tests := []struct {
		name, body string
		want       wire.Prompt
	}{
		{"user", `{"kind":"user","body":"hello"}`, wire.Prompt{Message: user("hello")}},
		{"byte order mark", "\ufeff" + `{"kind":"user","body":"hello"}`, wire.Prompt{Message: user("hello")}},
		{"empty text", `{"kind":"user","body":""}`, wire.Prompt{Message: user("")}},
		{"unknown members", `{"kind":"user","body":"x","extra":[{}],"type":5,"tagName":"1"}`, wire.Prompt{Message: user("x")}},
		{"broken bytes", "{\"kind\":\"user\",\"body\":\"a\xffb\"}", wire.Prompt{Message: user("a\ufffdb")}},
		{"half a surrogate", `{"kind":"user","body":"a\ud83d b"}`, wire.Prompt{Message: user("a\ufffd b")}},
		{"whole surrogates", `{"kind":"user","body":"\ud83d\ude00"}`, wire.Prompt{Message: user("😀")}},
		{"uid", `{"kind":"user","body":"x","uid":"inst_1"}`, wire.Prompt{Message: user("x"), UID: "inst_1"}},
		{"uid null", `{"kind":"user","body":"x","uid":null}`, wire.Prompt{Message: user("x"), Create: true}},
		{
			"uid null and data", `{"kind":"user","body":"x","uid":null,"initialData":{"a":1}}`,
			wire.Prompt{Message: user("x"), Create: true, InitialData: jsontext.Value(`{"a":1}`)},
		},
		{
			"null data is data", `{"kind":"user","body":"x","initialData":null}`,
			wire.Prompt{Message: user("x"), InitialData: jsontext.Value(`null`)},
		},
		{
			"data is made valid", "{\"kind\":\"user\",\"body\":\"x\",\"initialData\": {\"a\xff\": \"\\ud83d\", \"n\": 1.50}}",
			wire.Prompt{Message: user("x"), InitialData: jsontext.Value("{\"a\ufffd\":\"\ufffd\",\"n\":1.50}")},
		},
		{"key", `{"kind":"user","body":"x","idempotencyKey":"k 1"}`, wire.Prompt{Message: user("x"), IdempotencyKey: "k 1"}},
		{
			"longest key", `{"kind":"user","body":"x","idempotencyKey":"` + strings.Repeat("ü", 256) + `"}`,
			wire.Prompt{Message: user("x"), IdempotencyKey: strings.Repeat("ü", 256)},
		},
		{
			"signal", `{"kind":"signal","type":"slack.message","body":"b","attributes":{"x&y":"<a>"},"tagName":"_s-1.2"}`,
			wire.Prompt{Message: wire.Delivery{
				Kind: wire.KindSignal, Type: "slack.message", Body: "b", Attributes: map[string]string{"x&y": "<a>"}, TagName: "_s-1.2",
			}},
		},
		{
			"least signal", `{"kind":"signal","type":"t","body":"","attachments":"ignored"}`,
			wire.Prompt{Message: wire.Delivery{Kind: wire.KindSignal, Type: "t"}},
		},
		{
			"attachment", `{"kind":"user","body":"x","attachments":[{"type":"image","data":"AAEC","mimeType":"image/png","filename":"dot.png","more":1}]}`,
			wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser, Body: "x", Attachments: []wire.File{
				{MediaType: "image/png", Filename: "dot.png", Data: []byte{0, 1, 2}},
			}}},
		},
		{
			"base64 of browsers", `{"kind":"user","body":"x","attachments":[{"type":"image","data":"A A\nE","mimeType":"image/png"},{"type":"image","data":"\u0041AE=","mimeType":"image/png"}]}`,
			wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser, Body: "x", Attachments: []wire.File{
				{MediaType: "image/png", Data: []byte{0, 1}}, {MediaType: "image/png", Data: []byte{0, 1}},
			}}},
		},
		{
			"no attachments", `{"kind":"user","body":"x","attachments":[]}`,
			wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser, Body: "x", Attachments: []wire.File{}}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := wire.ParsePrompt([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("prompt (-want +got):\n%s", diff)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("what was parsed is not valid in process: %v", err)
			}
		})
	}
}

func TestParsePromptErrors(t *testing.T) {
	user := func(members string) string { return `{"kind":"user","body":"x",` + members + `}` }
	signal := func(members string) string { return `{"kind":"signal","body":"x",` + members + `}` }
	image := func(members string) string {
		return user(`"attachments":[{"type":"image","data":"` + dot + `","mimeType":"image/png"},{` + members + `}]`)
	}
	tests := []struct {
		name, body string
		code       wire.Code
		details    string // how they start
	}{
		{"no body", "", wire.CodeInvalidRequest, badShape},
		{"blank body", " \r\n\t", wire.CodeInvalidRequest, badShape},
		{"string", `"hello"`, wire.CodeInvalidRequest, badShape},
		{"array", `[]`, wire.CodeInvalidRequest, badShape},
		{"null", `null`, wire.CodeInvalidRequest, badShape},
		{"empty object", `{}`, wire.CodeInvalidRequest, badShape},
		{"unknown kind", `{"kind":"robot","body":"x"}`, wire.CodeInvalidRequest, badShape},
		{"kind of another type", `{"kind":["user"],"body":"x"}`, wire.CodeInvalidRequest, badShape},
		{"names are case-sensitive", `{"Kind":"user","body":"x"}`, wire.CodeInvalidRequest, badShape},
		{"body of another type", `{"kind":"user","body":5}`, wire.CodeInvalidRequest, badShape},
		{"no text", `{"kind":"user"}`, wire.CodeInvalidRequest, badShape},

		{"cut off", `{"kind":`, wire.CodeInvalidJSON, "The JSON parser reported: Unexpected end of JSON input\nVerify"},
		{"cut off list", `[`, wire.CodeInvalidJSON, "The JSON parser reported: Unexpected end of JSON input\nVerify"},
		{"two values", `{} {}`, wire.CodeInvalidJSON, "The JSON parser reported: invalid character '{' after top-level value"},
		{"not JSON", `kind=user`, wire.CodeInvalidJSON, "The JSON parser reported: invalid character 'k'"},
		{"twice", `{"kind":"user","body":"a","body":"b"}`, wire.CodeInvalidJSON, `The JSON parser reported: duplicate object member name "body"`},
		{"twice inside", user(`"initialData":{"a":{"b":1,"b":2}}`), wire.CodeInvalidJSON, "The JSON parser reported: duplicate"},
		{"twice by broken text", user(`"initialData":{"\ud800":1,"\udfff":2}`), wire.CodeInvalidJSON, "The JSON parser reported: duplicate"},
		{"far too deep", user(`"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000)), wire.CodeInvalidJSON, "The JSON parser reported: exceeded max depth"},

		{"uid of another type", user(`"uid":5`), wire.CodeInvalidRequest, "`uid` must be a string"},
		{"uid before the message", `{"kind":"robot","uid":{}}`, wire.CodeInvalidRequest, "`uid` must be a string"},
		{"empty uid", user(`"uid":""`), wire.CodeInvalidRequest, "`uid` must not be empty"},
		{"uid and data", user(`"uid":"u","initialData":null`), wire.CodeInvalidRequest, "A send conditioned on an existing instance"},
		{"deep data", user(`"initialData":` + strings.Repeat("[", 129) + strings.Repeat("]", 129)), wire.CodeInvalidRequest, "`initialData` is nested deeper"},
		{"empty key", user(`"idempotencyKey":""`), wire.CodeInvalidRequest, "`idempotencyKey` must be a non-empty string"},
		{"blank key", user(`"idempotencyKey":" \u00a0"`), wire.CodeInvalidRequest, "`idempotencyKey` must be a non-empty string"},
		{"null key", user(`"idempotencyKey":null`), wire.CodeInvalidRequest, "`idempotencyKey` must be a non-empty string"},
		{"long key", user(`"idempotencyKey":"` + strings.Repeat("ü", 257) + `"`), wire.CodeInvalidRequest, "`idempotencyKey` must be at most 256"},

		{"no type", `{"kind":"signal","body":"x"}`, wire.CodeInvalidRequest, badShape},
		{"empty type", signal(`"type":""`), wire.CodeInvalidRequest, badShape},
		{"null tag name", signal(`"type":"t","tagName":null`), wire.CodeInvalidRequest, badShape},
		{"empty tag name", signal(`"type":"t","tagName":""`), wire.CodeInvalidRequest, `Signal message "tagName" must be a valid XML`},
		{"tag name with a space", signal(`"type":"t","tagName":"a b"`), wire.CodeInvalidRequest, `Signal message "tagName" must be a valid XML`},
		{"tag name with a line", signal(`"type":"t","tagName":"a\n"`), wire.CodeInvalidRequest, `Signal message "tagName" must be a valid XML`},
		{"tag name beyond ASCII", signal(`"type":"t","tagName":"ü"`), wire.CodeInvalidRequest, `Signal message "tagName" must be a valid XML`},
		{"long tag name", signal(`"type":"t","tagName":"` + strings.Repeat("a", 1025) + `"`), wire.CodeInvalidRequest, `Signal message "tagName" must be at most`},
		{"long type", signal(`"type":"` + strings.Repeat("a", 1025) + `"`), wire.CodeInvalidRequest, `Signal message "type" must be at most`},
		{"attribute of another type", signal(`"type":"t","attributes":{"n":1}`), wire.CodeInvalidRequest, badShape},
		{"attributes of another type", signal(`"type":"t","attributes":[]`), wire.CodeInvalidRequest, badShape},
		{"null attributes", signal(`"type":"t","attributes":null`), wire.CodeInvalidRequest, badShape},
		{"a value's rule before the shape", `{"kind":"signal","type":"memory","body":5}`, wire.CodeInvalidRequest, `Signal type "memory" is framework-reserved`},

		{"attachments of another type", user(`"attachments":{}`), wire.CodeInvalidRequest, badShape},
		{"null attachments", user(`"attachments":null`), wire.CodeInvalidRequest, badShape},
		{"null attachment", user(`"attachments":[null]`), wire.CodeInvalidRequest, badShape},
		{"attachment of another type", user(`"attachments":["x"]`), wire.CodeInvalidRequest, badShape},
		{"not an image", image(`"type":"file","data":"AAEC","mimeType":"text/plain"`), wire.CodeInvalidRequest, badShape},
		{"no data", image(`"type":"image","mimeType":"image/png"`), wire.CodeInvalidRequest, badShape},
		{"no MIME type", image(`"type":"image","data":"AAEC"`), wire.CodeInvalidRequest, badShape},
		{"null filename", image(`"type":"image","data":"AAEC","mimeType":"image/png","filename":null`), wire.CodeInvalidRequest, badShape},
		{"MIME type of no image", image(`"type":"image","data":"AAEC","mimeType":"text/html"`), wire.CodeInvalidRequest, "Attachment 1 must have the MIME type"},
		{"MIME type with a line", image(`"type":"image","data":"AAEC","mimeType":"image/png; a=\"\r\nx: y\""`), wire.CodeInvalidRequest, "Attachment 1 must have the MIME type"},
		{"not base64", image(`"type":"image","data":"!!!","mimeType":"image/png"`), wire.CodeInvalidRequest, "Attachment 1 is not valid base64"},
		{"a data URL", image(`"type":"image","data":"data:image/png;base64,AAEC","mimeType":"image/png"`), wire.CodeInvalidRequest, "Attachment 1 is not valid base64"},
		{"one character of base64", image(`"type":"image","data":"A","mimeType":"image/png"`), wire.CodeInvalidRequest, "Attachment 1 is not valid base64"},
		{"too much padding", image(`"type":"image","data":"AA===","mimeType":"image/png"`), wire.CodeInvalidRequest, "Attachment 1 is not valid base64"},
		{"empty image", image(`"type":"image","data":"","mimeType":"image/png"`), wire.CodeInvalidRequest, "Attachment 1 is empty"},
		{"long filename", image(`"type":"image","data":"AAEC","mimeType":"image/png","filename":"` + strings.Repeat("f", 1025) + `"`), wire.CodeInvalidRequest, "The filename of an attachment"},
		{"too many attributes", signal(`"type":"t","attributes":{` + names(257, `""`) + `}`), wire.CodeInvalidRequest, "A signal has at most 256 attributes"},
		{"too many members", user(names(wire.MaxMembers-1, "0")), wire.CodeInvalidRequest, "An object has at most 65536 members"},
		{"too many members inside", user(names(wire.MaxMembers/2, "0") + `,"initialData":[{` + names(wire.MaxMembers/2, "0") + "}]"), wire.CodeInvalidRequest, "An object has at most 65536 members"},
		{"too many", user(`"attachments":[` + strings.Repeat(`{"type":"image","data":"AAEC","mimeType":"image/png"},`, 64) + `{"type":"image","data":"AAEC","mimeType":"image/png"}]`), wire.CodeInvalidRequest, "A message has at most 64"},
	}
	for _, typ := range []string{"resources", "instructions", "environment", "stream_interrupted", "stream_continued", "submission_aborted", "submission_interrupted", "compaction", "memory"} {
		tests = append(tests, struct {
			name, body string
			code       wire.Code
			details    string
		}{"reserved " + typ, signal(`"type":"` + typ + `"`), wire.CodeInvalidRequest, `Signal type "` + typ + `" is framework-reserved`})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := wire.ParsePrompt([]byte(test.body))
			e, ok := errors.AsType[*wire.Error](err)
			if !ok {
				t.Fatalf("error is %v, want an error of the wire", err)
			}
			if e.Code != test.code || !strings.HasPrefix(e.Details, test.details) {
				t.Errorf("got  %s: %s\nwant %s: %s", e.Code, e.Details, test.code, test.details)
			}
			if len(e.Details) > 600 {
				t.Errorf("the details have %d bytes", len(e.Details))
			}
		})
	}
}

// names are the members of an object, each with the value.
func names(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":%s`, i, value)
	}
	return b.String()[1:]
}

// What is at a limit must be allowed.
func TestWidestPrompt(t *testing.T) {
	for _, body := range []string{
		`{"kind":"signal","type":"t","body":"x","attributes":{` + names(256, `""`) + `}}`,
		`{"kind":"user","body":"x",` + names(wire.MaxMembers-2, "0") + `}`,
		`{"kind":"user","body":"x","initialData":{` + names(wire.MaxMembers-3, "0") + `}}`,
		`{"kind":"user","body":"x","initialData":[{` + names(wire.MaxMembers-3, "0") + `},{` + names(wire.MaxMembers-3, "0") + `}]}`,
	} {
		p, err := wire.ParsePrompt([]byte(body))
		if err != nil {
			t.Errorf("%.60s: %v", body, err)
		} else if err := p.Validate(); err != nil {
			t.Errorf("%.60s is not valid in process: %v", body, err)
		}
	}
}

// A body may not make the server allocate many times its size. The bound of a
// body is no bound on memory otherwise.
func TestParsePromptAllocatesInProportion(t *testing.T) {
	const size = 4 << 20
	list := func(element string) string {
		return "[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]"
	}
	many := func(value string) string { return names(size/(len(value)+9), value) }
	const image = `{"type":"image","data":"AA==","mimeType":"image/png"}`
	for name, body := range map[string]string{
		"empty attachments":       `{"kind":"user","body":"x","attachments":` + list("{}") + `}`,
		"attachments":             `{"kind":"user","body":"x","attachments":` + list(image) + `}`,
		"members of attachments":  `{"kind":"user","body":"x","attachments":[{` + many("0") + `}]}`,
		"attributes":              `{"kind":"signal","type":"t","body":"x","attributes":{` + many(`""`) + `}}`,
		"unknown members":         `{"kind":"user","body":"x",` + many("0") + `}`,
		"members of the unknown":  `{"kind":"user","body":"x","more":[{` + many("0") + `}]}`,
		"members of initial data": `{"kind":"user","body":"x","initialData":{` + many("0") + `}}`,
		"members at every level":  `{"kind":"user","body":"x","initialData":` + strings.Repeat(`{`+names(size/100/9, "0")+`,"z":`, 100) + "0" + strings.Repeat("}", 100) + `}`,
		"initial data":            `{"kind":"user","body":"x","initialData":` + list("0") + `}`,
		"text":                    `{"kind":"user","body":"` + strings.Repeat("x", size) + `"}`,
		"an image":                `{"kind":"user","body":"x","attachments":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", size) + `"}]}`,
	} {
		b := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = wire.ParsePrompt(b)
		runtime.ReadMemStats(&after)
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(b)); times > 10 {
			t.Errorf("%s: a body of %d bytes made it allocate %.1f times as much", name, len(b), times)
		}
	}
}

// The largest image that is allowed must be allowed.
func TestLargestImage(t *testing.T) {
	body := func(n int) []byte {
		return []byte(`{"kind":"user","body":"x","attachments":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", n) + `"}]}`)
	}
	p, err := wire.ParsePrompt(body(wire.MaxImageData))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Errorf("the largest image is not valid in process: %v", err)
	}
	if _, err := wire.ParsePrompt(body(wire.MaxImageData + 4)); err == nil {
		t.Error("a larger image was accepted")
	}
	p.Message.Attachments[0].Data = append(p.Message.Attachments[0].Data, 0)
	if err := p.Validate(); err == nil {
		t.Error("a larger image is valid in process")
	}
}

func attributes(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[strconv.Itoa(i)] = ""
	}
	return m
}

func TestValidateInProcess(t *testing.T) {
	image := wire.File{MediaType: "image/png", Data: []byte{1}}
	tests := []struct {
		name string
		p    wire.Prompt
		ok   bool
	}{
		{"user", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser}}, true},
		{"zero", wire.Prompt{}, false},
		{"user with a signal's fields", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser, Type: "t"}}, false},
		{"signal with attachments", wire.Prompt{Message: wire.Delivery{Kind: wire.KindSignal, Type: "t", Attachments: []wire.File{image}}}, false},
		{"reserved", wire.Prompt{Message: wire.Delivery{Kind: wire.KindSignal, Type: "memory"}}, false},
		{"broken text", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser, Body: "\xff"}}, false},
		{"broken attribute", wire.Prompt{Message: wire.Delivery{Kind: wire.KindSignal, Type: "t", Attributes: map[string]string{"a": "\xff"}}}, false},
		{"broken filename", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser, Attachments: []wire.File{{MediaType: "image/png", Data: []byte{1}, Filename: "\xff"}}}}, false},
		{"broken key", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser}, IdempotencyKey: "\xff"}, false},
		{"both conditions", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser}, UID: "u", Create: true}, false},
		{"uid and data", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser}, UID: "u", InitialData: jsontext.Value("1")}, false},
		{"too many attributes", wire.Prompt{Message: wire.Delivery{Kind: wire.KindSignal, Type: "t", Attributes: attributes(256 + 1)}}, false},
		{"as many attributes as there may be", wire.Prompt{Message: wire.Delivery{Kind: wire.KindSignal, Type: "t", Attributes: attributes(256)}}, true},
		{"wide data", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser}, InitialData: jsontext.Value("{" + names(wire.MaxMembers+1, "0") + "}")}, false},
		{"broken data", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser}, InitialData: jsontext.Value("{")}, false},
		{"deep data", wire.Prompt{Message: wire.Delivery{Kind: wire.KindUser}, InitialData: jsontext.Value(strings.Repeat("[", 129) + strings.Repeat("]", 129))}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.p.Validate()
			if (err == nil) != test.ok {
				t.Errorf("Validate() = %v, want ok %v", err, test.ok)
			}
			if _, ok := errors.AsType[*wire.Error](err); err != nil && !ok {
				t.Errorf("error %v is not one of the wire", err)
			}
		})
	}
}

func FuzzParsePrompt(f *testing.F) {
	for _, s := range []string{
		"", "null", `{"kind":"user","body":"x"}`, `{"kind":"signal","type":"t","body":"x","attributes":{"a":"b"},"tagName":"t"}`,
		`{"kind":"user","body":"x","uid":null,"initialData":{"a":["\ud83d"]},"idempotencyKey":"k"}`,
		`{"kind":"user","body":"x","attachments":[{"type":"image","data":"AAEC","mimeType":"image/png","filename":"f"}]}`,
		"{\"kind\":\"user\",\"body\":\"\xff\",\"initialData\":\"\\ud83d\xfe\"}", `{"kind":"user","body":"a","body":"b"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		given := string(body)
		p, err := wire.ParsePrompt(body)
		if string(body) != given {
			t.Fatal("the body was changed")
		}
		if err != nil {
			e, ok := errors.AsType[*wire.Error](err)
			if !ok {
				t.Fatalf("error %v is not one of the wire", err)
			}
			if s := e.Status(); s != 400 {
				t.Fatalf("status %d", s)
			}
			if !jsontext.Value(e.Encode()).IsValid() {
				t.Fatalf("the envelope is not JSON: %s", e.Encode())
			}
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("what was parsed is not valid: %v", err)
		}
		if !utf8.ValidString(p.Message.Body) || !utf8.ValidString(p.UID) || !utf8.ValidString(p.IdempotencyKey) {
			t.Fatalf("the prompt has text that is not UTF-8: %+v", p)
		}
		if p.InitialData != nil {
			var v any
			if err := json.Unmarshal(p.InitialData, &v); err != nil {
				t.Fatalf("the initial data %q is not strict JSON: %v", p.InitialData, err)
			}
		}
	})
}

func BenchmarkParsePrompt(b *testing.B) {
	bodies := map[string][]byte{
		"text":  []byte(`{"kind":"user","body":"` + strings.Repeat("word ", 100) + `","idempotencyKey":"key-1"}`),
		"image": []byte(`{"kind":"user","body":"x","attachments":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", 1<<20) + `"}]}`),
	}
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.ParsePrompt(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
