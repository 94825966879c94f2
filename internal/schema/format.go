package schema

import (
	"maps"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A format is a kind of text that the format keyword names.
type format struct {
	phrase string // in words
	valid  func(string) bool
}

// formats are those that can be asked for with a tag.
var formats = map[string]format{
	"date-time": {`a date and time such as "2026-01-02T15:04:05Z"`, layout(time.RFC3339)},
	"date":      {`a date such as "2026-01-02"`, layout(time.DateOnly)},
	"time":      {`a time such as "15:04:05Z"`, layout("15:04:05Z07:00")},
	"email":     {`an email address`, isEmail},
	"hostname":  {`a host name`, isHostname},
	"ipv4":      {`an IPv4 address`, func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() }},
	"ipv6":      {`an IPv6 address`, func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() && a.Zone() == "" }},
	"uri":       {`a URI such as "https://example.com/a"`, isURI},
	"uuid":      {`a UUID`, regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`).MatchString},
}

const durationPhrase = `a duration such as "1m30s"`

func formatNames() string { return strings.Join(slices.Sorted(maps.Keys(formats)), ", ") }

func layout(l string) func(string) bool {
	return func(s string) bool {
		_, err := time.Parse(l, s)
		return err == nil
	}
}

func isEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s
}

var label = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?$`)

func isHostname(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if !label.MatchString(part) {
			return false
		}
	}
	return len(s) <= 253
}

func isURI(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.IsAbs() && !strings.ContainsAny(s, " \t\r\n")
}

// enforce makes the checks of nodes look at formats too. That is done for
// the schemas of Go types, where a tag or a type has asked for it; in a schema
// written by hand a format only describes, as draft 2020-12 has it.
func enforce(nodes []*node) {
	for _, n := range nodes {
		if f, ok := formats[n.format]; ok {
			n.inFormat = f.valid
		}
	}
}
