package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A result that is longer than the model should read at once is kept whole as an
// attachment of the instance. Its head and tail stand in for it, with the id by
// which the model can ask for the rest.

// MaxShown is how many bytes of a result the model is shown, unless the tool
// says otherwise: about eight thousand tokens.
const MaxShown = 32 << 10

// keptPrefix begins the ids of attachments that hold results, and of no others:
// clients choose no ids.
const keptPrefix = "output_"

// ErrNotKept is the error of what asks for a result that the instance does not
// have.
var ErrNotKept = errors.New("no such output is kept")

// keep returns what the model is shown of a result, and the attachment that holds
// all of it, if that is not the same.
func keep(tool *Tool, key, content string) (string, *store.Attachment) {
	limit := MaxShown
	name := ""
	if tool != nil {
		limit, name = orDefault(tool.Shown, MaxShown), tool.Spec.Name
	}
	if limit < 0 || len(content) <= limit {
		return content, nil
	}
	sum := sha256.Sum256([]byte(content))
	of := sha256.Sum256([]byte(key + "\x00" + string(sum[:])))
	at := &store.Attachment{
		ID: keptPrefix + hex.EncodeToString(of[:8]), MediaType: "text/plain; charset=utf-8", Filename: name + ".txt",
		Digest: sum, Data: []byte(content),
	}
	return abridge(content, limit, at.ID), at
}

// abridge returns about limit bytes of the head and the tail of text, with what
// was left out between them. Both end at a line if there is one near.
func abridge(text string, limit int, id string) string {
	head := cutBack(text, limit*5/8)
	tail := cutForward(text, len(text)-limit*3/8)
	left := text[head:tail]
	return fmt.Sprintf("%s\n\n[%d of %d bytes are left out here, %d lines. All of it is kept as %s: read more of it with the tool %s.]\n\n%s",
		strings.TrimRight(text[:head], "\n"), len(left), len(text), strings.Count(left, "\n"), id, ReadOutput, text[tail:])
}

// ReadOutput is the name of the tool with which the model reads a result that was
// kept.
const ReadOutput = "read_output"

// cutBack returns the end of the last line, or else of the last character, that
// ends at or before n.
func cutBack(text string, n int) int {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	if i := strings.LastIndexByte(text[:n], '\n'); i >= n*3/4 {
		return i + 1
	}
	return n
}

// cutForward returns the beginning of the first line, or else of the first
// character, that begins at or after n.
func cutForward(text string, n int) int {
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n++
	}
	if i := strings.IndexByte(text[n:], '\n'); i >= 0 && i <= (len(text)-n)/4 {
		return n + i + 1
	}
	return n
}

// Kept returns a result of the instance that was kept, by the id that the model
// was told. It fails with ErrNotKept if there is none.
func (w *Work) Kept(ctx context.Context, id string) (string, error) {
	if w.unit == nil || !strings.HasPrefix(id, keptPrefix) {
		return "", ErrNotKept
	}
	at, err := w.unit.engine.cfg.Store.Attachment(ctx, w.unit.addr, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", ErrNotKept
	}
	if err != nil {
		return "", fmt.Errorf("reading %s of %s: %w", id, w.unit.addr, err)
	}
	return string(at.Data), nil
}

// attach stages an attachment with the next batch.
func (d *driver) attach(at *store.Attachment) *journal.Attachment {
	d.attached = append(d.attached, *at)
	return reference(at)
}

// reference is an attachment as a record names it.
func reference(at *store.Attachment) *journal.Attachment {
	return &journal.Attachment{ID: at.ID, MediaType: at.MediaType, Filename: at.Filename, Size: len(at.Data)}
}
