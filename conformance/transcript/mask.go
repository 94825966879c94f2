package transcript

import (
	"fmt"
	"regexp"
	"strings"
)

// A Mask replaces what differs from run to run by placeholders, so that two
// recordings can be compared: an id becomes its kind and the number that tells
// in which order ids of the kind were first seen. The zero value is ready to
// use.
type Mask struct {
	seen   map[string]string
	counts map[string]int
}

// ids are the forms of ids that were recorded, longest first.
var ids = regexp.MustCompile(strings.Join([]string{
	`entry_submission_(?:aborted|interrupted)_sub_(?:ik_)?[0-9A-Za-z]+`,
	`entry_recovery_entry_[0-9A-Za-z]+_stream_(?:interrupted|continued)`,
	`att_direct_sub_(?:ik_)?[0-9A-Za-z]+_\d+`,
	`entry_direct_[0-9A-Za-z_-]+`,
	`sub_ik_[0-9a-f]{32}`,
	`(?:sub|inst|conv|entry|turn|inc|err|att)_[0-9A-Za-z]{8,}`,
}, "|"))

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

// Text masks ids and timestamps in s.
func (m *Mask) Text(s string) string {
	s = times.ReplaceAllString(s, "<time>")
	return ids.ReplaceAllStringFunc(s, m.id)
}

func (m *Mask) id(id string) string {
	if p, ok := m.seen[id]; ok {
		return p
	}
	if m.seen == nil {
		m.seen, m.counts = make(map[string]string), make(map[string]int)
	}
	kind := kindOf(id)
	m.counts[kind]++
	p := fmt.Sprintf("<%s %d>", kind, m.counts[kind])
	m.seen[id] = p
	return p
}

func kindOf(id string) string {
	for _, k := range []string{"entry_submission_aborted", "entry_submission_interrupted", "entry_recovery", "att_direct", "entry_direct", "sub_ik"} {
		if strings.HasPrefix(id, k+"_") {
			return k
		}
	}
	kind, _, _ := strings.Cut(id, "_")
	return kind
}
