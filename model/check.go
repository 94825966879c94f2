package model

import (
	"context"
	"iter"
	"strings"
)

// A Checker is a [Provider] that can tell before a request that it would fail.
// A runtime asks it before it begins a response.
type Checker interface {
	// Check returns why the model cannot be asked, with what to do about it, or
	// nil if it may be there. An empty id stands for any model. It must not
	// block.
	Check(id string) error
}

// A Lister is a [Provider] that knows which models it has. An id that ends in "*"
// stands for all that begin like it.
type Lister interface {
	ModelIDs() []string
}

// Named is implemented by a [Provider] that knows its name: that under which it
// takes back what it has sent for itself alone, such as signed reasoning. It must
// be the name that specifiers begin with. An empty one is not known.
type Named interface {
	Name() string
}

// Unavailable is a provider that a program knows by name and cannot use, as a
// rule because it has no key. Each request fails, before it is made.
type Unavailable struct {
	Name string // in specifiers

	// Variables are the environment variables that are missing; each
	// alternative that would do is one element, such as "GROQ_API_KEY", or
	// "A and B" for two that go together.
	Variables []string

	// Reason says what is missing, as a sentence without a full stop, in the
	// place of the words that Needs has for Variables.
	Reason string
}

var (
	_ Provider = (*Unavailable)(nil)
	_ Checker  = (*Unavailable)(nil)
)

// Stream yields the error of Check.
func (u *Unavailable) Stream(context.Context, *Request) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) { yield(nil, u.Check("")) }
}

// Check returns an [*Error] of class Auth that says what is missing.
func (u *Unavailable) Check(string) error {
	return &Error{Provider: u.Name, Class: Auth, Message: u.Needs()}
}

// Needs says in a few words what is missing, such as "no key; set GROQ_API_KEY".
func (u *Unavailable) Needs() string {
	if u.Reason != "" {
		return u.Reason
	}
	return "no key; set " + strings.Join(u.Variables, " or ")
}
