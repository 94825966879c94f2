package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// An Exporter is a store whose instances can be copied whole to another one.
type Exporter interface {
	Store
	Lister

	// Accepted returns up to limit submissions of an instance whose ids come after
	// the given one, settled or not, ordered by their ids byte by byte. It fails with
	// ErrNotFound if there is no such instance.
	Accepted(ctx context.Context, addr Address, after string, limit int) ([]Accepted, error)

	// AttachmentIDs returns up to limit ids of the instance's attachments that come
	// after the given one, ordered byte by byte. It fails with ErrNotFound if there
	// is no such instance.
	AttachmentIDs(ctx context.Context, addr Address, after string, limit int) ([]string, error)
}

// An Accepted is a submission with what it was accepted under, see
// [Admission.Identity].
type Accepted struct {
	Submission
	Identity []byte
}

// An Importer is a store into which an instance of another one can be put.
type Importer interface {
	// Import creates an instance that is in all that can be read of it the one that
	// is given, but that nobody owns it. All of it happens or none. The epochs of its
	// owners will be above those of its batches.
	//
	// It is refused with a *ConditionError if the instance exists, and with
	// ErrInvalid if its parts do not belong together: see [Import.Batches]. An error
	// of one of the sequences ends it and is returned.
	Import(ctx context.Context, in Import) error
}

// An Import is an instance to put into a store. Each sequence is ranged over at most
// once, while the others are not.
type Import struct {
	Instance

	// Batches are all batches in order, without a gap, from offset 0 to the head.
	Batches iter.Seq2[Batch, error]
	// Submissions are all that were ever accepted; as many as the instance says have
	// no outcome.
	Submissions iter.Seq2[Accepted, error]
	// Attachments are those of the instance, each with an id of its own.
	Attachments iter.Seq2[Attachment, error]
}

// A Copied says what a copy of an instance has not: batches and attachments that
// could not be read.
type Copied struct {
	LostBatches     []int64
	LostAttachments []string
}

// copyPage is how many submissions or ids a copy asks for at a time.
const copyPage = 1000

// Copy copies an instance from one store to another. Nothing must write to it
// meanwhile. Its checkpoints are not copied.
//
// A batch that cannot be read becomes one without content, which cannot be
// understood either: a repair that passes over it still does, and damage that was
// not repaired is damage still. An attachment that cannot be read is left out.
func Copy(ctx context.Context, from Exporter, to Importer, addr Address) (Copied, error) {
	in, err := from.Instance(ctx, addr)
	if err != nil {
		return Copied{}, err
	}
	c := copying{ctx: ctx, from: from, addr: addr, head: in.Head}
	err = to.Import(ctx, Import{Instance: in, Batches: c.batches, Submissions: c.submissions, Attachments: c.attachments})
	return c.Copied, err
}

type copying struct {
	Copied
	ctx  context.Context
	from Exporter
	addr Address
	head int64
}

// batches hands on the journal. How far a batch reaches that cannot be read shows
// where the next one begins.
func (c *copying) batches(yield func(Batch, error) bool) {
	c.LostBatches = nil
	var held *Batch
	release := func(next int64) bool {
		if held == nil {
			return true
		}
		b := *held
		b.Span, held = max(next-b.Offset-1, 0), nil
		return yield(b, nil)
	}
	for b, err := range Batches(c.ctx, c.from, c.addr, -1) {
		var lost *BatchError
		if errors.As(err, &lost) {
			b, err = Batch{Offset: lost.Offset}, nil
			c.LostBatches = append(c.LostBatches, lost.Offset)
			if !release(b.Offset) {
				return
			}
			held = &b
			continue
		}
		if err != nil {
			yield(Batch{}, err)
			return
		}
		if !release(b.Offset) || !yield(b, nil) {
			return
		}
	}
	release(c.head + 1)
}

func (c *copying) submissions(yield func(Accepted, error) bool) {
	after := ""
	for {
		page, err := c.from.Accepted(c.ctx, c.addr, after, copyPage)
		if err != nil {
			yield(Accepted{}, err)
			return
		}
		for _, a := range page {
			if after = a.ID; !yield(a, nil) {
				return
			}
		}
		if len(page) < copyPage {
			return
		}
	}
}

func (c *copying) attachments(yield func(Attachment, error) bool) {
	c.LostAttachments = nil
	after := ""
	for {
		page, err := c.from.AttachmentIDs(c.ctx, c.addr, after, copyPage)
		if err != nil {
			yield(Attachment{}, err)
			return
		}
		for _, id := range page {
			after = id
			a, err := c.from.Attachment(c.ctx, c.addr, id)
			if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) { // as listed, but without its bytes
				c.LostAttachments = append(c.LostAttachments, id)
				continue
			}
			if !yield(a, err) || err != nil {
				return
			}
		}
		if len(page) < copyPage {
			return
		}
	}
}

// A Sound checks the parts of an import as a store takes them: whether they belong
// together, and keep the limits of this package.
type Sound struct {
	in    *Instance
	next  int64
	open  int
	Epoch int64 // the newest of the batches
}

// NewSound begins a check of an import. It fails with ErrInvalid or ErrTooLarge.
func NewSound(in *Instance) (*Sound, error) {
	if err := in.Address.Validate(); err != nil {
		return nil, err
	}
	b := Birth{UID: in.UID, Incarnation: in.Incarnation}
	return &Sound{in: in}, b.validate()
}

// Batch checks the next batch.
func (s *Sound) Batch(b *Batch) error {
	if err := validPayload(b.Payload); err != nil {
		return err
	}
	if b.Offset != s.next || b.Span < 0 || b.Epoch < 0 || b.Last() > s.in.Head {
		return fmt.Errorf("%w: import of %v: a batch from offset %d to %d of epoch %d, where one at %d should be, of %d at most",
			ErrInvalid, s.in.Address, b.Offset, b.Last(), b.Epoch, s.next, s.in.Head)
	}
	s.next, s.Epoch = b.Last()+1, max(s.Epoch, b.Epoch)
	return nil
}

// Submission checks a submission.
func (s *Sound) Submission(a *Accepted) error {
	if err := validName("submission id", a.ID); err != nil {
		return err
	}
	if n := len(a.Identity); n > MaxName {
		return fmt.Errorf("%w: identity of submission %q has %d bytes, the limit is %d", ErrTooLarge, a.ID, n, MaxName)
	}
	if err := validText("outcome", a.Outcome); err != nil {
		return err
	}
	if a.Outcome == "" {
		s.open++
	}
	if a.Offset < 0 || a.Offset > s.in.Head || a.SettledAt < 0 || a.SettledAt > s.in.Head {
		return fmt.Errorf("%w: import of %v: submission %q is admitted at offset %d and settled at %d, behind the head %d",
			ErrInvalid, s.in.Address, a.ID, a.Offset, a.SettledAt, s.in.Head)
	}
	return nil
}

// Attachment checks an attachment.
func (s *Sound) Attachment(a *Attachment) error { return validAttachments([]Attachment{*a}) }

// End checks that nothing is missing.
func (s *Sound) End() error {
	if s.next != s.in.Head+1 || s.next == 0 || s.open != s.in.Unsettled {
		return fmt.Errorf("%w: import of %v: batches up to offset %d and %d open submissions, where there should be %d and %d",
			ErrInvalid, s.in.Address, s.next-1, s.open, s.in.Head, s.in.Unsettled)
	}
	return nil
}
