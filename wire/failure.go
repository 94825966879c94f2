package wire

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// These are the errors that answer requests, in the words that clients of the
// protocol know. A stream is named by its path: agents/<agent>/<id>.

// StreamNotFound is the error for a conversation that does not exist.
func StreamNotFound(path string) *Error {
	return &Error{
		Code:    CodeStreamNotFound,
		Message: `Event stream "` + path + `" was not found.`,
		Details: "Streams are created when their agent instance receives its first prompt.",
	}
}

// OffsetGone is the error for reading from beyond the head, which is what a
// client does whose stream was reset under it.
func OffsetGone(path string, after, head Offset) *Error {
	return &Error{
		Code:    CodeOffsetGone,
		Message: fmt.Sprintf(`Stream offset "%s" is beyond the current head of "%s".`, after, path),
		Details: "The stream is shorter than the requested resume offset — it was likely reset since the offset was checkpointed. " +
			"Re-read the conversation history and resume from its offset.",
		Meta: map[string]any{"offset": after.String(), "nextOffset": head.String()},
	}
}

// AttachmentNotFound is the error for a file that the conversation does not have.
func AttachmentNotFound(id string) *Error {
	return &Error{
		Code:    CodeAttachmentNotFound,
		Message: `Attachment "` + id + `" was not found.`,
		Details: "The attachment id may be incorrect, or it belongs to a conversation other than the default one.",
	}
}

// InstanceNotFound is the error for a send to an incarnation that does not exist.
func InstanceNotFound(id string) *Error {
	return &Error{
		Code:    CodeInstanceNotFound,
		Message: `Agent instance "` + id + `" was not found.`,
		Details: "No instance with this id and uid exists. The id may be wrong, or the instance was re-created and " +
			"this uid names its previous incarnation. Send without a uid to deliver unconditionally.",
	}
}

// InstanceExists is the error for a send that may only create, to an instance
// that exists as the incarnation uid.
func InstanceExists(id, uid string) *Error {
	return &Error{
		Code:    CodeInstanceExists,
		Message: `Agent instance "` + id + `" already exists.`,
		Details: `Continue it with uid "` + uid + `", or pick a fresh id to create.`,
		Meta:    map[string]any{"uid": uid},
	}
}

// SubmissionConflict is the error for an idempotency key that was used for
// another message, which became the named submission.
func SubmissionConflict(submission string) *Error {
	return &Error{
		Code:    CodeSubmissionConflict,
		Message: "This idempotency key already names a different submission.",
		Details: "The key names the delivery, not the outcome: retry the identical payload to converge on the existing submission, " +
			"or use a fresh key to deliver something new.",
		Meta: map[string]any{"submissionId": submission},
	}
}

// InitialDataMismatch is the error for creation data that the agent's schema
// does not accept; reason says why.
func InitialDataMismatch(reason string) *Error {
	return InvalidRequest("The agent requires creation data matching its initialData schema: " + strings.TrimSuffix(reason, ".") +
		". Creation data rides the instance's first message ({ initialData, ... } beside the message).")
}

// Unavailable is the error for a request to a runtime that is closed.
func Unavailable() *Error {
	return &Error{
		Code: CodeUnavailable, Message: "The runtime is shutting down.",
		Details: "Send the request again; another process may take it.",
		Meta:    map[string]any{"state": "draining"},
	}
}

// Overloaded is the error for a message to a runtime that has more to do than it
// can take on, for the reason: memory or backlog.
func Overloaded(reason string, after time.Duration) *Error {
	return &Error{
		Code: CodeOverloaded, Message: "The runtime has more work than it can take on.",
		Details: "The message was not accepted. Send it again later, under the same idempotency key if it has one.",
		Meta:    map[string]any{"reason": reason, "retryAfter": seconds(after)}, RetryAfter: after,
	}
}

// StoreUnavailable is the error for a request that failed because the runtime's
// store cannot be reached, or does not answer. If the request would have changed
// something, whether it has is not known.
func StoreUnavailable(change bool, cause error) *Error {
	e := &Error{
		Code: CodeStoreUnavailable, Message: "The store of the runtime cannot be reached.",
		Details: "Send the request again.", RetryAfter: storePatience, Err: cause,
	}
	if change {
		e.Details = "Whether the request was accepted is not known. It is safe to send it again under the same idempotency key: it takes effect once."
	}
	e.Meta = map[string]any{"retryAfter": seconds(e.RetryAfter)}
	return e
}

// StoreRefuses is the error for a request to a runtime whose store takes no more
// writes until the program is started again.
func StoreRefuses(cause error) *Error {
	return &Error{
		Code: CodeStoreUnavailable, Message: "The store of the runtime takes no more writes.",
		Details: "The request was not accepted. Send it again; another process may take it.",
		Meta:    map[string]any{"retryAfter": seconds(storePatience)}, RetryAfter: storePatience, Err: cause,
	}
}

// storePatience is about what a database takes to come back, or another one to
// take its place, that does so by itself.
const storePatience = 5 * time.Second

// seconds is d in whole seconds, at least one.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// RetryAfterSeconds is the value of the header Retry-After, or 0 if trying again is
// of no use by itself.
func (e *Error) RetryAfterSeconds() int64 {
	if e.Status() != http.StatusServiceUnavailable {
		return 0
	}
	return seconds(e.RetryAfter)
}

// ConversationDamaged is the error for a message to a conversation whose record
// cannot be continued, and for waiting for what it does next. It is no matter of
// trying again, as one with the status 503 would be: nothing changes until an
// operator has repaired the conversation.
func ConversationDamaged(id string, cause error) *Error {
	return &Error{
		Code:    CodeDamaged,
		Message: `Conversation "` + id + `" cannot go on: its record is damaged.`,
		Details: "It takes no message and answers none before the operator of the server has repaired it. Begin another one meanwhile.",
		Err:     cause,
	}
}

// MethodNotAllowed is the error for a method that an endpoint does not have.
func MethodNotAllowed(method string, allowed ...string) *Error {
	return &Error{
		Code:    CodeMethodNotAllowed,
		Message: "HTTP method " + method + " is not allowed on this endpoint.",
		Details: `This endpoint accepts "` + strings.Join(allowed, `", "`) + `" only.`,
	}
}

// UnsupportedMediaType is the error for a body that is not sent as JSON.
// Received is the Content-Type header, empty if there was none.
func UnsupportedMediaType(received string) *Error {
	what := "No Content-Type header was sent."
	if received != "" {
		what = `Received Content-Type: "` + received + `".`
	}
	return &Error{
		Code:    CodeUnsupportedMediaType,
		Message: "Request body must be sent as application/json.",
		Details: what + "\nSend the request body as JSON with the header \"Content-Type: application/json\", " +
			"or omit the body entirely (and the Content-Type header) if the request doesn't have a payload.",
	}
}

// TooLarge is the error for a body of more than limit bytes.
func TooLarge(limit int64) *Error {
	return &Error{
		Code:    CodeTooLarge,
		Message: "Request body is too large.",
		Details: fmt.Sprintf("The server accepts bodies of at most %d bytes.", limit),
	}
}

// Internal is the error that is sent in place of one that clients may not see.
// The cause is kept for the log line that ref names.
func Internal(ref string, cause error) *Error {
	return &Error{
		Code:    CodeInternal,
		Message: "An internal error occurred.",
		Details: "The server encountered an unexpected error while handling this request.",
		Ref:     ref,
		Err:     cause,
	}
}
