// Package faultstore wraps a store to count what is written and to make it
// fail at chosen writes, for tests of what runs on a store.
//
// A write that fails with anything but a refusal may or may not have happened.
// The modes are what can be true of it: it never happens, it has happened, it
// happens later, when nobody expects it, or half of it has happened.
//
//	fs := faultstore.New(memstore.New())
//	fs.Crash(3, faultstore.After) // the third write lands; then nothing works any more
package faultstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
)

// ErrInjected is what calls fail with because a test said so.
var ErrInjected = errors.New("faultstore: injected failure")

// ErrCrashed is what calls fail with after a crash. It is an ErrInjected.
var ErrCrashed = fmt.Errorf("%w: crashed", ErrInjected)

// An Op is a kind of write.
type Op string

// The kinds of write.
const (
	Admit  Op = "admit"
	Abort  Op = "abort"
	Append Op = "append"
)

// The kinds of upkeep. It changes nothing that a journal says and may come at
// any time, so it is counted apart from the writes and the hook is not called.
const (
	Checkpoint Op = "checkpoint"
	Prune      Op = "prune"
)

// A Mode says what becomes of a write that fails.
type Mode string

// The modes of failure.
const (
	// Before fails the write and does not do it.
	Before Mode = "before"
	// After does the write and reports a failure: its acknowledgement is lost.
	After Mode = "after"
	// Torn does the write with the first half of its payload, and fails it: what
	// a store must never do, and a reader must notice.
	Torn Mode = "torn"
	// Late fails the write and does it before the next call, or at Flush. It
	// may be refused then, like any write.
	Late Mode = "late"
)

// A Point is a moment in a write at which a [Hook] is called.
type Point struct {
	Op      Op
	Address store.Address
	N       int  // this is the n-th write of the wrapper, from 1
	Done    bool // the write has been done; otherwise it is about to be
	Err     error
}

// A Hook is called before and after each write, on the writer's goroutine. It
// may block. If it returns an error before the write, the write is not done and
// fails with that error; after a write, the error replaces the write's.
type Hook func(ctx context.Context, p Point) error

// Counts says how often something happened.
type Counts struct {
	Admit, Abort, Append int
}

// Total is the sum of all kinds.
func (c Counts) Total() int { return c.Admit + c.Abort + c.Append }

func (c *Counts) add(op Op) {
	switch op {
	case Admit:
		c.Admit++
	case Abort:
		c.Abort++
	case Append:
		c.Append++
	}
}

var (
	_ store.Store        = (*Store)(nil)
	_ store.Checkpointer = (*Store)(nil)
	_ store.Pruner       = (*Store)(nil)
	_ store.Timekeeper   = (*Store)(nil)
)

// A Store passes calls on to another store. It is safe for concurrent use. Of
// the optional interfaces it offers those for upkeep and for several processes; what
// the other store does not offer fails with errors.ErrUnsupported.
type Store struct {
	inner store.Store

	flushing sync.Mutex

	mu      sync.Mutex
	calls   Counts
	written Counts
	plan    map[int]failure // by the number of the write
	upkeep  int             // how often upkeep was asked for
	spoilt  map[int]failure // by the number of the upkeep
	crashed bool
	late    []func()
	hook    Hook
	storm   *storm
	cut     *cut
	refusal error // of renewals
	signals Signals
	rng     *rand.Rand // for the fate of signals
}

type failure struct {
	mode  Mode
	crash bool
}

// New returns a wrapper of s that does not fail yet.
func New(s store.Store) *Store {
	return &Store{inner: s, plan: make(map[int]failure), spoilt: make(map[int]failure), rng: rand.New(rand.NewPCG(0, 0))}
}

// Fail makes the n-th write from now, counted from 1, fail in the given mode.
// It may be called for several writes.
func (s *Store) Fail(n int, m Mode) { s.at(n, failure{mode: m}) }

// Crash is like Fail, and makes every later call fail with ErrCrashed, except
// Close, as if the process had died at that write. To go on, wrap the
// underlying store again.
func (s *Store) Crash(n int, m Mode) { s.at(n, failure{mode: m, crash: true}) }

func (s *Store) at(n int, f failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan[s.calls.Total()+n] = f
}

// CrashUpkeep is Crash for the n-th upkeep from now.
func (s *Store) CrashUpkeep(n int, m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoilt[s.upkeep+n] = failure{mode: m, crash: true}
}

// CrashNow makes every later call fail with ErrCrashed, except Close.
func (s *Store) CrashNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashed = true
}

// Crashed reports whether a planned crash has happened.
func (s *Store) Crashed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crashed
}

// SetHook makes fn the hook of all later writes; nil removes it.
func (s *Store) SetHook(fn Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = fn
}

