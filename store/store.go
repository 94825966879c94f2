// Package store defines what the engine needs of a place that keeps journals.
//
// A store keeps one append-only journal for each instance, as opaque batches
// under consecutive offsets, and beside it a small index: who owns the
// instance, which submissions it has accepted and which of those are settled.
// The journal is the truth; every column of the index can be rebuilt from it.
//
// There are two classes of writer. Intake ([Store.Admit], [Store.Abort]) may be
// done by any process at any time and disturbs nobody. Everything else is
// written with [Store.Append] by the one owner of the instance, under an epoch
// that the store checks inside the write itself: of two processes that both
// believe they own an instance, only the one with the newer epoch can write.
//
// Package storetest checks an implementation against this contract.
package store

import (
	"context"
	"errors"
	"time"
)

// A Store keeps journals. Implementations must be safe for concurrent use.
//
// Arguments out of bounds (see MaxBatch and the limits beside it) are refused
// with ErrInvalid or ErrTooLarge before anything else is looked at. A store
// keeps no reference to what it is given once the call has returned, and a
// caller must not change the bytes that a store returns.
//
// Contexts: a call whose context has ended before the store began to work on
// it does nothing and returns the context's error. Once a write has begun, a
// store waits for its outcome as long as it can learn it, so that the caller
// knows what happened.
//
// Durability: when Admit, Abort or Append returns nil, what it wrote survives
// the death of the process and of the machine, as far as the store promises
// durability at all. When one returns an error that is not a refusal listed at
// the method, the write may or may not have happened.
type Store interface {
	// Admit accepts one submission: it creates the instance if there is none
	// and the condition allows it, stores the attachments, and appends the
	// submission's batch. All of it happens or none.
	//
	// Admitting a submission id again is not an error when the identity is the
	// same: the first receipt is returned with Duplicate set, and nothing is
	// written, whatever the condition says. With another identity it is
	// refused with ErrConflict.
	//
	// It is refused with a *ConditionError when the condition does not hold.
	//
	// An attachment whose id the instance already has is the same attachment,
	// and is stored once. If its digest differs, the admission is refused with
	// ErrConflict.
	Admit(ctx context.Context, a *Admission) (Receipt, error)

	// Abort appends payload to the instance's journal if the instance has
	// unsettled submissions, and reports whether it did. An instance that does
	// not exist has none.
	Abort(ctx context.Context, addr Address, payload []byte) (bool, error)

	// Append appends one batch as the owner and returns its offset. Batches
	// that were taken in since the owner last looked lie between its previous
	// offset and this one.
	//
	// It is refused with ErrFenced if lease is not the instance's current
	// ownership, with ErrSettled if it settles a submission that is unknown or
	// already settled, and with ErrConflict if an attachment's id stands for
	// other bytes. A refused append writes nothing.
	Append(ctx context.Context, lease Lease, w Write) (int64, error)

	// Read returns up to limit batches with offsets greater than after, in
	// order and without a gap; after is -1 to read from the start. The page's
	// Instance is as of the same moment. It fails with ErrNotFound if there is
	// no such instance.
	//
	// Without a gap means that each batch begins where the one before it ends,
	// see [Batch.Last]. If after lies within what one batch stands for, the first
	// one is that behind it: its offset is then not after+1, which says that what
	// lay between is not to be had any more.
	//
	// A page also ends before its payloads exceed PageBytes, but holds at least
	// one batch if there is one: a reader has reached the end when the last
	// offset it has seen is the page's Head, not when a page is short. A limit
	// below one leaves only that bound.
	Read(ctx context.Context, addr Address, after int64, limit int) (Page, error)

	// Instance returns the instance's index row, or ErrNotFound.
	Instance(ctx context.Context, addr Address) (Instance, error)

	// Submission returns the index row of one submission, or ErrNotFound.
	Submission(ctx context.Context, addr Address, id string) (Submission, error)

	// Attachment returns an attachment of the instance by its id. It fails
	// with ErrNotFound if there is none and with ErrCorrupt if the stored bytes
	// do not match their digest.
	Attachment(ctx context.Context, addr Address, id string) (Attachment, error)

	// Claim gives node the ownership of up to limit instances that have
	// unsettled submissions and no live owner, each under a new epoch. If agents
	// are named, only their instances count: of processes that share a store, not
	// all need have the same agents. A [Sharer] gives those first that have waited
	// longest: since they had nothing unsettled, or since the latest settlement. It
	// is refused with ErrNoLease unless the node holds a node lease, see Renew.
	Claim(ctx context.Context, node string, limit int, agents ...string) ([]Lease, error)

	// Take gives node the ownership of one instance under a new epoch,
	// whether or not it has work. It is refused with ErrOwned while another
	// node with a live lease owns it, with ErrNoLease unless the node holds a
	// node lease, and with ErrNotFound if there is no such instance. A node may
	// take over from itself, which fences its own earlier lease.
	Take(ctx context.Context, node string, addr Address) (Lease, error)

	// Renew makes node's lease last for ttl from now, by the store's clock,
	// creating it if need be. One lease covers all instances that node owns;
	// when it lapses they may all be claimed by others. Time only decides when
	// a takeover may be tried: until it happens, the leases stay current.
	Renew(ctx context.Context, node string, ttl time.Duration) error

	// Release gives up the ownership of the leased instances so that they can
	// be claimed at once. Leases that are no longer current are skipped.
	Release(ctx context.Context, leases ...Lease) error

	// Close waits for the calls in flight and releases what the store holds.
	// Calls after it fail with ErrClosed; closing again does nothing.
	Close() error
}

