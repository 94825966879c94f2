package crashtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/flue-go/flue/internal/linear"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// A holder is the store of a replica. It writes down what the replica does with
// the ownership of instances, before and after it does it, so that what a killed
// process was about to do is known too. Each line is
//
//	number  Unix nanoseconds  what  epoch  instance
//
// Two lines with one number are a call and its return.
type holder struct {
	*postgres.Store
	out   *os.File
	calls atomic.Int64
}

// What a line may say beside the kinds of linear.Hold.
const (
	holdClaim = "claim" // a call that may take any instance
	holdGiven = "given" // one that it took
	holdDone  = "done"
	holdNone  = "none" // it has changed nothing
	holdFence = "fenced"
	holdLost  = "lost" // nobody knows what has happened
)

func (h *holder) line(n int64, what string, epoch int64, instance string) {
	_, _ = fmt.Fprintf(h.out, "%d %d %s %d %s\n", n, time.Now().UnixNano(), what, epoch, instance)
}

func (h *holder) begin(what string, epoch int64, instance string) (n int64) {
	n = h.calls.Add(1)
	h.line(n, what, epoch, instance)
	return n
}

// end says how a call has come out.
func (h *holder) end(n, epoch int64, instance string, err error) {
	what := holdDone
	var condition *store.ConditionError
	switch {
	case errors.Is(err, store.ErrFenced):
		what = holdFence
	case errors.Is(err, store.ErrOwned), errors.Is(err, store.ErrNoLease), errors.Is(err, store.ErrNotFound),
		errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrSettled), errors.As(err, &condition):
		what = holdNone
	case err != nil:
		what = holdLost
	}
	h.line(n, what, epoch, instance)
}

func (h *holder) Append(ctx context.Context, l store.Lease, w store.Write) (int64, error) {
	n := h.begin(linear.Append, l.Epoch, l.String())
	offset, err := h.Store.Append(ctx, l, w)
	h.end(n, l.Epoch, l.String(), err)
	return offset, err
}

func (h *holder) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	n := h.begin(linear.Take, 0, a.String())
	r, err := h.Store.Admit(ctx, a)
	switch {
	case r.Lease != nil:
		h.end(n, r.Lease.Epoch, a.String(), err)
	case err == nil:
		h.line(n, holdNone, 0, a.String())
	default:
		h.end(n, 0, a.String(), err)
	}
	return r, err
}

func (h *holder) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	n := h.begin(linear.Take, 0, addr.String())
	l, err := h.Store.Take(ctx, node, addr)
	h.end(n, l.Epoch, addr.String(), err)
	return l, err
}

func (h *holder) Claim(ctx context.Context, node string, limit int, agents ...string) ([]store.Lease, error) {
	n := h.begin(holdClaim, 0, "any")
	ls, err := h.Store.Claim(ctx, node, limit, agents...)
	for _, l := range ls {
		h.line(n, holdGiven, l.Epoch, l.String())
	}
	h.end(n, 0, "any", err)
	return ls, err
}

func (h *holder) Release(ctx context.Context, ls ...store.Lease) error {
	var ns []int64
	for _, l := range ls {
		ns = append(ns, h.begin(linear.Release, l.Epoch, l.String()))
	}
	err := h.Store.Release(ctx, ls...)
	for i, l := range ls {
		h.end(ns[i], l.Epoch, l.String(), err)
	}
	return err
}

// holds is what replicas have done with ownership.
type holds struct {
	history []porcupine.Operation
	owner   map[string]map[int64]string // of each instance, by epoch: the node that took it
	given   map[string]map[int64]bool   // of each instance, the epochs that were given back
	lost    []porcupine.Operation       // claims that nobody knows the outcome of

	appended map[string]map[int64]appends // of each instance, by epoch
}

// appends are when the first and the last append of an owner began.
type appends struct{ first, last time.Time }

