package postgres_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
)

// Names that the server cannot hold are of nothing that is there.
func TestNamesThatCannotBe(t *testing.T) {
	s := open(t, pgtest.Database(t), "flue")
	renew(t, s, "n1")
	admit(t, s, admission(addr, "s1"))
	for _, odd := range []string{"\x00", "a\xff"} {
		at := store.Address{Agent: addr.Agent, ID: odd}
		errs := make(map[string]error)
		_, errs["Read"] = s.Read(t.Context(), at, -1, 1)
		_, errs["Instance"] = s.Instance(t.Context(), at)
		_, errs["Submission"] = s.Submission(t.Context(), addr, odd)
		_, errs["Attachment"] = s.Attachment(t.Context(), addr, odd)
		_, errs["Unsettled"] = s.Unsettled(t.Context(), at)
		_, errs["Take"] = s.Take(t.Context(), "n1", at)
		_, errs["Checkpoint"] = s.Checkpoint(t.Context(), at, math.MaxInt64)
		for call, err := range errs {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s of %q: %v, want ErrNotFound", call, odd, err)
			}
		}
		if _, err := s.Claim(t.Context(), odd, 1); !errors.Is(err, store.ErrNoLease) {
			t.Errorf("Claim for node %q: %v", odd, err)
		}
		if _, err := s.Append(t.Context(), store.Lease{Address: at, Node: "n1", Epoch: 1}, store.Write{}); !errors.Is(err, store.ErrFenced) {
			t.Errorf("Append to %q: %v", odd, err)
		}
		if err := s.Release(t.Context(), store.Lease{Address: at, Node: "n1", Epoch: 1}); err != nil {
			t.Errorf("Release of %q: %v", odd, err)
		}
		if heads, err := s.Heads(t.Context(), []store.Address{at, addr}); err != nil || heads[0] != -1 || heads[1] != 1 {
			t.Errorf("Heads = %v, %v", heads, err)
		}
	}
}

// One call may bring as much as the limits of package store allow for each part, up
// to a bound for all together.
func TestLargeCalls(t *testing.T) {
	s := open(t, pgtest.Database(t), "flue")
	many := admission(addr, "s1")
	data := make([]byte, store.MaxAttachment)
	for i := range 5 { // the same bytes, so that it takes little memory
		many.Attachments = append(many.Attachments, store.Attachment{ID: fmt.Sprint(i), Digest: sha256.Sum256(data), Data: data})
	}
	if _, err := s.Admit(t.Context(), many); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Admit of 320 MiB: %v", err)
	}
	if _, err := s.Instance(t.Context(), addr); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after a refused admission: %v", err)
	}
	if testing.Short() {
		return
	}
	a := admission(addr, "s1")
	a.Attachments = many.Attachments[:1]
	admit(t, s, a)
	l := take(t, s, "n1", addr)
	payload := bytes.Repeat([]byte("0123456789abcdef"), store.MaxBatch/16)
	appendTo(t, s, l, string(payload))
	p, err := s.Read(t.Context(), addr, 1, 1)
	if err != nil || len(p.Batches) != 1 || !bytes.Equal(p.Batches[0].Payload, payload) {
		t.Errorf("a batch as large as can be: %d batches, %v", len(p.Batches), err)
	}
	at, err := s.Attachment(t.Context(), addr, "0")
	if err != nil || !bytes.Equal(at.Data, data) {
		t.Errorf("an attachment as large as can be: %d bytes, %v", len(at.Data), err)
	}
}
