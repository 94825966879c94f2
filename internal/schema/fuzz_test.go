package schema_test

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/schema"
)

// rich has a field of every kind that a Go author may write.
type rich struct {
	base
	Name    string                 `json:"name" minLength:"1" maxLength:"40"`
	Kind    reason                 `json:"kind" enum:"late,damaged"`
	Count   int64                  `json:"count,omitzero" min:"-5"`
	Small   int8                   `json:"small" default:"3"`
	Big     uint64                 `json:"big,omitzero"`
	Exact   json.Number            `json:"exact,omitzero"`
	Int     *big.Int               `json:"int,omitzero"`
	Ratio   float64                `json:"ratio,omitzero" exclusiveMin:"0" exclusiveMax:"1"`
	Single  float32                `json:"single,omitzero"`
	On      *bool                  `json:"on"`
	When    time.Time              `json:"when,omitzero"`
	Wait    time.Duration          `json:"wait" default:"5s"`
	Mail    string                 `json:"mail,omitzero" format:"email"`
	Data    []byte                 `json:"data,omitzero"`
	Hash    [4]byte                `json:"hash,omitzero"`
	Tags    []string               `json:"tags,omitzero" enum:"a,b" maxItems:"3"`
	Labels  map[string]int         `json:"labels,omitzero"`
	Hosts   map[netip.Addr]*person `json:"hosts,omitzero"`
	Friends []person               `json:"friends,omitzero"`
	Pair    *[2]float64            `json:"pair,omitzero"`
	Any     any                    `json:"any,omitzero"`
	Raw     json.RawMessage        `json:"raw,omitzero"`
	Addr    netip.Addr             `json:"addr,omitzero"`
	Level   level                  `json:"level,omitempty"`
}

// Decoding never panics. What it accepts fits the schema when it is written
// again, and comes back as it was; what it refuses it explains to a model.
func FuzzDecodeArguments(f *testing.F) {
	const least = `"id":1,"name":"x","kind":"late"`
	for _, seed := range []string{
		``, `null`, `[1,2]`, `"hi"`, `{"PATH":"x"}`, `{` + least + `}`, `{` + least + `,}`, `{` + least + `}{}`, `"{\"id\":1,\"name\":\"x\",\"kind\":\"late\"}"`,
		`{` + least + `,"count":"7","small":5.0,"big":12345678901234567890,"exact":12345678901234567890,"int":1e30,"ratio":5e-1,"single":1e39,"on":"false"}`,
		`{` + least + `,"when":"2026-01-02T15:04:05+01:00","wait":"1.5h","mail":"a@b","data":"aGk=","hash":"aGkhIQ==","tags":"[\"a\"]"}`,
		`{` + least + `,"labels":{"5":1},"hosts":{"::1":{"name":"y","friends":null}},"friends":[{"name":"z","friends":[{"name":"w"}]}],"pair":[1,2]}`,
		`{` + least + `,"any":{"a":[12345678901234567890,"\ud83d"]},"raw":"\ud83d","addr":"::1","level":"low"}`,
		"{" + least + ",\"any\":\"\xff\",\"mail\":\"a\x07b\"}",
		`{` + least + `,"when":"noon","wait":5,"data":"!","hash":"","labels":{"a":null},"hosts":{"x":{}},"friends":[{}],"pair":[1],"addr":"?","level":"mid","nmae":1}`,
	} {
		f.Add(seed)
	}
	s, err := schema.Arguments[rich](nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var got rich
		if _, _, err := s.DecodeArguments(in, &got); err != nil {
			if !forModel(err) {
				t.Fatalf("%q: %d bytes: %.2000v", in, len(err.Error()), err)
			}
			return
		}
		written, err := s.Output(got)
		if err != nil {
			t.Fatalf("%q arrived as %+v: %v", in, got, err)
		}
		var again rich
		_, repairs, err := s.DecodeArguments(string(written), &again)
		if err != nil || len(repairs) > 0 {
			t.Fatalf("%q was written as %s: %v, %v", in, written, repairs, err)
		}
		if second, err := s.Output(again); err != nil || string(second) != string(written) {
			t.Fatalf("%q was written as %s and then as %s (%v)", in, written, second, err)
		}
	})
}

