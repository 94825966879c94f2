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
// The package does no I/O, so that anything can read a journal for ever.
package journal

import (
	"fmt"
	"time"

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
	KindBorn        Kind = "born"
	KindAdmitted    Kind = "admitted"
	KindAbort       Kind = "abort"
	KindAttempt     Kind = "attempt"
	KindRelease     Kind = "release"
	KindEntry       Kind = "entry"
	KindSeam        Kind = "seam"
	KindState       Kind = "state"
	KindTurnStarted Kind = "turn_started"
	KindTurnDelta   Kind = "turn_delta"
	KindTurnDone    Kind = "turn_done"
	KindOutcome     Kind = "outcome"
	KindToolBatch   Kind = "batch"
	KindSettled     Kind = "settled"
)

// An Unknown is a record of a kind or version that this package does not know.
type Unknown struct {
	Name     Kind
	Version  int
	Optional bool // the writer says that a reader may pass over it
	Data     jsontext.Value
}

// Kind returns the name that the record was written with.
func (u *Unknown) Kind() Kind { return u.Name }

// envelope is the stored form of a batch, and item that of a record.
type envelope struct {
	Version int    `json:"v"`
	At      int64  `json:"at"` // Unix milliseconds
	Records []item `json:"r"`
}

type item struct {
	Kind     Kind           `json:"k"`
	Version  int            `json:"v,omitzero"` // absent means 1
	Optional bool           `json:"opt,omitzero"`
	Data     jsontext.Value `json:"d"`
}

// Encode returns the stored form of b.
func Encode(b Batch) ([]byte, error) {
	env := envelope{Version: FormatVersion, At: b.At.UnixMilli(), Records: make([]item, len(b.Records))}
	for i, r := range b.Records {
		if u, ok := r.(*Unknown); ok {
			env.Records[i] = item{Kind: u.Name, Version: u.Version, Optional: u.Optional, Data: u.Data}
			continue
		}
		data, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encoding a %s record: %w", r.Kind(), err)
		}
		env.Records[i] = item{Kind: r.Kind(), Data: data}
	}
	out, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("encoding a batch: %w", err)
	}
	return out, nil
}

// A FormatError reports a batch that cannot be read. It never means that the
// batch is merely newer in a way that may be ignored.
type FormatError struct {
	Reason string
	Err    error
}

func (e *FormatError) Error() string {
	if e.Err != nil {
		return "journal batch cannot be read: " + e.Reason + ": " + e.Err.Error()
	}
	return "journal batch cannot be read: " + e.Reason
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// Decode reads the stored form of a batch. It fails with a [*FormatError].
func Decode(data []byte) (Batch, error) {
	var env envelope
	if err := json.Unmarshal(data, &env); err != nil {
		return Batch{}, &FormatError{Reason: "not a batch", Err: err}
	}
	if env.Version != FormatVersion {
		return Batch{}, &FormatError{Reason: fmt.Sprintf("batch format %d, this version reads %d", env.Version, FormatVersion)}
	}
	b := Batch{At: time.UnixMilli(env.At).UTC(), Records: make([]Record, len(env.Records))}
	for i, it := range env.Records {
		r := newRecord(it.Kind)
		if r == nil || it.Version > 1 {
			b.Records[i] = &Unknown{Name: it.Kind, Version: it.Version, Optional: it.Optional, Data: it.Data}
			continue
		}
		if err := json.Unmarshal(it.Data, r); err != nil {
			return Batch{}, &FormatError{Reason: fmt.Sprintf("record %d, a %s", i, it.Kind), Err: err}
		}
		b.Records[i] = r
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
	case KindTurnStarted:
		return new(TurnStarted)
	case KindTurnDelta:
		return new(TurnDelta)
	case KindTurnDone:
		return new(TurnDone)
	case KindOutcome:
		return new(Outcome)
	case KindToolBatch:
		return new(ToolBatch)
	case KindSettled:
		return new(Settled)
	}
	return nil
}
