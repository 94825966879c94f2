package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/faultnet"
	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// An ear keeps what a listener was told.
type ear struct {
	mu     sync.Mutex
	heard  []store.Signal
	news   chan struct{}
	cancel context.CancelFunc
	result chan error
}

// listen begins to listen and returns when that has begun.
func listen(t *testing.T, s store.Sharer) *ear {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := &ear{news: make(chan struct{}, 1), cancel: cancel, result: make(chan error, 1)}
	go func() { e.result <- s.Listen(ctx, e.hear) }()
	t.Cleanup(func() {
		cancel()
		if err := <-e.result; !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrClosed) {
			t.Errorf("Listen: %v", err)
		}
		e.result <- nil
	})
	e.await(t, store.Signal{Kind: store.Missed})
	return e
}

func (e *ear) hear(s store.Signal) {
	e.mu.Lock()
	e.heard = append(e.heard, s)
	e.mu.Unlock()
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// await waits until a signal has been heard, and forgets it.
func (e *ear) await(t *testing.T, want store.Signal) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		e.mu.Lock()
		for i, s := range e.heard {
			if s == want {
				e.heard = slices.Delete(e.heard, i, i+1)
				e.mu.Unlock()
				return
			}
		}
		heard := describe(e.heard...)
		e.mu.Unlock()
		select {
		case <-e.news:
		case <-late:
			t.Fatalf("waited for %s and heard %s", describe(want), heard)
		}
	}
}

func describe(signals ...store.Signal) string {
	var all []string
	for _, s := range signals {
		all = append(all, fmt.Sprintf("%d of %v at %d", s.Kind, s.Address, s.Head))
	}
	return strings.Join(all, ", ")
}

// watch makes a process hear of instances that it has nothing else to do with.
func watch(t *testing.T, s store.Sharer, addrs ...store.Address) {
	t.Helper()
	if err := s.Watch(t.Context(), addrs); err != nil {
		t.Fatal(err)
	}
}

func TestSignals(t *testing.T) {
	url := pgtest.Database(t)
	a, b := open(t, url, "flue"), open(t, url, "flue")
	renew(t, b, "n2")
	renew(t, a, "n1") // and sees that it is not alone
	there := listen(t, b)

	admit(t, a, admission(addr, "s1"))
	there.await(t, store.Signal{Kind: store.Freed}) // whose name is of no use there
	watch(t, b, addr)
	r := admit(t, a, admission(addr, "s3"))
	there.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset})
	there.await(t, store.Signal{Kind: store.Freed, Address: addr})

	l := take(t, a, "n1", addr)
	offset := appendTo(t, a, l, "work")
	there.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: offset})

	here := listen(t, a)
	r = admit(t, b, admission(addr, "s2"))
	here.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset})
	if ok, err := b.Abort(t.Context(), addr, []byte("abort")); !ok || err != nil {
		t.Fatalf("Abort: %v, %v", ok, err)
	}
	here.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset + 1})

	if err := b.Watch(t.Context(), []store.Address{other(9), addr}); err != nil {
		t.Fatal(err)
	}
	here.await(t, store.Signal{Kind: store.Watched, Address: addr})

	if err := a.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	there.await(t, store.Signal{Kind: store.Freed, Address: addr})
}

// Whoever is alone sends nothing, until somebody comes.
func TestSignalsToNobody(t *testing.T) {
	url := pgtest.Database(t)
	a := open(t, url, "flue")
	renew(t, a, "n1")
	if a.Wanted() {
		t.Error("signals are sent although no other node lives")
	}
	b := open(t, url, "flue")
	admit(t, a, admission(addr, "s0"))
	watch(t, b, addr) // so that both hear of it
	here := listen(t, a)
	there := listen(t, b) // is no node
	for !a.Wanted() {
		here.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: admit(t, b, admission(addr, pgtest.Name())).Offset})
	}
	r := admit(t, a, admission(addr, "s1"))
	there.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset})
}

// Many signals come together, and those of one instance as one.
func TestSignalsCoalesce(t *testing.T) {
	url := pgtest.Database(t)
	a, b := open(t, url, "flue"), open(t, url, "flue")
	renew(t, b, "n2")
	renew(t, a, "n1") // and sees that it is not alone
	there := listen(t, b)
	admit(t, b, admission(addr, "s0")) // so that b hears of it
	const instances, each = 20, 50
	var wg sync.WaitGroup
	for i := range instances {
		wg.Go(func() {
			ad := admission(other(i), "s1")
			ad.Node = "n1"
			l := admit(t, a, ad).Lease
			for range each {
				appendTo(t, a, *l, "work")
			}
		})
	}
	wg.Wait()
	for i := range instances {
		if head := must[store.Instance](t)(a.Instance(t.Context(), other(i))).Head; head != each+1 {
			t.Errorf("head is %d", head)
		}
	}
	last := admit(t, a, admission(addr, "s1"))
	there.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: last.Offset})
	if n := a.Notifications(); n == 0 || n > instances*each/2 {
		t.Errorf("%d notifications of %d appends", n, instances*each)
	}
}