// fieldTypes are what a fuzzed struct is made of.
var fieldTypes = []reflect.Type{
	reflect.TypeFor[string](), reflect.TypeFor[reason](), reflect.TypeFor[level](), reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](),
	reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](),
	reflect.TypeFor[json.RawMessage](), reflect.TypeFor[json.Number](), reflect.TypeFor[any](), reflect.TypeFor[*big.Int](), reflect.TypeFor[netip.Addr](),
	reflect.TypeFor[*string](), reflect.TypeFor[[]byte](), reflect.TypeFor[[2]byte](), reflect.TypeFor[[]string](), reflect.TypeFor[[2]int](),
	reflect.TypeFor[[]time.Duration](), reflect.TypeFor[map[string]int](), reflect.TypeFor[map[netip.Addr]string](), reflect.TypeFor[person](), reflect.TypeFor[[]person](),
	reflect.TypeFor[*tree](), reflect.TypeFor[point](), reflect.TypeFor[struct{}](), reflect.TypeFor[chan int](), reflect.TypeFor[faulty](), reflect.TypeFor[*rich](),
}

// Whatever a struct is made of and whatever its tags say, it has a schema or an
// error. The schema is that of a tool, can be read again as one, and takes any
// arguments without a panic of its own.
func FuzzForType(f *testing.F) {
	f.Add([]byte{0, 4, 8}, "json:\"a\" jsonschema:\"what\" enum:\"x,y\" default:\"x\"\njson:\"b,omitempty\" min:\"1\" max:\"5\" default:\"3\"\nexclusiveMin:\"0\" exclusiveMax:\"1\" example:\"0.5\"", `{"a":"x","F2":"0.3"}`)
	f.Add([]byte{9, 10, 21}, "json:\",omitzero\"\ndefault:\"5s\" jsonschema:\"how long\"\njson:\"c\" minItems:\"1\"", `{"F0":"noon","c":["5m"]}`)
	f.Add([]byte{24, 25, 26, 31}, "json:\"who\"\nmaxItems:\"2\"\n\njson:\"rich\"", `{"who":{"name":"x"},"F1":[],"F2":null}`)
	f.Add([]byte{0, 0, 17, 18}, "pattern:\"^a+$\" format:\"uuid\"\njson:\"-\"\nminLength:\"4\"", `{"F0":"a"}`)
	f.Add([]byte{5, 20, 13}, "max:\"900\"\ndefault:\"[1,2]\"\nenum:\"1,{}\"", ``)
	f.Fuzz(func(t *testing.T, kinds []byte, tags, arguments string) {
		if len(kinds) > 12 {
			return
		}
		tagOf := strings.Split(tags, "\n")
		var fields []reflect.StructField
		for i, k := range kinds {
			sf := reflect.StructField{Name: "F" + string(rune('0'+i%10)) + strings.Repeat("x", i/10), Type: fieldTypes[int(k)%len(fieldTypes)]}
			if i < len(tagOf) {
				sf.Tag = reflect.StructTag(tagOf[i])
			}
			fields = append(fields, sf)
		}
		typ := reflect.StructOf(fields)
		s, err := schema.ForType(typ)
		if err != nil {
			return
		}
		if err := s.Object(); err != nil {
			t.Fatalf("%v: %s: %v", typ, s, err)
		}
		if again, err := schema.Parse(s.JSON()); err != nil || again.String() != s.String() {
			t.Fatalf("%v: %s cannot be read again: %v, %v", typ, s, again, err)
		}
		prepared, _, err := s.PrepareArguments(arguments)
		if err != nil {
			if !forModel(err) && !strings.Contains(err.Error(), "panicked") {
				t.Fatalf("%v: %q: %v", typ, arguments, err)
			}
			return
		}
		into := reflect.New(typ).Interface()
		if _, repairs, err := s.DecodeArguments(string(prepared), into); err != nil || len(repairs) > 0 {
			t.Fatalf("%v: %q was prepared as %s: %v, %v", typ, arguments, prepared, repairs, err)
		}
		if written, err := schema.Marshal(into); err == nil {
			_ = s.Validate(written)
		}
	})
}