// read adds what a node has written.
func (h *holds) read(node, file string) error {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was killed before it came to it
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	open := make(map[int64]porcupine.Operation)
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return err
			}
			break
		}
		if err := h.line(node, lines.Text(), open); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, op := range open { // it was killed in the middle
		h.end(node, op, holdLost, 0, "")
	}
	return nil
}

func (h *holds) line(node, text string, open map[int64]porcupine.Operation) error {
	var n, at, epoch int64
	var what string
	head, instance, ok := cutFields(text, 4)
	if _, err := fmt.Sscan(head, &n, &at, &what, &epoch); err != nil || !ok {
		return fmt.Errorf("line %q: %w", text, err)
	}
	op, returns := open[n]
	if !returns {
		open[n] = porcupine.Operation{Input: linear.Hold{Instance: instance, Kind: what, Epoch: epoch}, Call: at}
		return nil
	}
	op.Return = at
	if what == holdGiven {
		op.Input = linear.Hold{Instance: instance, Kind: linear.Take}
		h.end(node, op, holdDone, epoch, instance)
		return nil
	}
	delete(open, n)
	h.end(node, op, what, epoch, instance)
	return nil
}

// cutFields cuts behind so many fields that are set apart by single blanks.
func cutFields(text string, n int) (head, rest string, ok bool) {
	i := 0
	for range n {
		j := strings.IndexByte(text[i:], ' ')
		if j < 0 {
			return text, "", false
		}
		i += j + 1
	}
	return text[:i], text[i:], true
}

// end adds an operation that has come out in the way.
func (h *holds) end(node string, op porcupine.Operation, what string, epoch int64, instance string) {
	in := op.Input.(linear.Hold)
	switch {
	case what == holdNone:
		return
	case what == holdLost:
		op.Output, op.Return = linear.Held{Unknown: true}, linear.Infinity
		if in.Kind == holdClaim {
			h.lost = append(h.lost, op)
			return
		}
	case in.Kind == holdClaim:
		return // what it took has lines of its own
	case what == holdFence:
		op.Output = linear.Held{Fenced: true}
	case in.Kind == linear.Take:
		op.Output = linear.Held{Epoch: epoch}
		if h.owner == nil {
			h.owner = make(map[string]map[int64]string)
		}
		if h.owner[instance] == nil {
			h.owner[instance] = make(map[int64]string)
		}
		h.owner[instance][epoch] = node
	default:
		op.Output = linear.Held{}
		switch in.Kind {
		case linear.Release:
			h.giveBack(in.Instance, in.Epoch)
		case linear.Append:
			h.append(in.Instance, in.Epoch, time.Unix(0, op.Call))
		}
	}
	h.history = append(h.history, op)
}

func (h *holds) giveBack(instance string, epoch int64) {
	if h.given == nil {
		h.given = make(map[string]map[int64]bool)
	}
	if h.given[instance] == nil {
		h.given[instance] = make(map[int64]bool)
	}
	h.given[instance][epoch] = true
}

// append notes an append that was asked for at the time, and done. What a process does
// for an instance comes one after the other.
func (h *holds) append(instance string, epoch int64, asked time.Time) {
	if h.appended == nil {
		h.appended = make(map[string]map[int64]appends)
	}
	if h.appended[instance] == nil {
		h.appended[instance] = make(map[int64]appends)
	}
	a, ok := h.appended[instance][epoch]
	if !ok {
		a.first = asked
	}
	a.last = asked
	h.appended[instance][epoch] = a
}

// operations are what is to be judged. A claim that was lost may have taken any
// instance.
func (h *holds) operations() []porcupine.Operation {
	ops := h.history
	seen := make(map[string]bool)
	for _, op := range h.history {
		seen[op.Input.(linear.Hold).Instance] = true
	}
	for _, claim := range h.lost {
		for instance := range seen {
			claim.Input = linear.Hold{Instance: instance, Kind: linear.Take}
			ops = append(ops, claim)
		}
	}
	return linear.Takes(ops)
}
