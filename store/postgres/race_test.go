package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/internal/modeltest"
	"github.com/flue-go/flue/store/postgres"
)

// replicas opens n stores on one schema, as so many processes would.
func replicas(t *testing.T, url string, n int) []*postgres.Store {
	t.Helper()
	all := make([]*postgres.Store, n)
	for i := range all {
		all[i] = open(t, url, "flue")
	}
	return all
}

// concurrently runs do n times at once and waits.
func concurrently(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// many is a number of rounds, fewer with -short.
func many(n int) int {
	if testing.Short() {
		return max(n/5, 1)
	}
	return n
}

// Of admissions of one submission by many processes one is the first, and all get
// its receipt.
func TestReplicasAdmitOne(t *testing.T) {
	const n = 8
	stores := replicas(t, pgtest.Database(t), n)
	for round := range many(60) {
		at, before := other(round), 0
		if round%3 == 2 { // the instance is there
			admit(t, stores[0], admission(at, "s0"))
			before = 1
		}
		receipts := make([]store.Receipt, n)
		concurrently(n, func(i int) {
			a := admission(at, "s1")
			a.Condition.Create = round%3 == 0
			a.Birth.UID = fmt.Sprint("uid-", i)
			receipts[i] = admit(t, stores[i], a)
		})
		first := 0
		for _, r := range receipts {
			if !r.Duplicate {
				first++
			}
			r.Duplicate = receipts[0].Duplicate
			if r != receipts[0] {
				t.Errorf("receipts %+v and %+v", r, receipts[0])
			}
		}
		if first != 1 {
			t.Errorf("%d admissions are the first", first)
		}
		if batches := journal(t, stores[0], at); len(batches) != 2+before {
			t.Errorf("the journal is %q", batches)
		}
	}
}

// Admissions of many processes to few instances: each is there once, in the order
// of the receipts, and of those that must create an instance one does.
func TestReplicasAdmitMany(t *testing.T) {
	const n, instances = 8, 3
	stores := replicas(t, pgtest.Database(t), n)
	each := many(60)
	var created [instances]atomic.Int32
	offsets := make([]sync.Map, instances)
	concurrently(2*n, func(i int) {
		for j := range each {
			at := j % instances
			a := admission(other(at), fmt.Sprintf("%d-%d", i, j))
			a.Condition.Create = j < instances && i%2 == 0
			r, err := stores[i%n].Admit(t.Context(), a)
			var exists *store.ConditionError
			switch {
			case errors.As(err, &exists) && a.Condition.Create && exists.Exists:
				continue
			case err != nil:
				t.Error(err)
				continue
			case r.Created:
				created[at].Add(1)
			}
			if old, twice := offsets[at].LoadOrStore(r.Offset, a.Submission); twice {
				t.Errorf("%s and %s have offset %d", old, a.Submission, r.Offset)
			}
		}
	})
	for at := range instances {
		if created[at].Load() != 1 {
			t.Errorf("instance %d was created %d times", at, created[at].Load())
		}
		for i, payload := range journal(t, stores[0], other(at))[1:] {
			if id, _ := offsets[at].Load(int64(i + 1)); "admit "+fmt.Sprint(id) != payload {
				t.Errorf("instance %d: batch %d is %q, and %v was acknowledged there", at, i+1, payload, id)
			}
		}
	}
}

// Groups of appends, releases, takes and claims of many processes that lock the
// same rows in any order never wait for each other in a circle, and none is done
// by whom the instance does not belong to.
func TestReplicasContend(t *testing.T) {
	const n, instances = 4, 24
	url := pgtest.Database(t)
	stores := replicas(t, url, n)
	for i := range instances {
		admit(t, stores[0], admission(other(i), "s1"))
	}
	for i, s := range stores {
		renew(t, s, fmt.Sprint("n", i))
	}
	var appended, fenced, taken atomic.Int64
	rounds := many(40)
	concurrently(n, func(i int) {
		s, node := stores[i], fmt.Sprint("n", i)
		leases := make(map[store.Address]store.Lease)
		for round := range rounds {
			for _, l := range must[[]store.Lease](t)(s.Claim(t.Context(), node, instances/2)) {
				leases[l.Address] = l
				taken.Add(1)
			}
			all := make([]store.Lease, 0, len(leases)) // also those that others have by now
			for _, l := range leases {
				all = append(all, l)
			}
			rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			concurrently(len(all), func(j int) {
				w := store.Write{Payload: []byte(node)}
				if j%3 == 0 {
					w.Attachments = []store.Attachment{attachment(fmt.Sprint(node, round), fmt.Sprint(round))}
				}
				_, err := s.Append(t.Context(), all[j], w)
				switch {
				case err == nil:
					appended.Add(1)
				case errors.Is(err, store.ErrFenced):
					fenced.Add(1)
				default:
					t.Error(err)
				}
			})
			concurrently(2, func(half int) { // in opposite orders
				some := slices.Clone(all)
				if half == 1 {
					slices.Reverse(some)
				}
				if err := s.Release(t.Context(), some...); err != nil {
					t.Error(err)
				}
			})
			concurrently(min(len(all), 3), func(j int) { // what was given back is gone
				if _, err := s.Append(t.Context(), all[j], store.Write{}); !errors.Is(err, store.ErrFenced) {
					t.Errorf("append after a release: %v", err)
				}
				fenced.Add(1)
			})
		}
	})
	if appended.Load() == 0 || fenced.Load() == 0 || taken.Load() < instances {
		t.Errorf("%d appends, %d of them refused, %d instances taken: nothing was contended for", appended.Load(), fenced.Load(), taken.Load())
	}
	t.Logf("%d appends, %d refused, %d instances taken", appended.Load(), fenced.Load(), taken.Load())
	batches := 0
	for i := range instances {
		last := int64(0)
		for b, err := range store.Batches(t.Context(), stores[0], other(i), 1) {
			if err != nil || b.Epoch < last {
				t.Errorf("batch %d of %v has epoch %d after %d, %v", b.Offset, other(i), b.Epoch, last, err)
			}
			last = b.Epoch
			batches++
		}
	}
	if int64(batches) != appended.Load() {
		t.Errorf("%d batches of %d acknowledged appends", batches, appended.Load())
	}
	for _, s := range stores { // what they know of deadlocks is told when they end
		closeStore(t, s)
	}
	time.Sleep(time.Second) // statistics of the server come late
	if d := pgtest.Value[int](t, url, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); d != 0 {
		t.Errorf("%d deadlocks", d)
	}
}

// takeBriefly takes an instance for a node whose lease lapses soon. On a slow
// machine it may have done so before.
func takeBriefly(t *testing.T, s store.Store, node string, a store.Address) store.Lease {
	t.Helper()
	for ttl := 40 * time.Millisecond; ; ttl *= 2 {
		if err := s.Renew(t.Context(), node, ttl); err != nil {
			t.Fatal(err)
		}
		l, err := s.Take(t.Context(), node, a)
		if err == nil {
			return l
		}
		if !errors.Is(err, store.ErrNoLease) || ttl > time.Minute {
			t.Fatal(err)
		}
	}
}

// When a node's lease has lapsed and another process has taken its instance, none
// of its appends in flight lands any more.
func TestTakeoverFencesInFlight(t *testing.T) {
	url := pgtest.Database(t)
	stores := replicas(t, url, 2)
	admit(t, stores[0], admission(addr, "s1"))
	for round := range many(30) {
		old, young := stores[round%2], stores[(round+1)%2]
		l := takeBriefly(t, old, "old", addr)
		var over atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					late := over.Load()
					_, err := old.Append(t.Context(), l, store.Write{Payload: []byte("old")})
					if err != nil {
						if !errors.Is(err, store.ErrFenced) {
							t.Error(err)
						}
						return
					}
					if late {
						t.Error("an append of the earlier owner landed after the takeover")
						return
					}
				}
			})
		}
		renew(t, young, "young")
		var mine store.Lease
		for {
			var err error
			if mine, err = young.Take(t.Context(), "young", addr); err == nil {
				break
			}
			if !errors.Is(err, store.ErrOwned) {
				t.Fatal(err)
			}
		}
		over.Store(true)
		head := must[store.Instance](t)(young.Instance(t.Context(), addr)).Head
		if at := appendTo(t, young, mine, "young"); at != head+1 {
			t.Errorf("the new owner's append is at %d, and the head was %d", at, head)
		}
		wg.Wait()
		if now := must[store.Instance](t)(young.Instance(t.Context(), addr)).Head; now != head+1 {
			t.Errorf("the head is %d after the earlier owner gave up, want %d", now, head+1)
		}
		if err := young.Release(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
}

