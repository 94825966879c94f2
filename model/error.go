package model

import (
	"fmt"
	"time"
)

// Class says what kind of failure an [Error] is, and so what to do about it.
type Class string

// The classes of failure.
const (
	// Retryable failures may pass: overload, rate limits, a cut connection, a
	// silent stream, a server's 5xx.
	Retryable Class = "retryable"
	// Overflow means that the request is larger than the context window.
	Overflow Class = "overflow"
	// Auth means that the key is missing, wrong or not allowed.
	Auth Class = "auth"
	// Invalid means that the provider refused the request as it is; sending
	// it again will not help.
	Invalid Class = "invalid"
)

// An Error is a failed model call.
type Error struct {
	Provider string
	Class    Class
	Status   int    // HTTP status; zero when there was no response
	Message  string // what the provider said, without any credential

	// RetryAfter is how long the provider asked to wait; zero when it did not
	// say.
	RetryAfter time.Duration

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
