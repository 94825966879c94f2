// Package memstore keeps journals in memory, for tests and for programs whose
// conversations need not outlive the process.
//
// It keeps the whole contract of [store.Store] except durability. For tests of
// recovery, [Store.Reopen] does to it what the death of a process does to a
// store on disk.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/internal/owners"
)

var (
	_ store.Store  = (*Store)(nil)
	_ store.Lister = (*Store)(nil)
)

// A Store is a handle on journals in memory. It is safe for concurrent use.
// The zero value is not usable; see [New].
type Store struct {
	// mu orders everything that happens to the journals, as one transaction at
	// a time would. Handles of the same data share it.
	*data
	closed bool
}

// data is what outlives a handle.
type data struct {
	mu        sync.Mutex
	instances map[store.Address]*instance
	owners    *owners.Table[*instance]

	// open lists the instances with unsettled submissions, so that a claim
	// does not visit all the others.
	open  map[*instance]struct{}
	turns int // see instance.ready

	listeners []*listener
}

type instance struct {
	addr        store.Address
	ready       int       // when it began to wait for its turn, in order
	since       time.Time // the same, by the clock
	uid         string
	incarnation string
	batches     []store.Batch
	submissions map[string]*submission
	unsettled   int
	attachments map[string]store.Attachment
	blobs       map[[sha256.Size]byte][]byte // data of attachments
	checkpoints []store.Checkpoint           // by offset
}

type submission struct {
	store.Submission
	identity []byte
}

// New returns an empty store.
func New() *Store {
	return &Store{data: &data{
		instances: make(map[store.Address]*instance),
		owners:    owners.New[*instance](0),
		open:      make(map[*instance]struct{}),
	}}
}

// Reopen closes s and returns a new handle on the same journals, as if the
// process had died and another one had opened the store: calls on the old
// handle fail with ErrClosed, every owner and node lease is gone, and new
// epochs are above all old ones.
func (s *Store) Reopen() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	s.owners = owners.New[*instance](s.owners.Epoch())
	return &Store{data: s.data}
}

// Close ends the handle. The journals are gone with the last handle on them.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	return nil
}

