package cli

import (
	"strings"
	"testing"
)

func TestParsePlace(t *testing.T) {
	for value, want := range map[string]place{
		":memory:":                   {memory: true},
		".flue/app.db":               {file: ".flue/app.db"},
		"a=b c.db":                   {file: "a=b c.db"},
		"postgres://":                {url: "postgres://"},
		"postgresql://u:p@h:5/d?a=b": {url: "postgresql://u:p@h:5/d?a=b"},
		"postgres://h/d?schema=s":    {url: "postgres://h/d", schema: "s"},
		"postgres://?schema=s":       {url: "postgres://", schema: "s"},
		"postgres://h/d?pool_max_conns=7&schema=s&sslmode=require": {
			url: "postgres://h/d?pool_max_conns=7&sslmode=require", schema: "s", conns: 7,
		},
	} {
		got, err := parsePlace(value)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", value, got, err, want)
		}
	}
}

// What cannot be understood is not repeated: it may hold a password.
func TestParsePlaceRefuses(t *testing.T) {
	for value, want := range map[string]string{
		"":                                     "it is empty",
		"mysql://u:geheim@h/d":                 "a URL of no database that is known",
		"postgres//geheim://h":                 "a URL of no database that is known",
		"postgres://u:ge heim@h/d":             "percent-encoded",
		"postgres://u:geheim%@h/d":             "percent-encoded",
		"postgres://u:geheim[@h/d":             "percent-encoded",
		"postgres://u:geheim@h:x/d":            "percent-encoded",
		"postgres://h/d?pool_max_conns=geheim": "not a number of connections",
		"postgres://h/d?pool_max_conns=-1":     "not a number of connections",
	} {
		got, err := parsePlace(value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", value, got, err, want)
		} else if strings.Contains(err.Error(), "heim") {
			t.Errorf("%q: the password is in %q", value, err)
		}
	}
}

// The name of a place has neither a user nor a password.
func TestPlaceString(t *testing.T) {
	for value, want := range map[string]string{
		":memory:": ":memory:",
		"x.db":     "x.db",
		"postgres://u:geheim@h:5432/d?password=geheim&sslpassword=geheim": "postgres://h:5432/d",
		"postgres://u:geheim@h/d?schema=s":                                "postgres://h/d, schema s",
		"postgres://":                                                     "postgres://",
	} {
		p, err := parsePlace(value)
		if err != nil || p.String() != want {
			t.Errorf("%q is called %q, %v; want %q", value, p, err, want)
		}
	}
}
