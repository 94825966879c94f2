package journal

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns v in the one form that all ways of writing the same value
// have: that of RFC 8785, except that integers keep all their digits. To a
// float64, which is what the RFC makes of a number, large integers that differ are
// the same. What is not JSON is returned as it is.
func Canonical(v jsontext.Value) jsontext.Value {
	c := v.Clone()
	if c.Canonicalize(jsontext.CanonicalizeRawInts(false)) != nil {
		return v
	}
	return c
}

// Same reports whether two values are the same, however they are written.
func Same(a, b jsontext.Value) bool {
	return bytes.Equal(a, b) || bytes.Equal(Canonical(a), Canonical(b))
}
