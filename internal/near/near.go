// Package near finds names that are like one that is not there, to say what may
// have been meant.
package near

import (
	"cmp"
	"slices"
	"strings"
)

// most is how many names are suggested at most.
const most = 3

// maxName bounds the names that are compared, in bytes: comparing takes time in
// the product of their lengths.
const maxName = 128

// Names returns those of the names that are like name, the nearest first: with
// a few letters different, missing, added or swapped, whatever the case, the
// separators and what comes before a slash.
func Names(name string, names []string) []string {
	type match struct {
		name     string
		distance int
	}
	if len(name) > maxName {
		return nil
	}
	want := plain(name)
	limit := max(1, len(want)/5)
	var found []match
	for _, n := range names {
		p := plain(n)
		if len(n) > maxName || n == name || max(len(p)-len(want), len(want)-len(p)) > limit {
			continue
		}
		if d := distance(want, p); d <= limit {
			found = append(found, match{n, d})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int { return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, m := range found[:min(len(found), most)] {
		out = append(out, m.name)
	}
	return out
}

// Hint is a question for the end of an error, such as `; did you mean "groq"?`,
// or nothing if no name is like it.
func Hint(name string, names []string) string {
	found := Names(name, names)
	if len(found) == 0 {
		return ""
	}
	return `; did you mean "` + strings.Join(found, `" or "`) + `"?`
}

// plain is a name without what people confuse.
func plain(s string) string {
	s = strings.ToLower(s[strings.LastIndexByte(s, '/')+1:])
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r == ' ' || r == ':' {
			return -1
		}
		return r
	}, s)
}

// distance counts the edits that make a of b; two neighbours that are swapped
// are one.
func distance(a, b string) int {
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