// enter locks the store for one call. The caller must call s.mu.Unlock if it
// returns nil.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// Admit implements [store.Store].
func (s *Store) Admit(ctx context.Context, a *store.Admission) (store.Receipt, error) {
	if err := a.Validate(); err != nil {
		return store.Receipt{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Receipt{}, err
	}
	defer s.mu.Unlock()

	in := s.instances[a.Address]
	uid := ""
	if in != nil {
		uid = in.uid
		if sub := in.submissions[a.Submission]; sub != nil {
			if !bytes.Equal(sub.identity, a.Identity) {
				return store.Receipt{}, fmt.Errorf("submission %q of %v: %w", a.Submission, a.Address, store.ErrConflict)
			}
			r := in.receipt(sub)
			r.Duplicate = true
			return r, nil
		}
	}
	if err := cmp.Or(a.CheckCondition(uid), in.attachable(a.Address, a.Attachments)); err != nil {
		return store.Receipt{}, err
	}
	if in == nil {
		in = s.create(a.Address, a.Birth)
	}
	in.attach(a.Attachments)
	sub := &submission{
		Submission: store.Submission{
			ID:         a.Submission,
			Offset:     in.append(0, a.Payload),
			AcceptedAt: store.Timestamp(a.AcceptedAt),
		},
		identity: bytes.Clone(a.Identity),
	}
	in.submissions[a.Submission] = sub
	if in.unsettled++; in.unsettled == 1 {
		s.waits(in)
	}
	s.open[in] = struct{}{}

	r := in.receipt(sub)
	if epoch, ok := s.owners.Claim(in, a.Node); ok {
		r.Lease = &store.Lease{Address: in.addr, Node: a.Node, Epoch: epoch}
	}
	s.tellGrown(in)
	return r, nil
}

// attachable checks that every attachment id stands for one content. in may be
// nil.
func (in *instance) attachable(addr store.Address, as []store.Attachment) error {
	seen := make(map[string][sha256.Size]byte, len(as))
	for _, at := range as {
		digest, ok := seen[at.ID]
		if !ok && in != nil {
			var old store.Attachment
			old, ok = in.attachments[at.ID]
			digest = old.Digest
		}
		if ok && digest != at.Digest {
			return fmt.Errorf("attachment %q of %v: %w", at.ID, addr, store.ErrConflict)
		}
		seen[at.ID] = at.Digest
	}
	return nil
}

func (s *Store) create(addr store.Address, b *store.Birth) *instance {
	in := &instance{
		addr:        addr,
		uid:         b.UID,
		incarnation: b.Incarnation,
		submissions: make(map[string]*submission),
	}
	in.append(0, b.Payload)
	s.instances[addr] = in
	return in
}

// head returns the newest offset, or -1.
func (in *instance) head() int64 {
	if len(in.batches) == 0 {
		return -1
	}
	return in.batches[len(in.batches)-1].Last()
}

// above returns where in batches the first one with a greater offset is.
func (in *instance) above(offset int64) int {
	n, _ := slices.BinarySearchFunc(in.batches, offset+1, func(b store.Batch, o int64) int { return cmp.Compare(b.Offset, o) })
	return n
}

func (in *instance) append(epoch int64, payload []byte) int64 {
	offset := in.head() + 1
	in.batches = append(in.batches, store.Batch{Offset: offset, Epoch: epoch, Payload: bytes.Clone(payload)})
	return offset
}

func (in *instance) attach(as []store.Attachment) {
	for _, a := range as {
		if in.attachments == nil {
			in.attachments = make(map[string]store.Attachment)
			in.blobs = make(map[[sha256.Size]byte][]byte)
		}
		if _, ok := in.attachments[a.ID]; ok {
			continue
		}
		if _, ok := in.blobs[a.Digest]; !ok {
			in.blobs[a.Digest] = bytes.Clone(a.Data)
		}
		a.Data = nil
		in.attachments[a.ID] = a
	}
}

func (in *instance) receipt(sub *submission) store.Receipt {
	return store.Receipt{
		Submission: sub.ID,
		UID:        in.uid,
		AcceptedAt: sub.AcceptedAt,
		Before:     sub.Offset - 1,
		Offset:     sub.Offset,
		Created:    sub.Offset == 1, // only a birth comes before it
	}
}

func (in *instance) row() store.Instance {
	return store.Instance{
		Address:     in.addr,
		UID:         in.uid,
		Incarnation: in.incarnation,
		Head:        in.head(),
		Unsettled:   in.unsettled,
	}
}

// Abort implements [store.Store].
func (s *Store) Abort(ctx context.Context, addr store.Address, payload []byte) (bool, error) {
	if err := cmp.Or(addr.Validate(), store.ValidatePayload(payload)); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	in := s.instances[addr]
	if in == nil || in.unsettled == 0 {
		return false, nil
	}
	in.append(0, payload)
	s.tellGrown(in)
	return true, nil
}

// Append implements [store.Store].
func (s *Store) Append(ctx context.Context, lease store.Lease, w store.Write) (int64, error) {
	if err := w.Validate(); err != nil {
		return 0, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	in := s.instances[lease.Address]
	if in == nil || !s.owners.Current(in, lease.Node, lease.Epoch) {
		return 0, fmt.Errorf("append to %v as epoch %d: %w", lease.Address, lease.Epoch, store.ErrFenced)
	}
	seen := make(map[string]struct{}, len(w.Settle))
	for _, st := range w.Settle {
		sub := in.submissions[st.Submission]
		_, twice := seen[st.Submission]
		if sub == nil || sub.Outcome != "" || twice {
			return 0, fmt.Errorf("settle submission %q of %v: %w", st.Submission, lease.Address, store.ErrSettled)
		}
		seen[st.Submission] = struct{}{}
	}
	if err := in.attachable(lease.Address, w.Attachments); err != nil {
		return 0, err
	}
	in.attach(w.Attachments)
	offset := in.append(lease.Epoch, w.Payload)
	for _, st := range w.Settle {
		sub := in.submissions[st.Submission]
		sub.Outcome, sub.SettledAt = st.Outcome, offset
	}
	if in.unsettled -= len(w.Settle); in.unsettled == 0 {
		delete(s.open, in)
	} else if len(w.Settle) > 0 {
		s.waits(in)
	}
	s.tellGrown(in)
	return offset, nil
}

// waits puts an instance behind all others that have work.
func (s *Store) waits(in *instance) {
	s.turns++
	in.ready, in.since = s.turns, time.Now()
}

// Read implements [store.Store].
func (s *Store) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.mu.Unlock()
	in := s.instances[addr]
	if in == nil {
		return store.Page{}, fmt.Errorf("read %v: %w", addr, store.ErrNotFound)
	}
	p := store.Page{Instance: in.row()}
	size := 0
	for i, b := range in.batches[in.above(after):] {
		if size += len(b.Payload); i > 0 && (i == limit || size > store.PageBytes) {
			break
		}
		p.Batches = append(p.Batches, b)
	}
	return p, nil
}

// Instance implements [store.Store].
func (s *Store) Instance(ctx context.Context, addr store.Address) (store.Instance, error) {
	if err := s.enter(ctx); err != nil {
		return store.Instance{}, err
	}
	defer s.mu.Unlock()
	in := s.instances[addr]
	if in == nil {
		return store.Instance{}, fmt.Errorf("instance %v: %w", addr, store.ErrNotFound)
	}
	return in.row(), nil
}

// Submission implements [store.Store].
func (s *Store) Submission(ctx context.Context, addr store.Address, id string) (store.Submission, error) {
	if err := s.enter(ctx); err != nil {
		return store.Submission{}, err
	}
	defer s.mu.Unlock()
	if in := s.instances[addr]; in != nil {
		if sub := in.submissions[id]; sub != nil {
			return sub.Submission, nil
		}
	}
	return store.Submission{}, fmt.Errorf("submission %q of %v: %w", id, addr, store.ErrNotFound)
}

// Instances implements [store.Lister].
func (s *Store) Instances(ctx context.Context, after store.Address, limit int) ([]store.Instance, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var rows []store.Instance
	for addr, in := range s.instances {
		if compare(addr, after) > 0 {
			rows = append(rows, in.row())
		}
	}
	slices.SortFunc(rows, func(a, b store.Instance) int { return compare(a.Address, b.Address) })
	return rows[:min(len(rows), max(limit, 0))], nil
}

func compare(a, b store.Address) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
}