// Claims of many processes give each instance away once, and oldest first.
func TestReplicasClaim(t *testing.T) {
	const n = 6
	url := pgtest.Database(t)
	stores := replicas(t, url, n)
	instances := many(300)
	for i := range instances {
		admit(t, stores[0], admission(other(i), "s1"))
	}
	var mu sync.Mutex
	given := make(map[store.Address]string)
	concurrently(n, func(i int) {
		node := fmt.Sprint("n", i) // nobody knows it before
		renew(t, stores[i], node)
		for {
			ls := must[[]store.Lease](t)(stores[i].Claim(t.Context(), node, 7))
			mu.Lock()
			for _, l := range ls {
				if who, ok := given[l.Address]; ok {
					t.Errorf("%v was given to %s and %s", l.Address, who, node)
				}
				given[l.Address] = node
			}
			done := len(given) == instances
			mu.Unlock()
			if done {
				return
			}
		}
	})
	stores[0].Release(t.Context()) // nothing
	renew(t, stores[0], "late")
	if ls := must[[]store.Lease](t)(stores[0].Claim(t.Context(), "late", 10)); len(ls) != 0 {
		t.Errorf("claimed %v, which others have", ls)
	}
}

// Claim gives away first what has waited longest, whoever had it before.
func TestClaimOrder(t *testing.T) {
	s := open(t, pgtest.Database(t), "flue")
	if err := s.Renew(t.Context(), "gone", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	renew(t, s, "n1")
	for i := range 6 {
		admit(t, s, admission(other(i), "s1"))
	}
	for _, i := range []int{4, 1} {
		l := take(t, s, "gone", other(i))
		if i == 1 {
			if err := s.Release(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Renew(t.Context(), "gone", time.Microsecond); err != nil {
		t.Fatal(err)
	}
	var order []int
	for range 3 {
		for _, l := range must[[]store.Lease](t)(s.Claim(t.Context(), "n1", 2)) {
			for i := range 6 {
				if l.Address == other(i) {
					order = append(order, i)
				}
			}
		}
	}
	if !slices.Equal(order, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("claimed in the order %v", order)
	}
}

func TestModel(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, "flue")
	modeltest.Check(t, func(t *testing.T) store.Store {
		pgtest.Exec(t, url, "TRUNCATE flue.instances, flue.batches, flue.submissions, flue.attachments, flue.blobs, flue.checkpoints, flue.nodes")
		return unclosed{s}
	}, nil)
}

// unclosed is a store that others use after its test.
type unclosed struct{ *postgres.Store }

func (unclosed) Close() error { return nil }
