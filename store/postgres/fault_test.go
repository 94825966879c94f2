//go:build unix

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/flue-go/flue/internal/faultnet"
	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// A traffic is writes that go on while the database fails, and what came of each.
type traffic struct {
	t     *testing.T
	store *postgres.Store
	stop  chan struct{}
	wg    sync.WaitGroup
	acked atomic.Int64

	mu      sync.Mutex
	known   map[string]int64 // payload of what was acknowledged, with its offset
	unknown map[string]error // payload of what may be there or not
}

const writing = 12 // instances with an owner, of as many goroutines

// begin starts to write: to each instance an append after the other, and an
// admission now and then.
func begin(t *testing.T, s *postgres.Store) *traffic {
	tr := &traffic{t: t, store: s, stop: make(chan struct{}), known: make(map[string]int64), unknown: make(map[string]error)}
	for i := range writing {
		a := admission(other(i), "s1")
		a.Node = "n1"
		renew(t, s, "n1")
		l := admit(t, s, a).Lease
		tr.wg.Go(func() { tr.write(i, *l) })
	}
	return tr
}

func (tr *traffic) write(i int, l store.Lease) {
	for n := 0; ; n++ {
		select {
		case <-tr.stop:
			return
		default:
		}
		payload := fmt.Sprintf("append %d of %d", n, i)
		var offset int64
		var err error
		if n%5 == 0 {
			a := admission(l.Address, fmt.Sprint("s", n))
			payload = string(a.Payload) + fmt.Sprint(" to ", i)
			a.Payload = []byte(payload)
			var r store.Receipt
			r, err = tr.store.Admit(tr.t.Context(), a)
			offset = r.Offset
		} else {
			offset, err = tr.store.Append(tr.t.Context(), l, store.Write{Payload: []byte(payload)})
		}
		tr.note(payload, offset, err)
	}
}

func (tr *traffic) note(payload string, offset int64, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, refusal := range []error{store.ErrFenced, store.ErrSettled, store.ErrConflict, store.ErrOwned, store.ErrClosed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, refusal) {
			tr.t.Errorf("%s: %v", payload, err)
		}
	}
	if err != nil {
		tr.unknown[payload] = err
		return
	}
	tr.known[payload] = offset
	tr.acked.Add(1)
}

// progress waits until so many more writes have been acknowledged.
func (tr *traffic) progress(n int64) {
	tr.t.Helper()
	late := time.Now().Add(time.Minute)
	for goal := tr.acked.Load() + n; tr.acked.Load() < goal; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			var some []string
			for _, err := range tr.unknown {
				if some = append(some, err.Error()); len(some) == 5 {
					break
				}
			}
			tr.t.Fatalf("no progress in a minute; some errors: %q", some)
		}
	}
}

// end stops to write and compares what is stored with what was acknowledged.
func (tr *traffic) end() {
	tr.t.Helper()
	close(tr.stop)
	tr.wg.Wait()
	found := make(map[string]int64)
	for i := range writing {
		for offset, payload := range journal(tr.t, tr.store, other(i)) {
			if offset < 2 {
				continue
			}
			if _, twice := found[payload]; twice {
				tr.t.Errorf("%q is there twice", payload)
			}
			found[payload] = int64(offset)
		}
	}
	for payload, offset := range tr.known {
		if at, ok := found[payload]; !ok || at != offset {
			tr.t.Errorf("%q was acknowledged at %d and is at %d, %v", payload, offset, at, ok)
		}
		delete(found, payload)
	}
	landed := 0
	for payload := range found {
		if _, ok := tr.unknown[payload]; !ok {
			tr.t.Errorf("%q is there and was not sent", payload)
		}
		landed++
	}
	tr.t.Logf("%d writes were acknowledged; of %d without an answer %d are there", len(tr.known), len(tr.unknown), landed)
}

