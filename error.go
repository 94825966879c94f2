package flue

import (
	"fmt"

	"github.com/flue-go/flue/internal/engine"
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
	CodeOverloaded          = wire.CodeOverloaded
	CodeStoreUnavailable    = wire.CodeStoreUnavailable
	CodeDamaged             = wire.CodeDamaged
	CodeInternal            = wire.CodeInternal

	CodeSubmissionAborted  = wire.CodeSubmissionAborted
	CodeSubmissionTimeout  = wire.CodeSubmissionTimeout
	CodeSubmissionExceeded = wire.CodeSubmissionExceeded
	CodeOperationFailed    = wire.CodeOperationFailed
	CodeOverflow           = wire.CodeOverflow
	CodeBudgetExceeded     = wire.CodeBudgetExceeded

	CodeHook         = wire.CodeHook
	CodeToolInput    = wire.CodeToolInput
	CodeToolOutput   = wire.CodeToolOutput
	CodeToolTimeout  = wire.CodeToolTimeout
	CodeToolConflict = wire.CodeToolConflict
	CodeApproval     = wire.CodeApproval
	CodeStep         = wire.CodeStep
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

// Code returns [CodeHook].
func (e *HookError) Code() Code { return CodeHook }

// A ToolNameConflictError says that a render declared two tools of one name.
type ToolNameConflictError struct{ Agent, Tool string }

func (e *ToolNameConflictError) Error() string {
	return fmt.Sprintf("Two tools of agent %s are named %q. Tool names are unique within a render: rename one, or declare it once.", e.Agent, e.Tool)
}

// Code returns [CodeToolConflict].
func (e *ToolNameConflictError) Code() Code { return CodeToolConflict }

// A ToolInputError says that the model's arguments do not fit a tool. The
// tool's function was not called.
type ToolInputError struct {
	Tool string
	Err  error // says for each place what was expected and what came
}

func (e *ToolInputError) Error() string {
	return fmt.Sprintf("Validation failed for tool %q:\n%v", e.Tool, e.Err)
}

// Unwrap returns the cause.
func (e *ToolInputError) Unwrap() error { return e.Err }

// Code returns [CodeToolInput].
func (e *ToolInputError) Code() Code { return CodeToolInput }

// A ToolOutputError says that a tool's function has run and returned what cannot
// be used: it is no JSON, or not what the tool's output schema asks for.
type ToolOutputError struct {
	Tool string
	Err  error
}

func (e *ToolOutputError) Error() string {
	return fmt.Sprintf("Tool %q ran, but its result could not be used: %v", e.Tool, e.Err)
}

// Unwrap returns the cause.
func (e *ToolOutputError) Unwrap() error { return e.Err }

// Code returns [CodeToolOutput].
func (e *ToolOutputError) Code() Code { return CodeToolOutput }

// A ToolTimeoutError says that a tool call was given up because its tool's
// timeout was up. It is also the cause of the call's context (context.Cause).
type ToolTimeoutError = engine.TimeoutError