// A listener whose connection is lost makes another one and says that it may have
// missed something.
func TestListenAgain(t *testing.T) {
	url := pgtest.Database(t)
	a, b := open(t, url, "flue"), open(t, url, "flue")
	there := listen(t, b)
	admit(t, b, admission(addr, "s0")) // so that b hears of it
	for range 3 {
		if n := pgtest.Value[int](t, url, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()`); n != 1 {
			t.Fatalf("%d listeners, want 1", n)
		}
		there.await(t, store.Signal{Kind: store.Missed})
		r := admit(t, a, admission(addr, pgtest.Name()))
		there.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset})
	}
}

// Each schema has signals of its own.
func TestSignalsOfASchema(t *testing.T) {
	url := pgtest.Database(t)
	long := strings.Repeat("x", 62)
	a, b, c := open(t, url, long+"1"), open(t, url, long+"2"), open(t, url, long+"1")
	wrong, right := listen(t, b), listen(t, c)
	admit(t, c, admission(addr, "s0")) // so that c hears of it
	r := admit(t, a, admission(addr, "s1"))
	right.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset})
	r = admit(t, b, admission(other(1), "s1"))
	wrong.await(t, store.Signal{Kind: store.Grown, Address: other(1), Head: r.Offset})
	wrong.mu.Lock()
	defer wrong.mu.Unlock()
	for _, s := range wrong.heard {
		if s.Address == addr {
			t.Errorf("heard %s of another schema", describe(s))
		}
	}
}

func TestListenEnds(t *testing.T) {
	s := open(t, pgtest.Database(t), "flue")
	e := listen(t, s)
	closeStore(t, s)
	if err := <-e.result; !errors.Is(err, store.ErrClosed) {
		t.Errorf("Listen on a store that was closed: %v, want ErrClosed", err)
	}
	e.result <- store.ErrClosed
	if err := s.Listen(t.Context(), e.hear); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Listen on a closed store: %v, want ErrClosed", err)
	}
}

// A payload holds no names and fits into a notification.
func TestPayloads(t *testing.T) {
	payloads, total := postgres.Payloads(5000)
	n := 0
	for _, p := range payloads {
		if len(p) >= 8000 {
			t.Errorf("a payload has %d bytes", len(p))
		}
		n += len(strings.Fields(p))
	}
	if n != total {
		t.Errorf("%d signals in the payloads, want %d", n, total)
	}
}

// What a process gives back as its last act is heard by the others.
func TestSignalsBeforeTheEnd(t *testing.T) {
	url := pgtest.Database(t)
	other := open(t, url, "flue")
	renew(t, other, "n2")
	there := listen(t, other)
	admit(t, other, admission(addr, "s0")) // so that it hears of it
	for range many(20) {
		s := open(t, url, "flue")
		admit(t, s, admission(addr, pgtest.Name()))
		there.await(t, store.Signal{Kind: store.Freed, Address: addr}) // by nobody yet
		l := take(t, s, "n1", addr)
		appendTo(t, s, l, "work") // is told at once, and what follows a little later
		if err := s.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		there.await(t, store.Signal{Kind: store.Freed, Address: addr})
	}
}

// A database that takes no signals for a while makes nobody deaf for good.
func TestListenThroughABrownout(t *testing.T) {
	server := pgtest.Database(t)
	link, over := newLink(t, server)
	var log counter
	s := openWith(t, over, postgres.Options{Timeout: time.Second, Listen: server, Log: slog.New(&log)})
	link.Drop(faultnet.Up, faultnet.Down)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := &ear{news: make(chan struct{}, 1), result: make(chan error, 1)}
	go func() { e.result <- s.Listen(ctx, e.hear) }()
	for late := time.Now().Add(2 * time.Minute); log.n.Load() < 4 && time.Now().Before(late); {
		select {
		case err := <-e.result:
			t.Fatalf("Listen: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	link.Pass()
	e.await(t, store.Signal{Kind: store.Missed})
	cancel()
	if err := <-e.result; !errors.Is(err, context.Canceled) {
		t.Errorf("Listen: %v", err)
	}
}

// A counter counts warnings of lost listeners.
type counter struct{ n atomic.Int64 }

func (*counter) Enabled(context.Context, slog.Level) bool { return true }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c *counter) WithGroup(string) slog.Handler          { return c }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "not listening") {
		c.n.Add(1)
	}
	return nil
}

// A listener whose signals never arrive says so.
func TestListenWhereNothingArrives(t *testing.T) {
	s := openWith(t, pgtest.Database(t), postgres.Options{Timeout: time.Second, Listen: pgtest.Database(t)})
	err := s.Listen(t.Context(), func(store.Signal) { t.Error("a signal has come") })
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Options.Listen") {
		t.Errorf("Listen: %v", err)
	}
}

// Who hears of instances that it has nothing to do with does not ask the database
// what they are.
func TestHearingAsksNothing(t *testing.T) {
	url := pgtest.Database(t)
	a, b := open(t, url, "flue"), openWith(t, url, postgres.Options{Timeout: time.Minute}) // so that its guard rests
	renew(t, b, "n2")
	renew(t, a, "n1") // and sees that it is not alone
	there := listen(t, b)
	admit(t, a, admission(addr, "s1"))
	watch(t, b, addr)
	before := b.Acquired()
	for i := range 50 {
		ad := admission(other(i), "s1")
		ad.Node = "n1"
		appendTo(t, a, *admit(t, a, ad).Lease, "work")
	}
	r := admit(t, a, admission(addr, "s2"))
	there.await(t, store.Signal{Kind: store.Grown, Address: addr, Head: r.Offset})
	if n := b.Acquired() - before; n != 0 {
		t.Errorf("%d connections were used to hear", n)
	}
	there.mu.Lock()
	defer there.mu.Unlock()
	for _, s := range there.heard {
		if s.Kind != store.Missed && s.Address != addr && s.Address != (store.Address{}) {
			t.Errorf("heard %s", describe(s))
		}
	}
}

// A process hears of what it owns as long as it owns it, and of what it reads live,
// however many instances it has to do with meanwhile: what is not heard of is found only
// by looking, later.
func TestOwnersHear(t *testing.T) {
	const crowd = 30_000 // more names than are remembered otherwise
	url := pgtest.Database(t)
	for name, give := range map[string]func(t *testing.T, s *postgres.Store, a store.Address) store.Lease{
		"taken": func(t *testing.T, s *postgres.Store, a store.Address) store.Lease {
			admit(t, s, admission(a, "s1"))
			return take(t, s, "n2", a)
		},
		"claimed": func(t *testing.T, s *postgres.Store, a store.Address) store.Lease {
			admit(t, s, admission(a, "s1"))
			ls := must[[]store.Lease](t)(s.Claim(t.Context(), "n2", 1))
			if len(ls) != 1 || ls[0].Address != a {
				t.Fatalf("claimed %v", ls)
			}
			return ls[0]
		},
		"admitted": func(t *testing.T, s *postgres.Store, a store.Address) store.Lease {
			ad := admission(a, "s1")
			ad.Node = "n2"
			return *admit(t, s, ad).Lease
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t, url, "flue"), open(t, url, "flue")
			renew(t, b, "n2")
			renew(t, a, "n1") // and sees that it is not alone
			there := listen(t, b)
			mine := store.Address{Agent: "clerk", ID: name}
			l := give(t, b, mine)
			read := store.Address{Agent: "clerk", ID: name + " is read"}
			admit(t, a, admission(read, "s1"))
			watch(t, b, read)
			for i := range 3 {
				b.Crowd(crowd)
				r := admit(t, a, admission(mine, fmt.Sprint("more", i)))
				there.await(t, store.Signal{Kind: store.Grown, Address: mine, Head: r.Offset})
				r = admit(t, a, admission(read, fmt.Sprint("more", i)))
				there.await(t, store.Signal{Kind: store.Grown, Address: read, Head: r.Offset})
			}

			// If even what it owns was too much, it hears again of what it has looked for.
			b.Follow(4 * crowd)
			must[[]store.Owned](t)(b.Owned(t.Context(), "n2", store.Address{}, 100))
			watch(t, b, read)
			b.Crowd(crowd)
			r := admit(t, a, admission(mine, "found"))
			there.await(t, store.Signal{Kind: store.Grown, Address: mine, Head: r.Offset})

			b.Crowd(crowd)
			if err := b.Release(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			b.Crowd(crowd)
			last := admit(t, a, admission(mine, "last"))
			for i := range 2 { // after the second one all has come that was sent before the first
				r := admit(t, a, admission(read, fmt.Sprint("after", i)))
				there.await(t, store.Signal{Kind: store.Grown, Address: read, Head: r.Offset})
			}
			there.mu.Lock()
			defer there.mu.Unlock()
			if slices.Contains(there.heard, store.Signal{Kind: store.Grown, Address: mine, Head: last.Offset}) {
				t.Error("heard of what is not its own any more")
			}
			take(t, b, "n2", mine) // nobody else is to claim them
			take(t, b, "n2", read)
		})
	}
}

// What is remembered of instances has a bound, also of those that are lost and never
// given back.
func TestNamesAreForgotten(t *testing.T) {
	s := open(t, pgtest.Database(t), "flue")
	s.Follow(1_000_000)
	if n := s.Crowd(1_000_000); n > 100_000 {
		t.Errorf("%d names are remembered", n)
	}
}
