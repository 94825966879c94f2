package storetest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
)

// A kit is what a check works with: a test, the store under test, and
// shorthands that fail the test where a check does not expect an error.
type kit struct {
	*testing.T
	store.Store
	opts  *Options
	timed bool // leases lapse in this check
}

// addr is the instance that most checks use.
var addr = store.Address{Agent: "clerk", ID: "one"}

// accepted is when submissions of the checks are accepted.
var accepted = time.Date(2026, 2, 3, 4, 5, 6, 123456000, time.UTC)

// other returns the i-th of many instances.
func other(i int) store.Address {
	return store.Address{Agent: "clerk", ID: fmt.Sprintf("many-%04d", i)}
}

// admission returns an admission of submission id to a that creates the
// instance if need be.
func admission(a store.Address, id string) *store.Admission {
	return &store.Admission{
		Address:    a,
		Submission: id,
		Identity:   []byte("identity of " + id),
		AcceptedAt: accepted,
		Payload:    []byte("admit " + id),
		Birth:      &store.Birth{UID: "uid-" + id, Incarnation: "inc-" + id, Payload: []byte("birth by " + id)},
	}
}

func attachment(id, data string) store.Attachment {
	return store.Attachment{
		ID: id, MediaType: "text/plain", Filename: id + ".txt",
		Digest: sha256.Sum256([]byte(data)), Data: []byte(data),
	}
}

func (k *kit) admit(a *store.Admission) store.Receipt {
	k.Helper()
	r, err := k.Admit(k.Context(), a)
	if err != nil {
		k.Fatalf("Admit %s to %v: %v", a.Submission, a.Address, err)
	}
	return r
}

// owned admits a first submission to a and takes the instance for node.
func (k *kit) owned(a store.Address, node string) store.Lease {
	k.Helper()
	k.admit(admission(a, "s1"))
	return k.take(node, a)
}

func (k *kit) renew(node string) {
	k.Helper()
	if err := k.Renew(k.Context(), node, k.ttl()); err != nil {
		k.Fatalf("Renew %s: %v", node, err)
	}
}

func (k *kit) take(node string, a store.Address) store.Lease {
	k.Helper()
	k.renew(node)
	l, err := k.Take(k.Context(), node, a)
	if err != nil {
		k.Fatalf("Take %v for %s: %v", a, node, err)
	}
	if l.Address != a || l.Node != node || l.Epoch <= 0 {
		k.Fatalf("Take %v for %s = %+v", a, node, l)
	}
	return l
}

func (k *kit) claim(node string, limit int, agents ...string) []store.Lease {
	k.Helper()
	ls, err := k.Claim(k.Context(), node, limit, agents...)
	if err != nil {
		k.Fatalf("Claim for %s: %v", node, err)
	}
	return ls
}

func (k *kit) append(l store.Lease, payload string, settle ...store.Settlement) int64 {
	k.Helper()
	offset, err := k.Append(k.Context(), l, store.Write{Payload: []byte(payload), Settle: settle})
	if err != nil {
		k.Fatalf("Append %q to %v: %v", payload, l.Address, err)
	}
	return offset
}

func (k *kit) instance(a store.Address) store.Instance {
	k.Helper()
	in, err := k.Instance(k.Context(), a)
	if err != nil {
		k.Fatalf("Instance %v: %v", a, err)
	}
	return in
}

func (k *kit) submission(a store.Address, id string) store.Submission {
	k.Helper()
	s, err := k.Submission(k.Context(), a, id)
	if err != nil {
		k.Fatalf("Submission %s of %v: %v", id, a, err)
	}
	return s
}

// journal reads all batches of a and checks that they are gapless.
func (k *kit) journal(a store.Address) []store.Batch {
	k.Helper()
	var all []store.Batch
	next := int64(0)
	for {
		p, err := k.Read(k.Context(), a, next-1, 0)
		if err != nil {
			k.Fatalf("Read %v: %v", a, err)
		}
		for _, b := range p.Batches {
			if b.Offset != next {
				k.Fatalf("Read %v: batch %d follows batch %d", a, b.Offset, next-1)
			}
			all = append(all, b)
			next = b.Last() + 1
		}
		if next > p.Head {
			return all
		}
		if len(p.Batches) == 0 {
			k.Fatalf("Read %v after %d: no batches, but the head is %d", a, next-1, p.Head)
		}
	}
}

// payloads returns the payloads of the journal of a.
func (k *kit) payloads(a store.Address) []string {
	k.Helper()
	var ps []string
	for _, b := range k.journal(a) {
		ps = append(ps, string(b.Payload))
	}
	return ps
}

// A snapshot is all that can be seen of an instance.
type snapshot struct {
	Instance    store.Instance
	Batches     []store.Batch
	Submissions []store.Submission
}

// snapshot returns what can be seen of a, which may not exist, with the
// submissions of the given ids.
func (k *kit) snapshot(a store.Address, ids ...string) snapshot {
	k.Helper()
	in, err := k.Instance(k.Context(), a)
	if errors.Is(err, store.ErrNotFound) {
		return snapshot{}
	}
	if err != nil {
		k.Fatalf("Instance %v: %v", a, err)
	}
	s := snapshot{Instance: in, Batches: k.journal(a)}
	for _, id := range ids {
		sub, err := k.Submission(k.Context(), a, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			k.Fatalf("Submission %s of %v: %v", id, a, err)
		}
		s.Submissions = append(s.Submissions, sub)
	}
	return s
}

// unchanged fails the test if do changes what can be seen of a.
func (k *kit) unchanged(what string, a store.Address, ids []string, do func()) {
	k.Helper()
	before := k.snapshot(a, ids...)
	do()
	if diff := cmp.Diff(before, k.snapshot(a, ids...)); diff != "" {
		k.Errorf("%s changed %v (-before +after):\n%s", what, a, diff)
	}
}

// refused fails the test if err is not want.
func (k *kit) refused(what string, err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// condition fails the test if err is not want.
func (k *kit) condition(what string, err error, want *store.ConditionError) {
	k.Helper()
	var got *store.ConditionError
	if !errors.As(err, &got) {
		k.Errorf("%s: error %v, want a *ConditionError", what, err)
	} else if *got != *want {
		k.Errorf("%s: %+v, want %+v", what, *got, *want)
	}
}

// equal fails the test if got is not want.
func equal[T any](k *kit, what string, got, want T) {
	k.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		k.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// concurrently runs do n times at once and waits.
func concurrently(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}

// fill returns n bytes that begin with label.
func fill(label string, n int) []byte {
	p := bytes.Repeat([]byte{'.'}, n)
	copy(p, label)
	return p
}