// Unsettled implements [store.Lister].
func (s *Store) Unsettled(ctx context.Context, addr store.Address) ([]store.Submission, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	in := s.instances[addr]
	if in == nil {
		return nil, fmt.Errorf("unsettled submissions of %v: %w", addr, store.ErrNotFound)
	}
	var open []store.Submission
	for _, sub := range in.submissions {
		if sub.Outcome == "" {
			open = append(open, sub.Submission)
		}
	}
	slices.SortFunc(open, func(a, b store.Submission) int { return cmp.Compare(a.Offset, b.Offset) })
	return open, nil
}

// Attachment implements [store.Store].
func (s *Store) Attachment(ctx context.Context, addr store.Address, id string) (store.Attachment, error) {
	if err := s.enter(ctx); err != nil {
		return store.Attachment{}, err
	}
	defer s.mu.Unlock()
	if in := s.instances[addr]; in != nil {
		if a, ok := in.attachments[id]; ok {
			a.Data = in.blobs[a.Digest]
			if sha256.Sum256(a.Data) != a.Digest {
				return store.Attachment{}, fmt.Errorf("attachment %q of %v: %w", id, addr, store.ErrCorrupt)
			}
			return a, nil
		}
	}
	return store.Attachment{}, fmt.Errorf("attachment %q of %v: %w", id, addr, store.ErrNotFound)
}

// Claim implements [store.Store]. It gives away the oldest instances first.
func (s *Store) Claim(ctx context.Context, node string, limit int, agents ...string) ([]store.Lease, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if !s.owners.Alive(node) {
		return nil, fmt.Errorf("claim for node %q: %w", node, store.ErrNoLease)
	}
	var free []*instance
	for in := range s.open {
		if s.owners.Free(in) && of(in, agents) {
			free = append(free, in)
		}
	}
	slices.SortFunc(free, func(a, b *instance) int { return cmp.Compare(a.ready, b.ready) })

	var leases []store.Lease
	for _, in := range free[:min(len(free), max(limit, 0))] {
		if epoch, ok := s.owners.Claim(in, node); ok {
			leases = append(leases, store.Lease{Address: in.addr, Node: node, Epoch: epoch})
		}
	}
	return leases, nil
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, node string, addr store.Address) (store.Lease, error) {
	if err := s.enter(ctx); err != nil {
		return store.Lease{}, err
	}
	defer s.mu.Unlock()
	in := s.instances[addr]
	if in == nil {
		return store.Lease{}, fmt.Errorf("take %v: %w", addr, store.ErrNotFound)
	}
	epoch, err := s.owners.Take(in, node)
	if err != nil {
		return store.Lease{}, fmt.Errorf("take %v for node %q: %w", addr, node, err)
	}
	return store.Lease{Address: addr, Node: node, Epoch: epoch}, nil
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, node string, ttl time.Duration) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.owners.Renew(node, ttl)
}

// RenewAt implements [store.Timekeeper].
func (s *Store) RenewAt(ctx context.Context, node string, ttl time.Duration) (time.Time, error) {
	err := s.Renew(ctx, node, ttl)
	return time.Now(), err
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, leases ...store.Lease) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, l := range leases {
		if in := s.instances[l.Address]; in != nil && s.owners.Release(in, l.Node, l.Epoch) {
			s.tellFreed(in)
		}
	}
	return nil
}
