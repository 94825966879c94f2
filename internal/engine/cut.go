package engine

import "unicode/utf8"

// head returns at most the first n bytes of s, without a part of a character at
// their end.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := max(n, 0)
	for back := 0; back < utf8.UTFMax && end > 0 && !utf8.RuneStart(s[end]); back++ {
		end--
	}
	return s[:end]
}
