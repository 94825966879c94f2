package wire

import (
	"encoding/base64"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The kinds of delivery.
const (
	KindUser   = "user"
	KindSignal = "signal"
)

// Bounds of a prompt.
const (
	// MaxImageData bounds the base64 of one attachment, in characters.
	MaxImageData = 14 << 20
	// MaxImages bounds the attachments of one message.
	MaxImages = 64
	// MaxAttributes bounds the attributes of a signal.
	MaxAttributes = 256
	// MaxIdempotencyKey bounds an idempotency key, in characters.
	MaxIdempotencyKey = 256
	// MaxShortText bounds a signal's type, its tag name, and an attachment's
	// media type and filename, in bytes.
	MaxShortText = 1 << 10
	// MaxDepth bounds the nesting of initial data.
	MaxDepth = 128
	// MaxMembers bounds the members of an object anywhere in a prompt, together
	// with those of the objects that it is in.
	MaxMembers = 1 << 16
)

// Validate checks a message by the rules of the protocol, so that a message
// sent in process is held to the same ones. An error is an [*Error].
func (d *Delivery) Validate() error {
	switch d.Kind {
	case KindUser:
		if d.Type != "" || d.Attributes != nil || d.TagName != "" {
			return errShape()
		}
	case KindSignal:
		if d.Attachments != nil {
			return errShape()
		}
		if err := d.validateSignal(); err != nil {
			return err
		}
		if d.Type == "" {
			return errShape()
		}
	default:
		return errShape()
	}
	if len(d.Attachments) > MaxImages {
		return errImages()
	}
	for i := range d.Attachments {
		if err := d.Attachments[i].validate(i); err != nil {
			return err
		}
	}
	return d.validateText()
}

// validateSignal checks the values of a signal that have rules of their own.
func (d *Delivery) validateSignal() error {
	switch {
	case ReservedSignal(d.Type):
		return InvalidRequest(fmt.Sprintf("Signal type %q is framework-reserved vocabulary "+
			"(the runtime's own narration and recovery signals) — use an application-specific type.", d.Type))
	case d.TagName != "" && !isTagName(d.TagName):
		return errTagName()
	case len(d.Type) > MaxShortText:
		return errLong("Signal message \"type\"")
	case len(d.TagName) > MaxShortText:
		return errLong("Signal message \"tagName\"")
	case len(d.Attributes) > MaxAttributes:
		return errAttributes()
	}
	return nil
}

// validateText checks that the texts are valid UTF-8. Those that came as JSON
// always are.
func (d *Delivery) validateText() error {
	ok := utf8.ValidString(d.Body) && utf8.ValidString(d.Type)
	for name, value := range d.Attributes {
		ok = ok && utf8.ValidString(name) && utf8.ValidString(value)
	}
	for i := range d.Attachments {
		ok = ok && utf8.ValidString(d.Attachments[i].Filename)
	}
	if !ok {
		return InvalidRequest("The message has text that is not valid UTF-8.")
	}
	return nil
}

// isTagName reports whether s can stand unescaped as the name of an XML tag:
// a letter or underscore, then letters, digits, "_", "-" and ".".
func isTagName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && (c == '-' || c == '.' || '0' <= c && c <= '9'):
		default:
			return false
		}
	}
	return s != ""
}

// validate checks the file, which is the i-th of its message.
func (f *File) validate(i int) error {
	if base64.RawStdEncoding.EncodedLen(len(f.Data)) > MaxImageData {
		return errImageSize()
	}
	if len(f.Data) == 0 {
		return errAttachment(i, "is empty")
	}
	typ, _, err := mime.ParseMediaType(f.MediaType)
	if err != nil || !strings.HasPrefix(typ, "image/") || len(f.MediaType) > MaxShortText || !printable(f.MediaType) {
		return errAttachment(i, "must have the MIME type of an image, such as image/png")
	}
	if len(f.Filename) > MaxShortText {
		return errLong("The filename of an attachment")
	}
	return nil
}

// printable reports whether s can be sent as the value of a header.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// validateCondition checks the members beside the message against each other.
func (p *Prompt) validateCondition() error {
	if p.UID != "" && p.InitialData != nil {
		return InvalidRequest("A send conditioned on an existing instance (`uid`) cannot carry `initialData` — " +
			"the condition forbids creation, so the seed could never apply.")
	}
	return nil
}

// Validate checks a prompt that did not come from [ParsePrompt]: the message,
// the condition and the idempotency key. An error is an [*Error].
func (p *Prompt) Validate() error {
	if err := p.Message.Validate(); err != nil {
		return err
	}
	if p.IdempotencyKey != "" {
		if err := ValidateIdempotencyKey(p.IdempotencyKey); err != nil {
			return err
		}
	}
	if p.UID != "" && p.Create {
		return InvalidRequest("A send cannot both continue an incarnation and create an instance.")
	}
	initial := measure(p.InitialData)
	if initial.members > MaxMembers {
		return errMembers()
	}
	if p.InitialData != nil && !p.InitialData.IsValid() {
		return InvalidRequest("`initialData` is not valid JSON.")
	}
	if initial.depth > MaxDepth {
		return errDepth()
	}
	return p.validateCondition()
}

// ValidateIdempotencyKey checks a key that names a delivery: 1 to 256
// characters, not all of them white space. An error is an [*Error].
func ValidateIdempotencyKey(key string) error {
	if strings.TrimSpace(key) == "" {
		return InvalidRequest("`idempotencyKey` must be a non-empty string naming this delivery.")
	}
	if utf8.RuneCountInString(key) > MaxIdempotencyKey {
		return InvalidRequest(fmt.Sprintf("`idempotencyKey` must be at most %d characters.", MaxIdempotencyKey))
	}
	if !utf8.ValidString(key) {
		return InvalidRequest("`idempotencyKey` is not valid UTF-8.")
	}
	return nil
}

func errShape() *Error {
	return InvalidRequest("Delivered messages must be { kind: \"user\", body: string, attachments?: attachment[] } " +
		"or { kind: \"signal\", type: string, body: string, attributes?: Record<string, string>, tagName?: string }.")
}

func errTagName() *Error {
	return InvalidRequest("Signal message \"tagName\" must be a valid XML tag name " +
		"(letters, digits, \"_\", \"-\", \".\"; must not start with a digit, \"-\", or \".\").")
}

func errImages() *Error {
	return InvalidRequest("A message has at most " + strconv.Itoa(MaxImages) + " attachments.")
}

func errAttributes() *Error {
	return InvalidRequest("A signal has at most " + strconv.Itoa(MaxAttributes) + " attributes.")
}

func errMembers() *Error {
	return InvalidRequest("An object has at most " + strconv.Itoa(MaxMembers) + " members, together with the objects that it is in.")
}

func errImageSize() *Error {
	return InvalidRequest("Image data exceeds the " + strconv.Itoa(MaxImageData) + " character limit.")
}

func errLong(what string) *Error {
	return InvalidRequest(what + " must be at most " + strconv.Itoa(MaxShortText) + " bytes.")
}

func errDepth() *Error {
	return InvalidRequest("`initialData` is nested deeper than " + strconv.Itoa(MaxDepth) + " levels.")
}

func errAttachment(i int, what string) *Error {
	return InvalidRequest("Attachment " + strconv.Itoa(i) + " " + what + ".")
}