// An Address names an instance.
type Address struct {
	Agent string // the agent's durable name
	ID    string // chosen by the caller
}

func (a Address) String() string { return "agents/" + a.Agent + "/" + a.ID }

// A Condition says for which instances an admission is meant.
type Condition struct {
	// Create is true if the admission is only for an instance that does not
	// exist yet.
	Create bool
	// UID, if not empty, is the incarnation that must exist.
	UID string
}

// An Admission is one submission to accept.
type Admission struct {
	Address
	Condition Condition

	Submission string    // the submission's id, unique within the instance
	Identity   []byte    // a digest of what the sender said; compared on replay
	AcceptedAt time.Time // stored with the submission, in UTC, to the microsecond
	Payload    []byte    // the batch to append

	// Birth is what to write if this admission creates the instance. Its
	// payload becomes batch 0 and the submission's batch follows it. If Birth
	// is nil the instance must exist; the admission is otherwise refused with
	// a *ConditionError.
	Birth *Birth

	Attachments []Attachment

	// Node, if not empty, names the caller. If the instance has no live owner
	// and the node holds a node lease, the instance is given to that node in
	// the same step, as Take would, so that a message to an idle instance needs
	// no second write to be worked on. A replayed admission gives nothing.
	Node string
}

// A Birth describes a new instance.
type Birth struct {
	UID         string
	Incarnation string
	Payload     []byte
}

// A Receipt is the answer to an admission. Replays of an admission get the
// same one, except for Duplicate and Lease.
type Receipt struct {
	Submission string
	UID        string
	AcceptedAt time.Time
	Before     int64  // the newest offset before the submission's batch
	Offset     int64  // the offset of the submission's batch
	Created    bool   // this admission created the instance
	Duplicate  bool   // the submission had been accepted before
	Lease      *Lease // the ownership given with it, see Admission.Node
}

// A Lease is the ownership of one instance. It is current until a newer epoch
// exists.
type Lease struct {
	Address
	Node  string
	Epoch int64
}

// A Write is what an owner appends.
type Write struct {
	Payload []byte
	Settle  []Settlement // submissions that this batch settles

	// Attachments are stored with the batch, under the rules of Admit.
	Attachments []Attachment
}

// A Settlement ends one submission.
type Settlement struct {
	Submission string
	Outcome    string
}

// A Page is a run of batches.
type Page struct {
	Instance
	Batches []Batch
}

