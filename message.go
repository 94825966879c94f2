package flue

import (
	"maps"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// A Message is what is delivered to an instance. Make one with [User] or
// [Signal].
type Message struct {
	Kind MessageKind
	Body string

	// Attachments come with a user message. Only images are accepted.
	Attachments []Attachment

	// Type, Attributes and TagName belong to a signal. The model reads a signal
	// as an XML element of that tag ("signal" if it is empty) with the type and
	// the attributes on it.
	Type       string
	Attributes map[string]string
	TagName    string

	// Pinned keeps the message in front of the model as it is, however long the
	// conversation becomes: no summary takes its place while there is room for it,
	// which is a quarter of what the context window leaves for the conversation.
	// Only the program's own code can pin a message, not a client over HTTP.
	Pinned bool
}

// MessageKind tells a person's chat turn from everything else.
type MessageKind string

// The kinds of message.
const (
	KindUser   MessageKind = "user"
	KindSignal MessageKind = "signal"
)

// An Attachment is a file that comes with a message. In the message that
// [UseDelivery] returns, Data is nil and ID says under which id the store keeps
// the file.
type Attachment struct {
	MediaType string // such as image/png
	Filename  string // optional
	Data      []byte // at most 10.5 MiB

	ID   string
	Size int
}

// User returns a person's chat turn.
func User(body string, attachments ...Attachment) Message {
	return Message{Kind: KindUser, Body: body, Attachments: attachments}
}

// Signal returns a message that is not a chat turn: an event, a decision, a
// result that arrived. The type says what happened, in the application's own
// words; a few types are the runtime's and refused.
func Signal(typ, body string, attributes map[string]string) Message {
	return Message{Kind: KindSignal, Type: typ, Body: body, Attributes: attributes}
}

// delivery is m in the form of the protocol, whose rules it is held to.
func (m *Message) delivery() wire.Delivery {
	// The attributes are the sender's map, which it may change.
	d := wire.Delivery{Kind: string(m.Kind), Body: m.Body, Type: m.Type, Attributes: maps.Clone(m.Attributes), TagName: m.TagName}
	for _, a := range m.Attachments {
		d.Attachments = append(d.Attachments, wire.File{MediaType: a.MediaType, Filename: a.Filename, Data: a.Data})
	}
	return d
}

// delivered is a stored message as an agent sees it.
func delivered(m journal.Message) Message {
	out := Message{Kind: MessageKind(m.Kind), Body: m.Body, Type: m.Type, Attributes: maps.Clone(m.Attributes), TagName: m.TagName, Pinned: m.Pinned}
	for _, a := range m.Attachments {
		out.Attachments = append(out.Attachments, Attachment{MediaType: a.MediaType, Filename: a.Filename, ID: a.ID, Size: a.Size})
	}
	return out
}
