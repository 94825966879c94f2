package model

import (
	"fmt"
	"time"
)

// Class says what kind of failure an [Error] is, and so what to do about it.
type Class string

// The classes of failure.
const (
	// Retryable failures may pass: a cut connection, a silent stream, a server's
	// 5xx that says nothing more.
	Retryable Class = "retryable"
	// RateLimited means that too much was asked for in too short a time. It passes.
	RateLimited Class = "rate_limit"
	// Overloaded means that the provider has no capacity at the moment. It may pass.
	Overloaded Class = "overload"
	// Overflow means that the request is larger than the context window.
	Overflow Class = "overflow"
	// Auth means that the key is missing, wrong or not allowed.
	Auth Class = "auth"
	// Quota means that what was paid for is used up. Waiting does not help.
	Quota Class = "quota"
	// Filtered means that a content filter refused to answer.
	Filtered Class = "content_filter"
	// Invalid means that the provider refused the request as it is; sending
	// it again will not help.
	Invalid Class = "invalid"
)

// Temporary reports whether the same request may succeed later.
func (c Class) Temporary() bool {
	return c == Retryable || c == RateLimited || c == Overloaded
}

// An Error is a failed model call.
type Error struct {
	Provider string
	Class    Class
	Status   int    // HTTP status; zero when there was no response
	Message  string // what the provider said, without any credential

	// RetryAfter is how long the provider asked to wait; zero when it did not
	// say.
	RetryAfter time.Duration

	// Usage is what the provider had said that the call used when it failed. It is
	// zero when the provider had not said, and part of what was used at most.
	Usage Usage

	Err error // the cause, when there is one
}

func (e *Error) Error() string {
	s := "model provider " + e.Provider + ": "
	if e.Status != 0 {
		s += fmt.Sprintf("%d: ", e.Status)
	}
	if e.Message == "" && e.Err != nil {
		return s + e.Err.Error()
	}
	return s + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
