package wire

import (
	"net/http"
	"time"
)

// A Code is the stable category of an [Error]. Branch on it; the words of a
// message may change.
type Code string

// The codes of errors that answer a request.
const (
	CodeInvalidRequest       Code = "invalid_request"
	CodeInvalidJSON          Code = "invalid_json"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeTooLarge             Code = "request_too_large"
	CodeStreamNotFound       Code = "stream_not_found"
	CodeAttachmentNotFound   Code = "attachment_not_found"
	CodeInstanceNotFound     Code = "agent_instance_not_found"
	CodeInstanceExists       Code = "agent_instance_exists"
	CodeSubmissionConflict   Code = "submission_conflict"
	CodeOffsetGone           Code = "stream_offset_gone"
	CodeUnavailable          Code = "runtime_unavailable"
	CodeOverloaded           Code = "overloaded"
	CodeStoreUnavailable     Code = "store_unavailable"
	CodeDamaged              Code = "conversation_damaged" // also ends a submission, when the conversation is repaired
	CodeInternal             Code = "internal_error"
)

// The codes of errors that end a submission, and of tool failures.
const (
	CodeSubmissionAborted  Code = "submission_aborted"
	CodeSubmissionTimeout  Code = "submission_timeout"
	CodeSubmissionExceeded Code = "submission_retry_exhausted"
	CodeOperationFailed    Code = "operation_failed"
	CodeOverflow           Code = "context_overflow"
	CodeBudgetExceeded     Code = "budget_exceeded"
	CodeToolInput          Code = "tool_input_validation"
	CodeToolOutput         Code = "tool_output_validation"
	CodeToolTimeout        Code = "tool_timeout"
	CodeToolConflict       Code = "tool_name_conflict"
	CodeHook               Code = "hook_misuse"
	CodeApproval           Code = "approval_not_pending"
	CodeStep               Code = "tool_step_failed"
)

// An Error is a failure that a client may be told of. The wrapped cause is for
// this side's logs only and is never sent.
type Error struct {
	Code    Code           `json:"type"`
	Message string         `json:"message"` // what happened
	Details string         `json:"details"` // what to do about it
	Meta    map[string]any `json:"meta,omitzero"`
	Ref     string         `json:"ref,omitzero"` // names the log line that has the cause

	// RetryAfter is when it may be worth while to try again, if that is known. Over
	// HTTP it is the header Retry-After.
	RetryAfter time.Duration `json:"-"`

	Err error `json:"-"`
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Message
	}
	return e.Message + " " + e.Details
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an [Error] with the same code and no other
// field set, so that errors.Is(err, &Error{Code: c}) tests for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Details == ""
}

// Status is the HTTP status that goes with the code.
func (e *Error) Status() int {
	switch e.Code {
	case CodeInvalidRequest, CodeInvalidJSON:
		return http.StatusBadRequest
	case CodeUnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeStreamNotFound, CodeAttachmentNotFound, CodeInstanceNotFound:
		return http.StatusNotFound
	case CodeInstanceExists, CodeSubmissionConflict:
		return http.StatusConflict
	case CodeOffsetGone:
		return http.StatusRequestedRangeNotSatisfiable
	case CodeUnavailable, CodeOverloaded, CodeStoreUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// InvalidRequest returns the error for a request that cannot be accepted as it
// is.
func InvalidRequest(details string) *Error {
	return &Error{Code: CodeInvalidRequest, Message: "Request is malformed.", Details: details}
}