// Calls returns how many writes were asked for.
func (s *Store) Calls() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Written returns how many writes the underlying store has made durable:
// refused ones, replayed admissions and aborts without effect do not count.
func (s *Store) Written() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// Upkeep returns how often upkeep was asked for.
func (s *Store) Upkeep() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upkeep
}

// Flush does the late writes that are still due. When it returns they are done,
// whoever does them.
func (s *Store) Flush() {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	for _, do := range late {
		do()
	}
}

// write runs do, which returns whether it wrote anything.
func write[T any](ctx context.Context, s *Store, op Op, addr store.Address, do func(ctx context.Context, torn bool) (v T, wrote bool, err error)) (T, error) {
	var zero T
	s.Flush()
	s.mu.Lock()
	if s.crashed {
		s.mu.Unlock()
		return zero, ErrCrashed
	}
	s.calls.add(op)
	n := s.calls.Total()
	f, failing := s.plan[n]
	s.crashed = f.crash
	hook := s.hook
	if m, struck := s.storm.strike(); struck && !failing {
		if op == Append && s.storm.fences() {
			s.mu.Unlock()
			return zero, fmt.Errorf("%w: append to %v: %w", ErrInjected, addr, store.ErrFenced)
		}
		f, failing = failure{mode: m}, true
	}
	s.mu.Unlock()
	if err := s.weather(ctx); err != nil {
		return zero, err
	}

	p := Point{Op: op, Address: addr, N: n}
	if hook != nil {
		if err := hook(ctx, p); err != nil {
			return zero, err
		}
	}
	run := func(ctx context.Context) (T, error) {
		v, wrote, err := across(ctx, s, func() (v T, wrote bool, err error) { return do(ctx, failing && f.mode == Torn) })
		if wrote {
			s.mu.Lock()
			s.written.add(op)
			s.mu.Unlock()
		}
		return v, err
	}
	v, err := fail(ctx, s, f, failing, run)
	if failing && err == nil {
		err = fmt.Errorf("%w: %s of %v, write %d, %s", ErrInjected, op, addr, n, f.mode)
	}
	if hook != nil {
		p.Done, p.Err = true, err
		if herr := hook(ctx, p); herr != nil {
			err = herr
		}
	}
	if err != nil {
		return zero, err
	}
	return v, nil
}

// fail runs do as its failure says, if it has one.
func fail[T any](ctx context.Context, s *Store, f failure, failing bool, do func(context.Context) (T, error)) (v T, err error) {
	switch {
	case !failing, f.mode == After, f.mode == Torn:
		return do(ctx)
	case f.mode == Late:
		s.mu.Lock()
		s.late = append(s.late, func() { _, _ = do(context.WithoutCancel(ctx)) })
		s.mu.Unlock()
	}
	return v, nil
}

// maintain runs do, which is upkeep.
func (s *Store) maintain(ctx context.Context, op Op, addr store.Address, do func(context.Context) error) error {
	s.Flush()
	s.mu.Lock()
	if s.crashed {
		s.mu.Unlock()
		return ErrCrashed
	}
	s.upkeep++
	n := s.upkeep
	f, failing := s.spoilt[n]
	s.crashed = f.crash
	if m, struck := s.storm.strike(); struck && !failing {
		f, failing = failure{mode: m}, true
	}
	s.mu.Unlock()
	if err := s.weather(ctx); err != nil {
		return err
	}
	_, err := fail(ctx, s, f, failing, func(ctx context.Context) (struct{}, error) {
		v, _, err := across(ctx, s, func() (struct{}, bool, error) { return struct{}{}, true, do(ctx) })
		return v, err
	})
	if failing && err == nil {
		err = fmt.Errorf("%w: %s of %v, upkeep %d, %s", ErrInjected, op, addr, n, f.mode)
	}
	return err
}

// half is the payload, or what is left of it when it is torn.
func half(payload []byte, torn bool) []byte {
	if !torn {
		return payload
	}
	return payload[:len(payload)/2]
}

// pass is for calls that are not writes.
func (s *Store) pass(ctx context.Context) error {
	s.Flush()
	if s.Crashed() {
		return ErrCrashed
	}
	if err := s.weather(ctx); err != nil {
		return err
	}
	return s.cross(ctx, Before, After)
}

// Admit implements [store.Store].
func (s *Store) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	// A late write must not depend on what the caller does with its buffers.
	kept := *a
	kept.Payload, kept.Identity = bytes.Clone(a.Payload), bytes.Clone(a.Identity)
	kept.Attachments = slices.Clone(a.Attachments)
	return write(ctx, s, Admit, a.Address, func(ctx context.Context, torn bool) (store.Receipt, bool, error) {
		kept.Payload = half(kept.Payload, torn)
		r, err := s.inner.Admit(ctx, &kept)
		return r, !r.Duplicate, err
	})
}