// Connections that are lost while groups are in flight lose no acknowledged write,
// and write nothing twice; others take their place.
func TestConnectionsLost(t *testing.T) {
	url := pgtest.Database(t)
	tr := begin(t, open(t, url, "flue"))
	for range many(40) {
		tr.progress(30)
		pgtest.Exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'flue/%'`)
	}
	tr.progress(30)
	tr.end()
}

// A server that is stopped, or killed, and started again has all that was
// acknowledged, and the store goes on by itself.
func TestServerRestarts(t *testing.T) {
	server := pgtest.Start(t)
	tr := begin(t, open(t, server.URL, "flue"))
	for i := range many(6) {
		tr.progress(200)
		if i%3 == 2 {
			server.Stop(t)
		} else {
			server.Kill(t)
		}
		server.Start(t)
	}
	tr.progress(200)
	tr.end()
}

// While there is no server, calls fail in time, and say so.
func TestServerAway(t *testing.T) {
	server := pgtest.Start(t)
	s := openWith(t, server.URL, postgres.Options{Timeout: time.Second})
	renew(t, s, "n1")
	a := admission(addr, "s1")
	a.Node = "n1"
	l := *admit(t, s, a).Lease
	server.Stop(t)
	began := time.Now()
	_, err := s.Append(t.Context(), l, store.Write{})
	if took := time.Since(began); err == nil || took > 5*time.Second {
		t.Errorf("Append without a server: %v, after %v", err, took)
	}
	if _, err := s.Read(t.Context(), addr, -1, 1); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("Read without a server: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Admit(ctx, admission(addr, "s2")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Admit without a server, for a caller that waits less: %v", err)
	}
	server.Start(t)
	appendTo(t, s, l, "back")
	if got := journal(t, s, addr); !slices.Contains(got, "back") || len(got) > 4 {
		t.Errorf("the journal is %q", got)
	}
}

// stuck is a client that never ends a pipeline of statements, which has locked what
// another such client has not.
func stuck(t *testing.T, url, name string) *pgproto3.Frontend {
	t.Helper()
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["application_name"] = name
	cfg.RuntimeParams["statement_timeout"] = "1000"
	cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "1000"
	c, err := pgconn.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	f := c.Frontend()
	f.Send(&pgproto3.Parse{Query: `SELECT 1 FROM flue.instances FOR UPDATE SKIP LOCKED`})
	f.Send(&pgproto3.Bind{})
	f.Send(&pgproto3.Execute{})
	f.Send(&pgproto3.Flush{}) // and never a Sync
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	for held := false; !held; {
		m, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		_, held = m.(*pgproto3.CommandComplete)
	}
	return f
}

// A client whose link dies within a pipeline of statements holds a lock that no
// timeout of the server ends. The guard does.
func TestStuckPipeline(t *testing.T) {
	url := pgtest.Database(t)
	s := openWith(t, url, postgres.Options{Timeout: time.Second})
	renew(t, s, "n1")
	a := admission(addr, "s1")
	a.Node = "n1"
	l := *admit(t, s, a).Lease
	f := stuck(t, url, "flue/flue/1s")
	spared := stuck(t, url, "flue/flue/1m0s") // of a store that waits for longer
	if n, err := s.EndStuck(t.Context()); n != 0 || err != nil {
		t.Errorf("ended %d transactions that have only begun, %v", n, err)
	}
	blocked := 0
	for late := time.Now().Add(30 * time.Second); ; blocked++ {
		_, err := s.Append(t.Context(), l, store.Write{Payload: []byte("work")})
		if err == nil {
			break
		}
		if time.Now().After(late) || errors.Is(err, store.ErrFenced) {
			t.Fatalf("the row is still locked: %v", err)
		}
	}
	if blocked == 0 {
		t.Error("the pipeline has kept nothing waiting")
	}
	for {
		m, err := f.Receive()
		if err != nil {
			t.Fatalf("the connection has ended without a word: %v", err)
		}
		if e, ok := m.(*pgproto3.ErrorResponse); ok {
			if e.Code != "57P01" { // admin_shutdown, and none of the timeouts
				t.Errorf("the connection was ended with %s: %s", e.Code, e.Message)
			}
			break
		}
	}
	spared.Send(&pgproto3.Sync{})
	if err := spared.Flush(); err != nil {
		t.Fatal(err)
	}
	if m, err := spared.Receive(); err != nil {
		t.Errorf("a client of another store was ended: %v", err)
	} else if e, ok := m.(*pgproto3.ErrorResponse); ok {
		t.Errorf("a client of another store was ended with %s: %s", e.Code, e.Message)
	}
}

// Rows that are locked keep appends to them waiting, and no others, although they
// are written in groups.
func TestLockedRowSparesOthers(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, "flue")
	renew(t, s, "n1")
	var leases []store.Lease
	for i := range 20 {
		a := admission(other(i), "s1")
		a.Node = "n1"
		leases = append(leases, *admit(t, s, a).Lease)
	}
	c, err := pgconn.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	const held = 4 // more than there are writers
	if _, err := c.Exec(t.Context(), `BEGIN; SELECT 1 FROM flue.instances WHERE name < '`+other(held).ID+`' FOR UPDATE`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	locked := make(chan error, held)
	for i := range held {
		go func() {
			_, err := s.Append(t.Context(), leases[i], store.Write{Payload: []byte("waits")})
			locked <- err
		}()
		for range 5 {
			concurrently(len(leases)-held, func(i int) { appendTo(t, s, leases[i+held], "work") })
		}
	}
	select {
	case err := <-locked:
		t.Errorf("an append to a locked row has ended: %v", err)
	default:
	}
	if _, err := c.Exec(t.Context(), `ROLLBACK`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	for range held {
		if err := <-locked; err != nil {
			t.Errorf("an append to a row that was locked: %v", err)
		}
	}
}

// A server that does not sync is warned of.
func TestFsyncWarning(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	var log bytes.Buffer
	openWith(t, server.URL, postgres.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "fsync") {
		t.Errorf("the log says %q", log.String())
	}
}

// A commit that somebody keeps from waiting for its standby has succeeded, says the
// server, with a warning. It may be gone after a failover, so it is not acknowledged.
func TestUnreplicatedIsNotAcknowledged(t *testing.T) {
	server := pgtest.Start(t)
	var log bytes.Buffer
	s := openWith(t, server.URL, postgres.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	renew(t, s, "n1")
	a := admission(addr, "s1")
	a.Node = "n1"
	l := *admit(t, s, a).Lease
	pgtest.Exec(t, server.URL, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`, `SELECT pg_reload_conf()`)
	want := []string{"birth by s1", "admit s1"}
	for _, write := range []func(string) error{
		func(p string) error {
			_, err := s.Append(t.Context(), l, store.Write{Payload: []byte("admit " + p)})
			return err
		},
		func(p string) error { _, err := s.Admit(t.Context(), admission(addr, p)); return err },
	} {
		for waited, late := false, time.Now().Add(time.Minute); !waited; {
			id := fmt.Sprint("write ", len(want))
			want = append(want, "admit "+id)
			var err error
			waited, err = breakOff(t, server.URL, func() error { return write(id) })
			switch {
			case !waited && err != nil || time.Now().After(late):
				t.Fatalf("%s does not wait for the standby: %v", id, err)
			case waited && (!errors.Is(err, postgres.ErrNoAnswer) || !errors.Is(err, store.ErrUnavailable)):
				t.Errorf("%s: %v, want ErrNoAnswer", id, err)
			}
		}
	}
	pgtest.Exec(t, server.URL, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
	if got := journal(t, s, addr); !slices.Equal(got, want) {
		t.Errorf("the journal is %q, want %q", got, want)
	}
	if !strings.Contains(log.String(), "standby") && !strings.Contains(log.String(), "replicated") {
		t.Errorf("the log says %q", log.String())
	}
}

// breakOff does a write and keeps it from waiting for a standby. It reports whether
// it had to: the server takes a moment to learn that it should wait for one.
func breakOff(t *testing.T, url string, write func() error) (waited bool, err error) {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- write() }()
	for {
		select {
		case err := <-result:
			return waited, err
		default:
		}
		if pgtest.Value[bool](t, url, `SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) > 0 FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND application_name LIKE 'flue/%'`) {
			return true, <-result
		}
	}
}

