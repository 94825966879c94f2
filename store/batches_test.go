package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A spoiled store cannot read some batches.
type spoiled struct {
	store.Store
	bad   []int64
	reads int
}

func (s *spoiled) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	s.reads++
	p, err := s.Store.Read(ctx, addr, after, limit)
	for _, b := range p.Batches {
		if slices.Contains(s.bad, b.Offset) {
			return store.Page{}, fmt.Errorf("%w: batch %d", store.ErrCorrupt, b.Offset)
		}
	}
	return p, err
}

var addr = store.Address{Agent: "clerk", ID: "one"}

// journal returns a store with batches up to the head.
func journal(t *testing.T, head int) store.Store {
	t.Helper()
	s := memstore.New()
	for i := range head {
		a := &store.Admission{Address: addr, Submission: fmt.Sprint(i), Payload: fmt.Append(nil, i+1), Birth: &store.Birth{UID: "u", Payload: []byte("0")}}
		if _, err := s.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestBatches(t *testing.T) {
	const head = 4000
	for _, tt := range []struct {
		name  string
		after int64
		bad   []int64
	}{
		{"all", -1, nil},
		{"all, from before the start", -7, nil},
		{"the last", head - 1, nil},
		{"none", head, nil},
		{"the first is bad", -1, []int64{0}},
		{"the last is bad", -1, []int64{head}},
		{"the first two of a page are bad", -1, []int64{1000, 1001}},
		{"some are bad", 6, []int64{3, 7, 500, 999, 3900}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &spoiled{Store: journal(t, head), bad: tt.bad}
			var bad []int64
			next := max(tt.after, -1) + 1
			for b, err := range store.Batches(t.Context(), s, addr, tt.after) {
				var damage *store.BatchError
				switch {
				case errors.As(err, &damage):
					if damage.Offset != b.Offset || !errors.Is(err, store.ErrCorrupt) || b.Payload != nil {
						t.Fatalf("batch %+v: %v", b, err)
					}
					bad = append(bad, b.Offset)
				case err != nil:
					t.Fatal(err)
				case string(b.Payload) != fmt.Sprint(b.Offset):
					t.Fatalf("batch %d is %q", b.Offset, b.Payload)
				}
				if b.Offset != next {
					t.Fatalf("batch %d follows %d", b.Offset, next-1)
				}
				next++
			}
			if next != head+1 && tt.after < head {
				t.Errorf("it ended before %d", next)
			}
			want := slices.DeleteFunc(slices.Clone(tt.bad), func(o int64) bool { return o <= tt.after })
			if diff := cmp.Diff(want, bad, cmp.Transformer("none", func(s []int64) string { return fmt.Sprint(s) })); diff != "" {
				t.Errorf("bad batches (-want +got):\n%s", diff)
			}
			if most := 5 + 12*len(tt.bad); s.reads > most {
				t.Errorf("%d reads, want at most %d", s.reads, most)
			}
		})
	}
}

// No more is read than is asked for.
func TestBatchesUpTo(t *testing.T) {
	for _, tt := range []struct {
		after, upTo int64
		bad         []int64
		first, last int64 // what comes; first is above last for nothing
		reads       int   // batches at most
	}{
		{after: -1, upTo: 5, first: 0, last: 5, reads: 6},
		{after: 3, upTo: 4, first: 4, last: 4, reads: 1},
		{after: 3, upTo: 3, first: 4, last: 3, reads: 0},
		{after: 9, upTo: 3, first: 4, last: 3, reads: 0},
		{after: 1990, upTo: 5000, first: 1991, last: 2000, reads: 10},
		{after: -1, upTo: 1500, first: 0, last: 1500, reads: 1501},
		{after: 3, upTo: 8, bad: []int64{6}, first: 4, last: 8, reads: 20},
		{after: 3, upTo: 8, bad: []int64{8}, first: 4, last: 8, reads: 20},
		{after: 3, upTo: 8, bad: []int64{9}, first: 4, last: 8, reads: 5},
	} {
		s := &countedPages{Store: &spoiled{Store: journal(t, 2000), bad: tt.bad}}
		next := tt.first
		for b, err := range store.BatchesUpTo(t.Context(), s, addr, tt.after, tt.upTo) {
			var damage *store.BatchError
			if err != nil && !errors.As(err, &damage) || (err != nil) != slices.Contains(tt.bad, b.Offset) {
				t.Errorf("%+v: batch %d: %v", tt, b.Offset, err)
			}
			if b.Offset != next {
				t.Errorf("%+v: batch %d follows %d", tt, b.Offset, next-1)
			}
			next = b.Offset + 1
		}
		if next != tt.last+1 {
			t.Errorf("%+v: it ended before %d", tt, next)
		}
		if s.batches > tt.reads {
			t.Errorf("%+v: %d batches were read, want at most %d", tt, s.batches, tt.reads)
		}
	}
}

// countedPages counts the batches of the pages that are read.
type countedPages struct {
	store.Store
	batches int
}

func (s *countedPages) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	p, err := s.Store.Read(ctx, addr, after, limit)
	s.batches += len(p.Batches)
	return p, err
}

func TestBatchesStop(t *testing.T) {
	s := journal(t, 10)
	for b := range store.Batches(t.Context(), s, addr, -1) {
		if b.Offset == 3 {
			break
		}
	}
	for b := range store.Batches(t.Context(), &spoiled{Store: s, bad: []int64{3}}, addr, -1) {
		if b.Offset == 3 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for what, seen := range map[string]struct {
		ctx  context.Context
		addr store.Address
		want error
	}{
		"an ended context": {ctx, addr, context.Canceled},
		"no such instance": {t.Context(), store.Address{Agent: "clerk", ID: "two"}, store.ErrNotFound},
	} {
		n := 0
		for b, err := range store.Batches(seen.ctx, s, seen.addr, -1) {
			if n++; !errors.Is(err, seen.want) || b.Offset != 0 || b.Payload != nil {
				t.Errorf("%s: %+v, %v", what, b, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d results, want the error alone", what, n)
		}
	}
}
