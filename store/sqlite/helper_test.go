package sqlite_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

var addr = store.Address{Agent: "clerk", ID: "one"}

// open opens a store that the caller closes.
func open(t testing.TB, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func admission(id string) *store.Admission {
	return &store.Admission{
		Address: addr, Submission: id, Payload: []byte("admit " + id),
		Birth: &store.Birth{UID: "uid", Payload: []byte("birth")},
	}
}

func attachment(id, data string) store.Attachment {
	return store.Attachment{ID: id, Digest: sha256.Sum256([]byte(data)), Data: []byte(data)}
}

func admit(t testing.TB, s store.Store, id string) {
	t.Helper()
	if _, err := s.Admit(t.Context(), admission(id)); err != nil {
		t.Fatal(err)
	}
}

func take(t testing.TB, s store.Store) store.Lease {
	t.Helper()
	if err := s.Renew(t.Context(), "n1", time.Hour); err != nil {
		t.Fatal(err)
	}
	l, err := s.Take(t.Context(), "n1", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func appendTo(t testing.TB, s store.Store, l store.Lease, payload string) int64 {
	t.Helper()
	offset, err := s.Append(t.Context(), l, store.Write{Payload: []byte(payload)})
	if err != nil {
		t.Fatal(err)
	}
	return offset
}

func head(t testing.TB, s store.Store) int64 {
	t.Helper()
	in, err := s.Instance(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	return in.Head
}

// journal returns the payloads of the journal at addr.
func journal(t testing.TB, s store.Store) []string {
	t.Helper()
	var ps []string
	for {
		p, err := s.Read(t.Context(), addr, int64(len(ps))-1, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range p.Batches {
			ps = append(ps, string(b.Payload))
		}
		if int64(len(ps)) > p.Head {
			return ps
		}
	}
}
