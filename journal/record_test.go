package journal_test

import (
	"bytes"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/journal"
)

const brokenText = "a\xff\xed\xa0\x80é\xc3"

// spoil fills whatever v holds: strings with broken text, raw JSON with what
// providers write and a strict reader refuses.
func spoil(t *testing.T, v reflect.Value) {
	t.Helper()
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		v.SetBytes([]byte("{\"b\":1.50,\"a\":\"\\ud83d\",\"b\":\"" + brokenText + "\"}"))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		spoil(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			spoil(t, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			spoil(t, v.Index(i))
		}
	case reflect.Map: // two keys that are one when they are mended
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"k\xff", "k\xfe"} {
			v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(brokenText))
		}
	case reflect.String:
		v.SetString(brokenText)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("no way to spoil a %s", v.Type())
	}
}

// Every field of every kind may hold text that is not UTF-8 and raw JSON that
// is only just JSON. The batch is written all the same, and what was written is
// read as a record that is written the same again.
func TestEveryFieldMayBeBroken(t *testing.T) {
	seen := make(map[journal.Kind]bool)
	for _, b := range lives() {
		for _, r := range b.Records {
			if _, unknown := r.(*journal.Unknown); unknown || seen[r.Kind()] {
				continue
			}
			seen[r.Kind()] = true
			t.Run(string(r.Kind()), func(t *testing.T) {
				spoiled := reflect.New(reflect.TypeOf(r).Elem())
				spoil(t, spoiled.Elem())
				data, err := journal.Encode(journal.Batch{Records: []journal.Record{spoiled.Interface().(journal.Record)}})
				if err != nil {
					t.Fatal(err)
				}
				if !utf8.Valid(data) {
					t.Errorf("the stored form is not UTF-8: %q", data)
				}
				got, err := journal.Decode(data)
				if err != nil {
					t.Fatalf("%v\n%s", err, data)
				}
				if kind := got.Records[0].Kind(); kind != r.Kind() {
					t.Errorf("came back as %s", kind)
				}
				// Attributes whose names became one leave one behind, so what is
				// compared is the second writing with the third.
				again, err := journal.Encode(got)
				if err != nil {
					t.Fatal(err)
				}
				got, err = journal.Decode(again)
				if err != nil {
					t.Fatal(err)
				}
				third, err := journal.Encode(got)
				if err != nil || !bytes.Equal(again, third) {
					t.Errorf("written again: %v\n%s\n%s", err, again, third)
				}
			})
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d kinds were tried, want all 25", len(seen))
	}
}
