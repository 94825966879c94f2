package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// An Offset is a resume token: the number of a journal's batch. A read at an
// offset returns what came after it. Start comes before every batch.
type Offset int64

// Start is the offset before the first batch.
const Start Offset = -1

// String returns the wire form: "-1" for Start, otherwise two numbers of
// sixteen digits, the first of them always zero.
func (o Offset) String() string {
	b, _ := o.AppendText(nil)
	return string(b)
}

// AppendText appends the wire form.
func (o Offset) AppendText(b []byte) ([]byte, error) {
	if o < 0 {
		return append(b, "-1"...), nil
	}
	const zeros = "0000000000000000"
	b = append(b, zeros...)
	b = append(b, '_')
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], int64(o), 10)
	b = append(b, zeros[:max(0, len(zeros)-len(d))]...)
	return append(b, d...), nil
}

// MarshalText returns the wire form.
func (o Offset) MarshalText() ([]byte, error) { return o.AppendText(nil) }

// UnmarshalText reads the wire form.
func (o *Offset) UnmarshalText(text []byte) error {
	v, err := ParseOffset(string(text))
	if err != nil {
		return err
	}
	*o = v
	return nil
}

// ParseOffset reads the wire form of an offset. It is strict: "-1", or two
// groups of exactly sixteen digits of which the first is zero.
func ParseOffset(s string) (Offset, error) {
	if s == "-1" {
		return Start, nil
	}
	hi, lo, ok := strings.Cut(s, "_")
	if !ok || len(lo) != 16 || hi != "0000000000000000" {
		return 0, fmt.Errorf("invalid offset %q", s)
	}
	n, err := strconv.ParseUint(lo, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("invalid offset %q", s)
	}
	return Offset(n), nil
}