// A write whose answer is lost was done once, and its caller is told that this is
// not known.
func TestAnswersLost(t *testing.T) {
	url := pgtest.Database(t)
	p := newLossy(t, url)
	s := open(t, p.url, "flue")
	renew(t, s, "n1")
	a := admission(addr, "s1")
	a.Node = "n1"
	l := *admit(t, s, a).Lease
	want := []string{"birth by s1", "admit s1"}
	for i := range 6 {
		appendTo(t, s, l, "before") // so that the connection is there
		admit(t, s, admission(other(i), "s1"))
		p.lose.Store(true)
		payload := fmt.Sprint("admit ", i)
		var err error
		if i%2 == 0 {
			_, err = s.Append(t.Context(), l, store.Write{Payload: []byte(payload)})
		} else {
			_, err = s.Admit(t.Context(), admission(addr, fmt.Sprint(i)))
		}
		if p.lose.Load() {
			t.Error("the answer was not lost")
		}
		if !errors.Is(err, postgres.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("write %d: %v, want ErrNoAnswer", i, err)
		}
		want = append(want, "before", payload)
	}
	if got := journal(t, s, addr); !slices.Equal(got, want) {
		t.Errorf("the journal is %q, want %q", got, want)
	}
	// What may be done twice is.
	p.lose.Store(true)
	renew(t, s, "n1")
	admit(t, s, admission(other(1), "s2"))
	p.lose.Store(true)
	if _, err := s.Instance(t.Context(), addr); err != nil || p.lose.Load() {
		t.Errorf("a read whose answer is lost: %v", err)
	}
}

