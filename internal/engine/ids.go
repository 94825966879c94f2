package engine

import "github.com/oklog/ulid/v2"

// newID returns a new identifier: the prefix and a ULID, whose order is that of
// creation.
func newID(prefix string) string { return prefix + ulid.Make().String() }

// NewSubmissionID returns an id for a new submission.
func NewSubmissionID() string { return newID("sub_") }
