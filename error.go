package flue

import (
	"fmt"

	"github.com/flue-go/flue/wire"
)

// An Error is a failure with a stable code. Test for a code with errors.Is:
//
//	errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict})
type Error = wire.Error

// A Code is the stable category of an [Error] or a [SubmissionError].
type Code = wire.Code

// The codes of errors that a caller may branch on.
const (
	CodeInvalidRequest      = wire.CodeInvalidRequest
	CodeConversationMissing = wire.CodeStreamNotFound
	CodeInstanceNotFound    = wire.CodeInstanceNotFound
	CodeInstanceExists      = wire.CodeInstanceExists
	CodeSubmissionConflict  = wire.CodeSubmissionConflict
	CodeUnavailable         = wire.CodeUnavailable
	CodeInternal            = wire.CodeInternal

	CodeSubmissionAborted  = wire.CodeSubmissionAborted
	CodeSubmissionTimeout  = wire.CodeSubmissionTimeout
	CodeSubmissionExceeded = wire.CodeSubmissionExceeded
	CodeOperationFailed    = wire.CodeOperationFailed
)

// A SubmissionError says that a submission did not complete.
type SubmissionError struct {
	Submission string
	Outcome    Outcome
	Code       Code
	Message    string
	Details    string
}

func (e *SubmissionError) Error() string {
	verb := "failed"
	if e.Outcome == Aborted {
		verb = "was aborted"
	}
	return fmt.Sprintf("submission %s %s: %s", e.Submission, verb, e.Message)
}

// Outcome is how a submission ended.
type Outcome string

// The outcomes. Every accepted submission reaches exactly one.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Aborted   Outcome = "aborted"
)

// A HookError reports a hook that was used against its rules. It is the value
// that the hook panics with; the runtime turns it into a failed submission.
type HookError struct {
	Agent  string // empty if it is not known
	Hook   string // such as UseTool
	Reason string // what was wrong
	Fix    string // what to do
}

func (e *HookError) Error() string {
	s := "flue: " + e.Hook
	if e.Agent != "" {
		s += " in agent " + e.Agent
	}
	return s + ": " + e.Reason + ". " + e.Fix
}