// A lossy is a way to a server on which answers can be lost.
type lossy struct {
	url  string
	lose atomic.Bool // the next one

	// answers is how many a connection that begins now gets, before there is
	// silence. The end of the handshake is the first. Zero is for all.
	answers atomic.Int32
}

func newLossy(t *testing.T, server string) *lossy {
	t.Helper()
	cfg, err := pgconn.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{url: pgtest.With(t, server, func(u *url.URL) { u.Host, u.RawQuery = l.Addr().String(), "sslmode=disable" })}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			answers := p.answers.Load()
			wg.Go(func() {
				network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
				up, err := net.Dial(network, address)
				if err != nil {
					client.Close()
					return
				}
				wg.Go(func() { // what is asked arrives
					_, _ = io.Copy(up, client)
					up.Close()
				})
				p.answer(up, client, answers)
				client.Close()
				up.Close()
			})
		}
	})
	return p
}

// answer hands on what the server says, until an answer is to be lost. Before that
// is the server is done with the call, which it shows by being ready for the next.
func (p *lossy) answer(up, client net.Conn, answers int32) {
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		ready := bytes.HasSuffix(buf[:n], []byte{'Z', 0, 0, 0, 5, 'I'})
		if p.lose.Load() {
			if ready && p.lose.CompareAndSwap(true, false) {
				return
			}
			continue
		}
		if answers < 0 {
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
		if ready && answers > 0 {
			if answers--; answers == 0 {
				answers = -1
			}
		}
	}
}

