package store

import (
	"context"
	"time"
)

// A Sharer is a store that several processes may have open at the same time. It
// tells each of them what the others do.
//
// Whether work is done does not depend on it: signals are hints that may be lost,
// come twice, late, or in any order. Heads, Owned and Unowned are the truth behind
// them, for whoever looks from time to time.
//
// A wrapper of a store that turns out to be none of these fails all calls of this
// interface with errors.ErrUnsupported.
type Sharer interface {
	Store

	// Listen calls fn with signals until ctx ends, and returns ctx's error then.
	// It never calls fn concurrently. When it begins, and whenever it may have
	// missed some, it calls fn with a signal of the kind Missed. Signals of this
	// process's own doing may come too. Of Grown and Watched those may be left out
	// that are of instances which this process does not own, and has neither written
	// to nor named to Watch lately.
	//
	// It goes on through failures of the store by itself. It fails with
	// ErrClosed, or with errors.ErrUnsupported if this store's server cannot
	// send signals: then there are only the truths to look at, and Listen may be
	// called again after a while, in case that has changed.
	Listen(ctx context.Context, fn func(Signal)) error

	// Watch tells the owners of instances that somebody reads them live in
	// another process, by a signal of the kind Watched. From then on this process
	// hears of them.
	Watch(ctx context.Context, addrs []Address) error

	// Heads returns the newest offsets of the instances, in their order, with -1
	// for one that does not exist.
	Heads(ctx context.Context, addrs []Address) ([]int64, error)

	// Owned returns up to limit of the instances that have unsettled submissions
	// and are owned by node, ordered like those of a [Lister] and after the given
	// address. It is what a process compares with what it knows: an answer to
	// Claim may have been lost, and intake of others may not have been told of.
	Owned(ctx context.Context, node string, after Address, limit int) ([]Owned, error)

	// Unowned returns how many instances of the agents, or of all if none is named,
	// have unsettled submissions and no live owner: what Claim would give away. It
	// may stop counting at the limit.
	Unowned(ctx context.Context, limit int, agents ...string) (int, error)
}

// An Owned is an instance that a node owns.
type Owned struct {
	Lease
	Head int64
}

// A Signal says that something may have happened to an instance.
type Signal struct {
	Kind SignalKind
	Address
	Head int64 // of Grown: an offset that the journal has reached
}

// A SignalKind says what may have happened.
type SignalKind int

const (
	// Missed means that signals may have been missed. It has no address.
	Missed SignalKind = iota
	// Grown means that the journal has grown.
	Grown
	// Freed means that the instance has unsettled submissions and no owner. The
	// address may be missing.
	Freed
	// Watched means that somebody reads the journal live in another process.
	Watched
)

// A Timekeeper is a store that says what time it is. The clocks of the processes that
// share it may differ, so they go by its clock in what one of them writes down and
// another one acts on, such as the time until which a message may take.
type Timekeeper interface {
	// RenewAt is Renew, and returns a time that the store's clock has shown during the
	// call. A wrapper of a store that is no Timekeeper returns the zero time.
	RenewAt(ctx context.Context, node string, ttl time.Duration) (time.Time, error)
}

// A Surveyor is a store that can say who works on what, for the tools of an
// operator of several processes.
type Surveyor interface {
	// Nodes returns the nodes that the store knows, ordered by their names. Those
	// whose leases have lapsed long ago may be missing.
	Nodes(ctx context.Context) ([]Node, error)

	// Work returns up to limit instances that have unsettled submissions, those
	// that wait for longest first.
	Work(ctx context.Context, limit int) ([]Work, error)
}

// A Node is a process that has held a node lease.
type Node struct {
	Name    string
	Left    time.Duration // until its lease lapses; negative since it has
	Owned   int           // instances
	Working int           // of those, with unsettled submissions
}

// A Work is an instance with unsettled submissions.
type Work struct {
	Instance
	Owner   string // the node that owns it; empty if none does
	Epoch   int64
	Live    bool          // the owner's lease has not lapsed
	Waiting time.Duration // since it had no unsettled submission, or since the latest settlement, by the store's clock
}

// A Seizer is a store of which an operator can take an instance away from a process
// that lives, as to repair it.
type Seizer interface {
	// Seize is Take, but no live owner is a reason to refuse: the instance goes to
	// node under a new epoch, and the lease of whoever owned it is not current any
	// more. That one is not told; its next write is refused. What it does outside
	// meanwhile nobody can stop, so this is for instances on which no work may go on.
	Seize(ctx context.Context, node string, addr Address) (Lease, error)
}