// Abort implements [store.Store].
func (s *Store) Abort(ctx context.Context, addr store.Address, payload []byte) (bool, error) {
	payload = bytes.Clone(payload)
	return write(ctx, s, Abort, addr, func(ctx context.Context, torn bool) (bool, bool, error) {
		ok, err := s.inner.Abort(ctx, addr, half(payload, torn))
		return ok, ok, err
	})
}

// Append implements [store.Store].
func (s *Store) Append(ctx context.Context, lease store.Lease, w store.Write) (int64, error) {
	w = store.Write{Payload: bytes.Clone(w.Payload), Settle: slices.Clone(w.Settle), Attachments: slices.Clone(w.Attachments)}
	return write(ctx, s, Append, lease.Address, func(ctx context.Context, torn bool) (int64, bool, error) {
		w.Payload = half(w.Payload, torn)
		offset, err := s.inner.Append(ctx, lease, w)
		return offset, true, err
	})
}

// Read implements [store.Store].
func (s *Store) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	if err := s.pass(ctx); err != nil {
		return store.Page{}, err
	}
	return s.inner.Read(ctx, addr, after, limit)
}

// Instance implements [store.Store].
func (s *Store) Instance(ctx context.Context, addr store.Address) (store.Instance, error) {
	if err := s.pass(ctx); err != nil {
		return store.Instance{}, err
	}
	return s.inner.Instance(ctx, addr)
}

// Submission implements [store.Store].
func (s *Store) Submission(ctx context.Context, addr store.Address, id string) (store.Submission, error) {
	if err := s.pass(ctx); err != nil {
		return store.Submission{}, err
	}
	return s.inner.Submission(ctx, addr, id)
}

// Attachment implements [store.Store].
func (s *Store) Attachment(ctx context.Context, addr store.Address, id string) (store.Attachment, error) {
	if err := s.pass(ctx); err != nil {
		return store.Attachment{}, err
	}
	return s.inner.Attachment(ctx, addr, id)
}

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, node string, limit int, agents ...string) ([]store.Lease, error) {
	if err := s.pass(ctx); err != nil {
		return nil, err
	}
	return s.inner.Claim(ctx, node, limit, agents...)
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	if err := s.pass(ctx); err != nil {
		return store.Lease{}, err
	}
	return s.inner.Take(ctx, node, addr)
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, node string, ttl time.Duration) error {
	return s.renew(ctx, func() error { return s.inner.Renew(ctx, node, ttl) })
}

// RenewAt implements [store.Timekeeper].
func (s *Store) RenewAt(ctx context.Context, node string, ttl time.Duration) (time.Time, error) {
	var now time.Time
	err := s.renew(ctx, func() (err error) {
		t, ok := s.inner.(store.Timekeeper)
		if !ok {
			return s.inner.Renew(ctx, node, ttl)
		}
		now, err = t.RenewAt(ctx, node, ttl)
		return err
	})
	return now, err
}

// renew renews a lease, unless that is refused.
func (s *Store) renew(ctx context.Context, do func() error) error {
	if err := s.pass(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	refusal := s.refusal
	s.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	return do()
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, leases ...store.Lease) error {
	if err := s.pass(ctx); err != nil {
		return err
	}
	return s.inner.Release(ctx, leases...)
}

// SaveCheckpoint implements [store.Checkpointer].
func (s *Store) SaveCheckpoint(ctx context.Context, lease store.Lease, c store.Checkpoint) error {
	inner, ok := s.inner.(store.Checkpointer)
	if !ok {
		return errors.ErrUnsupported
	}
	c.Data = bytes.Clone(c.Data)
	return s.maintain(ctx, Checkpoint, lease.Address, func(ctx context.Context) error { return inner.SaveCheckpoint(ctx, lease, c) })
}

// Checkpoint implements [store.Checkpointer].
func (s *Store) Checkpoint(ctx context.Context, addr store.Address, atMost int64) (store.Checkpoint, error) {
	inner, ok := s.inner.(store.Checkpointer)
	if !ok {
		return store.Checkpoint{}, errors.ErrUnsupported
	}
	if err := s.pass(ctx); err != nil {
		return store.Checkpoint{}, err
	}
	return inner.Checkpoint(ctx, addr, atMost)
}

// Prune implements [store.Pruner].
func (s *Store) Prune(ctx context.Context, lease store.Lease, runs []store.Run) error {
	inner, ok := s.inner.(store.Pruner)
	if !ok {
		return errors.ErrUnsupported
	}
	runs = slices.Clone(runs)
	for i := range runs {
		runs[i].Payload = bytes.Clone(runs[i].Payload)
	}
	return s.maintain(ctx, Prune, lease.Address, func(ctx context.Context) error { return inner.Prune(ctx, lease, runs) })
}

// Close does the late writes that are still due and closes the underlying store.
func (s *Store) Close() error {
	s.Flush()
	return s.inner.Close()
}