// Whoever begins to talk to a server, or to something in front of it, that falls
// silent after the handshake does not wait for ever, and leaves the connection.
func TestSilentAfterTheHandshake(t *testing.T) {
	server := pgtest.Database(t)
	there := open(t, server, "flue")
	var leases []store.Lease
	for i := range 2 {
		admit(t, there, admission(other(i), "s1"))
		leases = append(leases, take(t, there, "n1", other(i)))
	}
	p := newLossy(t, server)
	const patience = 500 * time.Millisecond
	s := openWith(t, p.url, postgres.Options{Timeout: patience, MaxConns: 5})
	calls := []func() error{
		func() error {
			_, err := s.Append(t.Context(), leases[0], store.Write{Payload: []byte("work")})
			return err
		},
		func() error {
			_, err := s.Append(t.Context(), leases[1], store.Write{Payload: []byte("work")})
			return err
		},
		func() error { _, err := s.Instance(t.Context(), other(0)); return err },
	}
	for _, answers := range []int32{1, 2} {
		p.answers.Store(answers)
		pgtest.Exec(t, server, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'flue/flue/500ms'`)
		for range 2 { // so that there are more calls than connections
			concurrently(len(calls), func(i int) { unavailable(t, fmt.Sprint("call ", i), calls[i]()) })
		}
		p.answers.Store(0)
		concurrently(len(calls), func(i int) {
			err := calls[i]()
			for late := time.Now().Add(40 * patience); err != nil && time.Now().Before(late); {
				err = calls[i]()
			}
			if err != nil {
				t.Errorf("call %d, long after the server has found its voice again: %v", i, err)
			}
		})
	}
}

// Opening a store does not wait for longer than for any other answer, at whatever
// moment the server falls silent.
func TestOpeningWhereSilenceFalls(t *testing.T) {
	server := pgtest.Database(t)
	open(t, server, "flue")
	p := newLossy(t, server)
	o := postgres.Options{Timeout: 500 * time.Millisecond}
	calls := []func() error{
		func() error {
			s, err := postgres.Open(t.Context(), p.url, o)
			if err == nil {
				closeStore(t, s)
			}
			return err
		},
		func() error { _, _, err := postgres.Format(t.Context(), p.url, o); return err },
	}
	for answers := int32(1); ; answers++ {
		p.answers.Store(answers)
		var failed atomic.Bool
		concurrently(len(calls), func(i int) {
			began := time.Now()
			err := calls[i]()
			if took := time.Since(began); took > 40*o.Timeout {
				t.Errorf("call %d takes %v when there is silence after %d answers: %v", i, took, answers, err)
			}
			if err != nil {
				failed.Store(true)
				unavailable(t, fmt.Sprintf("call %d after %d answers", i, answers), err)
			}
		})
		switch {
		case !failed.Load():
			return
		case answers > 20:
			t.Fatal("it never opens")
		}
	}
}

// A write that may be done twice, and is, is not told as undone when its caller gives
// up before the second time.
func TestGivingUpOnARepetition(t *testing.T) {
	server := pgtest.Database(t)
	link, over := newLink(t, server)
	s := openWith(t, over, postgres.Options{MaxConns: 5})
	admit(t, s, admission(addr, "s1"))
	l := take(t, s, "n1", addr)
	c, err := pgconn.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	if _, err := c.Exec(t.Context(), `BEGIN; SELECT 1 FROM flue.instances FOR UPDATE`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Release(ctx, l) }()
	for !pgtest.Value[bool](t, server, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`) {
		continue
	}
	link.Drop(faultnet.Up, faultnet.Down) // so that there is no other connection
	link.Cut()
	cancel()
	if err := <-result; !errors.Is(err, postgres.ErrNoAnswer) || errors.Is(err, context.Canceled) {
		t.Errorf("Release: %v, want ErrNoAnswer", err)
	}
	link.Pass()
}

// An import that fails because the database is away, or says nothing any more, tells
// that it may be tried again, and nothing is left of it.
func TestImportWithoutAnAnswer(t *testing.T) {
	link, over := newLink(t, pgtest.Database(t))
	s := openWith(t, over, postgres.Options{Timeout: time.Second})
	for what, fail := range map[string]func(){
		"cut":    link.Cut,
		"silent": func() { link.Drop(faultnet.Up, faultnet.Down) },
	} {
		in := store.Import{
			Instance: store.Instance{Address: addr, UID: "uid", Incarnation: "inc"},
			Batches: func(yield func(store.Batch, error) bool) {
				fail() // the transaction has begun
				yield(store.Batch{Payload: []byte("birth")}, nil)
			},
			Submissions: func(func(store.Accepted, error) bool) {},
			Attachments: func(func(store.Attachment, error) bool) {},
		}
		unavailable(t, "Import over a link that is "+what, s.Import(t.Context(), in))
		link.Pass()
		if _, err := s.Instance(t.Context(), addr); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Instance: %v", err)
		}
	}
}
