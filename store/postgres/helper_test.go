package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
)

// addr is the instance that most tests use.
var addr = store.Address{Agent: "clerk", ID: "one"}

// other returns the i-th of many instances.
func other(i int) store.Address {
	return store.Address{Agent: "clerk", ID: fmt.Sprintf("many-%04d", i)}
}

// admission returns an admission that creates the instance if need be.
func admission(a store.Address, id string) *store.Admission {
	return &store.Admission{
		Address:    a,
		Submission: id,
		Identity:   []byte("identity of " + id),
		AcceptedAt: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		Payload:    []byte("admit " + id),
		Birth:      &store.Birth{UID: "uid-" + id, Incarnation: "inc", Payload: []byte("birth by " + id)},
	}
}

func attachment(id, data string) store.Attachment {
	return store.Attachment{ID: id, MediaType: "text/plain", Digest: sha256.Sum256([]byte(data)), Data: []byte(data)}
}

// must returns a function that fails the test if a call has failed.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return v
	}
}

func admit(t testing.TB, s store.Store, a *store.Admission) store.Receipt {
	t.Helper()
	r, err := s.Admit(t.Context(), a)
	if err != nil {
		t.Error(err)
	}
	return r
}

func renew(t testing.TB, s store.Store, node string) {
	t.Helper()
	if err := s.Renew(t.Context(), node, time.Minute); err != nil {
		t.Error(err)
	}
}

func take(t testing.TB, s store.Store, node string, a store.Address) store.Lease {
	t.Helper()
	renew(t, s, node)
	l, err := s.Take(t.Context(), node, a)
	if err != nil {
		t.Error(err)
	}
	return l
}

func appendTo(t testing.TB, s store.Store, l store.Lease, payload string, settle ...store.Settlement) int64 {
	t.Helper()
	offset, err := s.Append(t.Context(), l, store.Write{Payload: []byte(payload), Settle: settle})
	if err != nil {
		t.Error(err)
	}
	return offset
}

// journal returns the payloads of an instance, and fails the test if there is a
// gap.
func journal(t testing.TB, s store.Store, a store.Address) []string {
	t.Helper()
	var all []string
	for b, err := range store.Batches(t.Context(), s, a, -1) {
		if err != nil {
			t.Fatal(err)
		}
		if int(b.Offset) != len(all) {
			t.Fatalf("%v: batch %d is number %d", a, b.Offset, len(all))
		}
		all = append(all, string(b.Payload))
	}
	return all
}

func settled(submission string) store.Settlement {
	return store.Settlement{Submission: submission, Outcome: "completed"}
}

// unavailable fails the test unless err says that the failure may pass.
func unavailable(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v, want ErrUnavailable", what, err)
	}
}
