// Package journal defines the records that an instance's journal is made of,
// and their encoding.
//
// The journal is the only truth about an instance. What lands in one append is
// one [Batch] under one offset; a batch is applied whole or not at all. Records
// are facts, written once and never changed.
//
// # Versions
//
// A batch is a JSON object. Two rules keep journals readable across versions
// of this package, in both directions:
//
//   - A member that a reader does not know is ignored. A new member must
//     therefore be optional, with a zero value that means what its absence
//     meant before.
//   - A record that a reader does not know (a new kind, or a known kind with a
//     higher version) decodes as an [Unknown]. If the writer marked it as
//     optional a reader passes over it; if not, the reader must refuse to run
//     the instance rather than continue from a state that it misunderstands.
//
// So a new member whose presence changes what may follow, in which phase the
// instance is, how work ends or what may be run again must not be ignored: a
// reader that did would take what comes later for damage, or do what must not be
// done. A record that has such a member is written with a higher version, and one
// that has not stays as it was, for readers that know no better. The same holds for
// a new word in an old member, such as another [Stop] or [SeamName]. A member that
// only says more (to people, to models, to whoever counts) needs no version. A test
// has each member with the version that it needs, so that none is added without
// the question being asked.
//
// Members that every program has known that can share a store with this one stay
// at version 1. Of each kind all versions are read, whatever members they have.
//
// The package does no I/O, so that anything can read a journal for ever.
package journal

import (
	"bytes"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// FormatVersion is the version of the batch envelope.
const FormatVersion = 1

// A Batch is what was appended in one step.
type Batch struct {
	At      time.Time // when the batch was written, by its writer's clock, to the millisecond
	Records []Record
}

// A Record is one fact of a journal. The types of this package that have a
// Kind method are all there are.
type Record interface {
	Kind() Kind
}

// Kind names a type of record.
type Kind string

// The kinds of record.
const (
	KindBorn         Kind = "born"
	KindAdmitted     Kind = "admitted"
	KindAbort        Kind = "abort"
	KindAttempt      Kind = "attempt"
	KindRelease      Kind = "release"
	KindEntry        Kind = "entry"
	KindSeam         Kind = "seam"
	KindState        Kind = "state"
	KindStep         Kind = "step"
	KindData         Kind = "data"
	KindMetadata     Kind = "meta"
	KindResources    Kind = "resources"
	KindTurnStarted  Kind = "turn_started"
	KindTurnDelta    Kind = "turn_delta"
	KindTurnDone     Kind = "turn_done"
	KindFallback     Kind = "fallback"
	KindCalled       Kind = "called"
	KindOutcome      Kind = "outcome"
	KindToolBatch    Kind = "batch"
	KindSettled      Kind = "settled"
	KindRepair       Kind = "repair"
	KindCompacted    Kind = "compacted"
	KindUncompacted  Kind = "uncompacted"
	KindSummarizing  Kind = "summarizing"
	KindUnsummarized Kind = "unsummarized"
)

// An Unknown is a record of a kind or version that this package does not know.
type Unknown struct {
	Name     Kind
	Version  int  // counts from 1
	Optional bool // the writer says that a reader may pass over it
	Data     jsontext.Value
}

// Kind returns the name that the record was written with.
func (u *Unknown) Kind() Kind { return u.Name }

// Encode returns the stored form of b, which is always valid UTF-8. It fails
// if a record is nil or holds raw JSON that is not JSON.
//
// What a record holds may have any origin, so nothing in it is taken for
// granted. A byte of a string that is not UTF-8 becomes U+FFFD. Raw JSON is
// kept as it is, with the order and the repetition of names, the text of
// numbers and the escapes of strings; only the space between tokens is dropped.
func Encode(b Batch) ([]byte, error) {
	env := envelope{Version: FormatVersion, At: b.At.UnixMilli(), Records: make([]item, len(b.Records))}
	for i, r := range b.Records {
		if r == nil {
			return nil, fmt.Errorf("encoding a batch: record %d is nil", i)
		}
		env.Records[i] = pack(r)
	}
	out, err := json.Marshal(&env, stored)
	if err != nil {
		for _, it := range env.Records {
			if _, bad := json.Marshal(&it, stored); bad != nil {
				return nil, fmt.Errorf("encoding a record of kind %s: %w", it.Kind, bad)
			}
		}
		return nil, fmt.Errorf("encoding a batch: %w", err)
	}
	if !utf8.Valid(out) { // within a string of raw JSON
		out = bytes.ToValidUTF8(out, []byte("\uFFFD"))
	}
	return out, nil
}

// A FormatError reports a batch that cannot be read. It never means that the
// batch is merely newer in a way that may be ignored.
type FormatError struct {
	Reason string
	Err    error
	Newer  bool // a newer version has written the batch, which need not be damaged
}

func (e *FormatError) Error() string {
	if e.Err != nil {
		return "journal batch cannot be read: " + e.Reason + ": " + e.Err.Error()
	}
	return "journal batch cannot be read: " + e.Reason
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// Decode reads the stored form of a batch. It fails with a [*FormatError]. The
// batch does not share memory with data.
func Decode(data []byte) (Batch, error) {
	if !utf8.Valid(data) {
		return Batch{}, &FormatError{Reason: "not UTF-8"}
	}
	var env envelope
	err := json.Unmarshal(data, &env, stored)
	if err != nil {
		// Another version may have another form: say so rather than what
		// does not fit this one.
		var other struct {
			Version int `json:"v"`
		}
		if json.Unmarshal(data, &other, stored) != nil || other.Version == FormatVersion || other.Version == 0 {
			return Batch{}, &FormatError{Reason: "malformed", Err: err}
		}
		env.Version = other.Version
	}
	if env.Version != FormatVersion {
		return Batch{}, &FormatError{
			Reason: fmt.Sprintf("format %d, this version reads %d", env.Version, FormatVersion), Newer: env.Version > FormatVersion,
		}
	}
	b := Batch{At: time.UnixMilli(env.At).UTC(), Records: make([]Record, len(env.Records))}
	for i, it := range env.Records {
		b.Records[i] = it.Data.(Record)
	}
	return b, nil
}

// newRecord returns an empty record of the kind, or nil if there is none.
func newRecord(k Kind) Record {
	switch k {
	case KindBorn:
		return new(Born)
	case KindAdmitted:
		return new(Admitted)
	case KindAbort:
		return new(Abort)
	case KindAttempt:
		return new(Attempt)
	case KindRelease:
		return new(Release)
	case KindEntry:
		return new(Entry)
	case KindSeam:
		return new(Seam)
	case KindState:
		return new(State)
	case KindStep:
		return new(Step)
	case KindData:
		return new(Data)
	case KindMetadata:
		return new(Metadata)
	case KindFallback:
		return new(Fallback)
	case KindResources:
		return new(Resources)
	case KindTurnStarted:
		return new(TurnStarted)
	case KindTurnDelta:
		return new(TurnDelta)
	case KindTurnDone:
		return new(TurnDone)
	case KindCalled:
		return new(Called)
	case KindOutcome:
		return new(Outcome)
	case KindToolBatch:
		return new(ToolBatch)
	case KindSettled:
		return new(Settled)
	case KindRepair:
		return new(Repair)
	case KindCompacted:
		return new(Compacted)
	case KindUncompacted:
		return new(Uncompacted)
	case KindSummarizing:
		return new(Summarizing)
	case KindUnsummarized:
		return new(Unsummarized)
	}
	return nil
}
