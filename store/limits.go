package store

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits that every store keeps, so that data can move between stores.
const (
	// MaxBatch bounds the payload of one batch, in bytes.
	MaxBatch = 64 << 20
	// MaxAttachment bounds the data of one attachment, in bytes.
	MaxAttachment = 64 << 20
	// MaxAttachments bounds the attachments of one admission or write.
	MaxAttachments = 256
	// MaxName bounds agent names, instance ids, submission ids and every other
	// short string, and identities, in bytes.
	MaxName = 1 << 10
	// MaxSettle bounds the settlements of one write.
	MaxSettle = 1 << 16
	// PageBytes bounds the payloads of one page, in bytes. A page with a single
	// batch may be larger.
	PageBytes = 8 << 20
)

// Validate reports whether a can name an instance: both parts must be
// non-empty, valid UTF-8 without a zero byte, and at most MaxName bytes long.
func (a Address) Validate() error {
	if err := validName("agent", a.Agent); err != nil {
		return err
	}
	return validName("instance id", a.ID)
}

// Validate reports whether a is within the limits of this package, with
// attachments whose digests are right. Stores call it first thing.
func (a *Admission) Validate() error {
	if err := a.Address.Validate(); err != nil {
		return err
	}
	if err := validName("submission id", a.Submission); err != nil {
		return err
	}
	for _, s := range [...]struct{ what, value string }{{"node", a.Node}, {"uid of the condition", a.Condition.UID}} {
		if err := validText(s.what, s.value); err != nil {
			return err
		}
	}
	if n := len(a.Identity); n > MaxName {
		return fmt.Errorf("%w: identity of submission %q has %d bytes, the limit is %d", ErrTooLarge, a.Submission, n, MaxName)
	}
	if err := validPayload(a.Payload); err != nil {
		return err
	}
	if a.Birth != nil {
		if err := a.Birth.validate(); err != nil {
			return err
		}
	}
	return validAttachments(a.Attachments)
}

func (b *Birth) validate() error {
	if err := validName("uid", b.UID); err != nil {
		return err
	}
	if err := validText("incarnation", b.Incarnation); err != nil {
		return err
	}
	return validPayload(b.Payload)
}

func validAttachments(as []Attachment) error {
	if n := len(as); n > MaxAttachments {
		return fmt.Errorf("%w: %d attachments, the limit is %d", ErrTooLarge, n, MaxAttachments)
	}
	for i := range as {
		a := &as[i]
		if err := validName("attachment id", a.ID); err != nil {
			return err
		}
		if err := validText("media type", a.MediaType); err != nil {
			return err
		}
		if err := validText("filename", a.Filename); err != nil {
			return err
		}
		if n := len(a.Data); n > MaxAttachment {
			return fmt.Errorf("%w: attachment %q has %d bytes, the limit is %d", ErrTooLarge, a.ID, n, MaxAttachment)
		}
		if sha256.Sum256(a.Data) != a.Digest {
			return fmt.Errorf("%w: digest of attachment %q is not the SHA-256 of its data", ErrInvalid, a.ID)
		}
	}
	return nil
}

// Validate reports whether w is within the limits of this package. Stores call
// it first thing.
func (w *Write) Validate() error {
	if err := validPayload(w.Payload); err != nil {
		return err
	}
	if n := len(w.Settle); n > MaxSettle {
		return fmt.Errorf("%w: %d settlements in one write, the limit is %d", ErrTooLarge, n, MaxSettle)
	}
	for _, s := range w.Settle {
		if err := validName("submission id", s.Submission); err != nil {
			return err
		}
		if err := validName("outcome", s.Outcome); err != nil {
			return err
		}
	}
	return validAttachments(w.Attachments)
}

// ValidatePayload reports whether p can be the payload of a batch.
func ValidatePayload(p []byte) error { return validPayload(p) }

// ValidateNode reports whether s can name a node.
func ValidateNode(s string) error { return validName("node", s) }

// Timestamp is t as stores keep it: in UTC and to the microsecond.
func Timestamp(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

func validPayload(p []byte) error {
	if n := len(p); n > MaxBatch {
		return fmt.Errorf("%w: batch has %d bytes, the limit is %d", ErrTooLarge, n, MaxBatch)
	}
	return nil
}

func validName(what, s string) error {
	if s == "" {
		return fmt.Errorf("%w: empty %s", ErrInvalid, what)
	}
	return validText(what, s)
}

func validText(what, s string) error {
	if n := len(s); n > MaxName {
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrTooLarge, what, n, MaxName)
	}
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%w: %s %q is not UTF-8 text without zero bytes", ErrInvalid, what, s)
	}
	return nil
}
