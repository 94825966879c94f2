package wire

import "github.com/go-json-experiment/json/jsontext"

// A Prompt is the body of a POST to a conversation: one message and what it is
// sent under.
type Prompt struct {
	Message Delivery

	InitialData jsontext.Value // nil when absent
	// UID and Create are the send condition: UID continues only that
	// incarnation, Create ("uid": null on the wire) only makes a new instance.
	UID            string
	Create         bool
	IdempotencyKey string // at most 256 characters; empty when absent
	Traceparent    string // the W3C header, when it is valid
}

// A Delivery is a message as a client sends it.
type Delivery struct {
	Kind        string // user, signal
	Body        string
	Attachments []File            // of a user message
	Type        string            // of a signal
	Attributes  map[string]string // of a signal
	TagName     string            // of a signal
}

// A File is an attachment with its bytes.
type File struct {
	MediaType string
	Filename  string
	Data      []byte
}

// An Admission is the answer to a prompt.
type Admission struct {
	StreamURL    string `json:"streamUrl"`
	Offset       Offset `json:"offset"`
	SubmissionID string `json:"submissionId"`
	UID          string `json:"uid"`
	Deduplicated bool   `json:"deduplicated,omitzero"`
}
