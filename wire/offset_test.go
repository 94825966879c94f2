package wire_test

import (
	"math"
	"testing"

	"github.com/flue-go/flue/wire"
)

func TestParseOffset(t *testing.T) {
	tests := []struct {
		in   string
		want wire.Offset
		ok   bool
	}{
		{"-1", wire.Start, true},
		{"0000000000000000_0000000000000000", 0, true},
		{"0000000000000000_0000000000000042", 42, true},
		{"0000000000000000_9999999999999999", 9999999999999999, true},
		{"", 0, false},
		{"-2", 0, false},
		{"now", 0, false},
		{"5", 0, false},
		{"0_5", 0, false},
		{"0000000000000000_", 0, false},
		{"0000000000000007_0000000000000001", 0, false},
		{"0000000000000000_00000000000000001", 0, false},
		{"0000000000000000_+000000000000001", 0, false},
		{"0000000000000000_-000000000000001", 0, false},
		{"0000000000000000_0000_0000000001", 0, false},
		{"0000000000000000_000000000000000a", 0, false},
		{"0000000000000000_٠٠٠٠٠٠٠٠", 0, false}, // sixteen bytes of other digits
		{" 0000000000000000_0000000000000001", 0, false},
	}
	for _, test := range tests {
		got, err := wire.ParseOffset(test.in)
		if (err == nil) != test.ok || got != test.want {
			t.Errorf("ParseOffset(%q) = %d, %v, want %d, ok %v", test.in, got, err, test.want, test.ok)
		}
	}
}

func TestOffsetText(t *testing.T) {
	for _, o := range []wire.Offset{wire.Start, 0, 1, 9999999999999999} {
		text, err := o.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back wire.Offset
		if err := back.UnmarshalText(text); err != nil || back != o {
			t.Errorf("%d became %s and then %d, %v", o, text, back, err)
		}
	}
	var o wire.Offset
	if err := o.UnmarshalText([]byte("x")); err == nil {
		t.Error("UnmarshalText took x")
	}
	if got := wire.Offset(math.MinInt64).String(); got != "-1" {
		t.Errorf("the smallest offset is %s, want -1", got)
	}
}

func TestPositionCompare(t *testing.T) {
	ordered := []wire.Position{{}, {Index: 1}, {Batch: 1}, {Batch: 1, Index: 9}, {Batch: 2}}
	for i, p := range ordered {
		for j, q := range ordered {
			want := min(1, max(-1, i-j))
			if got := p.Compare(q); got != want {
				t.Errorf("%v.Compare(%v) = %d, want %d", p, q, got, want)
			}
		}
	}
}

func FuzzParseOffset(f *testing.F) {
	for _, s := range []string{"-1", "0000000000000000_0000000000000042", "0_5", "", "0000000000000007_0000000000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := wire.ParseOffset(s)
		if err == nil && o.String() != s {
			t.Errorf("ParseOffset(%q) = %d, which is written %q", s, o, o)
		}
	})
}