// A Batch is what was appended in one step.
type Batch struct {
	Offset  int64
	Epoch   int64 // of the owner that wrote it; 0 for intake
	Payload []byte

	// Span is how many offsets after its own the batch stands for, whose batches
	// it has taken the place of. It is 0 unless the store is a [Pruner].
	Span int64
}

// Last returns the last offset that the batch stands for.
func (b Batch) Last() int64 { return b.Offset + b.Span }

// An Instance is an instance's index row.
type Instance struct {
	Address
	UID         string
	Incarnation string
	Head        int64 // the newest offset
	Unsettled   int   // accepted submissions without a settlement
}

// A Submission is a submission's index row.
type Submission struct {
	ID         string
	Offset     int64 // of the batch that admitted it
	AcceptedAt time.Time
	Outcome    string // empty while it is not settled
	SettledAt  int64  // the offset of the batch that settled it, when it is
}

// An Attachment is a file that came with a submission. Its bytes never change.
type Attachment struct {
	ID        string // unique within the instance
	MediaType string
	Filename  string
	Digest    [32]byte // SHA-256 of Data
	Data      []byte
}

// A Lister is a store that can say what it holds, for the tools of an operator.
type Lister interface {
	// Instances returns up to limit instances whose addresses come after the
	// given one, ordered by agent and then by id, both byte by byte. The zero
	// Address comes before all. A limit below one returns none. One whose
	// journal is so damaged that it has no head is listed with a Head of -1.
	Instances(ctx context.Context, after Address, limit int) ([]Instance, error)

	// Unsettled returns the submissions of an instance that are not settled, in
	// the order of their admission. It fails with ErrNotFound if there is no
	// such instance.
	Unsettled(ctx context.Context, addr Address) ([]Submission, error)
}

// Errors that a caller branches on.
var (
	// ErrNotFound means that there is no such instance, submission or attachment.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict means that the submission id was used before for something else.
	ErrConflict = errors.New("store: submission id was accepted with another content")
	// ErrFenced means that the lease is not current: someone else owns the instance.
	ErrFenced = errors.New("store: ownership lost")
	// ErrOwned means that a live node owns the instance.
	ErrOwned = errors.New("store: instance is owned by a live node")
	// ErrSettled means that a submission is unknown or already settled.
	ErrSettled = errors.New("store: submission is not open")
	// ErrCorrupt means that stored bytes are not what was written.
	ErrCorrupt = errors.New("store: stored data is damaged")
	// ErrFormat means that the data was written in a format this version cannot read.
	ErrFormat = errors.New("store: unknown data format")
	// ErrLocked means that another process has the store open.
	ErrLocked = errors.New("store: in use by another process")
	// ErrReadOnly means that the store was opened for reading only.
	ErrReadOnly = errors.New("store: opened for reading only")
	// ErrNoLease means that the node's own lease is missing or has lapsed.
	ErrNoLease = errors.New("store: node has no live lease")
	// ErrUnavailable means that the store cannot be reached, or does not answer in
	// time, for a reason that may pass: another try may succeed. If the call was a
	// write, it may have been done all the same. A store that is a file of this
	// process has no use for it.
	ErrUnavailable = errors.New("store: cannot be reached")
	// ErrClosed means that the store has been closed.
	ErrClosed = errors.New("store: closed")
	// ErrPoisoned means that an earlier write went wrong in a way that leaves
	// its durability unknown. The store accepts no write until it is reopened.
	ErrPoisoned = errors.New("store: refuses writes after a failed one")
	// ErrInvalid means that an argument is not acceptable, whatever is stored.
	ErrInvalid = errors.New("store: invalid argument")
	// ErrTooLarge means that an argument exceeds a limit of this package.
	ErrTooLarge = errors.New("store: too large")
)

// A ConditionError says why an admission's condition does not hold.
type ConditionError struct {
	Address
	Exists bool   // there is an instance
	UID    string // its uid, when there is one
}

func (e *ConditionError) Error() string {
	if e.Exists {
		return "store: instance " + e.Address.String() + " exists with uid " + e.UID
	}
	return "store: instance " + e.Address.String() + " does not exist"
}
