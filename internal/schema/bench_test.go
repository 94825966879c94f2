package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/schema"
)

func BenchmarkPrepareArguments(b *testing.B) {
	s, err := schema.For[refundInput]()
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct{ name, in string }{
		{"fits", `{"orderId":"ORD-2024-0042","reason":"late","items":[1,2,3]}`},
		{"repaired", `{"orderId":"ORD-2024-0042","reason":"late","items":"[1,2,3]"}`},
		{"refused", `{"orderId":"ORD-2024-0042","reason":"later","items":"1,2,3"}`},
		{"large", `{"orderId":"ORD-2024-0042","reason":"late","items":[` + strings.TrimSuffix(strings.Repeat("12345,", 50_000), ",") + `]}`},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.in)))
			for b.Loop() {
				_, _, err = s.PrepareArguments(bb.in)
			}
		})
	}
}

func BenchmarkDecodeArguments(b *testing.B) {
	s, err := schema.Arguments[refundInput](nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct{ name, in string }{
		{"fits", `{"orderId":"ORD-2024-0042","reason":"late","items":[1,2,3]}`},
		{"refused", `{"orderId":"ORD-2024-0042","reason":"later","items":"1,2,3"}`},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var v refundInput
				_, _, err = s.DecodeArguments(bb.in, &v)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	s, err := schema.For[refundInput]()
	if err != nil {
		b.Fatal(err)
	}
	in := []byte(`{"orderId":"ORD-2024-0042","reason":"late","items":[1,2,3]}`)
	b.ReportAllocs()
	for b.Loop() {
		var v refundInput
		if err := s.Decode(in, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFor(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.For[everything](); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	var props strings.Builder
	for i := range 200 {
		fmt.Fprintf(&props, `"p%d":{"type":"string","description":"the property with the number %d","maxLength":100},`, i, i)
	}
	in := []byte(`{"type":"object","properties":{` + strings.TrimSuffix(props.String(), ",") + `}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Parse(in); err != nil {
			b.Fatal(err)
		}
	}
}
