package faultnet_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/faultnet"
)

// A server answers each message with itself, and notes what comes to it.
type server struct {
	ln   net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	open []net.Conn
	ends []error // how connections have ended
	got  []byte
	news chan struct{} // has a value when something has happened
}

func newServer(t *testing.T) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ln: ln, news: make(chan struct{}, 1)}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.note(func() { s.open = append(s.open, c) })
			s.wg.Go(func() { s.echo(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		s.mu.Lock()
		for _, c := range s.open {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

func (s *server) echo(c net.Conn) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			s.note(func() { s.got = append(s.got, buf[:n]...) })
			_, _ = c.Write(buf[:n])
		}
		if err != nil {
			s.note(func() { s.ends = append(s.ends, err) })
			return
		}
	}
}

func (s *server) note(fn func()) {
	s.mu.Lock()
	fn()
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// await waits until the condition holds, which is asked with the lock held.
func (s *server) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		ok := cond()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.news:
		case <-late:
			t.Fatalf("the server did not see: %s", what)
		}
	}
}

func newLink(t *testing.T, target string) *faultnet.Link {
	t.Helper()
	l, err := faultnet.NewLink(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func dial(t *testing.T, l *faultnet.Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// read reads so much of an answer, or what there is before the time is up.
func read(t *testing.T, c net.Conn, n int, within time.Duration) (string, error) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, n)
	m, err := io.ReadFull(c, buf)
	return string(buf[:m]), err
}

func want(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if got, err := read(t, c, len(text), 10*time.Second); got != text {
		t.Fatalf("read %q, %v, want %q", got, err, text)
	}
}

// silence checks that nothing comes for a while.
func silence(t *testing.T, c net.Conn) {
	t.Helper()
	got, err := read(t, c, 1, 50*time.Millisecond)
	var timeout net.Error
	if got != "" || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("read %q, %v, want nothing", got, err)
	}
}

func TestLinkPasses(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.ln.Addr().String())
	c := dial(t, l)
	for range 3 {
		write(t, c, "hello")
		want(t, c, "hello")
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the end", func() bool { return len(s.ends) == 1 })
	if !errors.Is(s.ends[0], io.EOF) {
		t.Errorf("the connection ended with %v, want EOF", s.ends[0])
	}
	if got, err := read(t, c, 1, 10*time.Second); !errors.Is(err, io.EOF) {
		t.Errorf("read %q, %v, want EOF", got, err)
	}
}

func TestLinkDrops(t *testing.T) {
	tests := []struct {
		name    string
		ways    []faultnet.Direction
		arrives bool // what is sent meanwhile comes to the server
	}{
		{"up", []faultnet.Direction{faultnet.Up}, false},
		{"down", []faultnet.Direction{faultnet.Down}, true},
		{"both", []faultnet.Direction{faultnet.Up, faultnet.Down}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t)
			l := newLink(t, s.ln.Addr().String())
			c := dial(t, l)
			write(t, c, "a")
			want(t, c, "a")
			l.Drop(tt.ways...)
			write(t, c, "b")
			silence(t, c)
			if tt.arrives {
				s.await(t, "b", func() bool { return string(s.got) == "ab" })
			}
			s.mu.Lock()
			if arrived := string(s.got) == "ab"; arrived != tt.arrives {
				t.Errorf("the server has got %q", s.got)
			}
			s.mu.Unlock()
			late := dial(t, l) // seems to be there
			write(t, late, "c")
			silence(t, late)
			l.Pass()
			want(t, c, "b")
			want(t, late, "c")
		})
	}
}

// A client that leaves while its link drops everything is not missed.
func TestLinkDropsTheEnd(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.ln.Addr().String())
	c := dial(t, l)
	write(t, c, "a")
	want(t, c, "a")
	l.Drop(faultnet.Up, faultnet.Down)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	d := dial(t, l)
	silence(t, d)
	s.mu.Lock()
	if len(s.ends) != 0 {
		t.Errorf("the server was told of the end: %v", s.ends)
	}
	s.mu.Unlock()
	l.Pass()
	s.await(t, "the end", func() bool { return len(s.ends) == 1 })
}

func TestLinkDelays(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.ln.Addr().String())
	c := dial(t, l)
	write(t, c, "a")
	want(t, c, "a")
	const delay = 40 * time.Millisecond
	l.Delay(delay)
	began := time.Now()
	write(t, c, "b")
	want(t, c, "b")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %v, want at least %v", took, 2*delay)
	}
	began = time.Now()
	for range 20 { // they are under way together
		write(t, c, "c")
	}
	want(t, c, "cccccccccccccccccccc")
	if took := time.Since(began); took > 10*delay {
		t.Errorf("20 messages took %v: they waited for each other", took)
	}
	l.Delay(time.Hour)
	write(t, c, "d")
	silence(t, c)
	l.Pass()
	want(t, c, "d")
}

func TestLinkCuts(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.ln.Addr().String())
	c := dial(t, l)
	write(t, c, "a")
	want(t, c, "a")
	l.Cut()
	if got, err := read(t, c, 1, 10*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %q, %v, want a reset", got, err)
	}
	s.await(t, "the end", func() bool { return len(s.ends) == 1 })
	if !errors.Is(s.ends[0], syscall.ECONNRESET) {
		t.Errorf("the server's end was %v, want a reset", s.ends[0])
	}
	d := dial(t, l)
	write(t, d, "b")
	want(t, d, "b")
}

func TestLinkCutsWithinAMessage(t *testing.T) {
	for _, d := range []faultnet.Direction{faultnet.Up, faultnet.Down} {
		s := newServer(t)
		l := newLink(t, s.ln.Addr().String())
		c := dial(t, l)
		write(t, c, "a")
		want(t, c, "a")
		l.CutWithin(d)
		write(t, c, "12345678")
		got, err := read(t, c, 8, 10*time.Second)
		if len(got) > 4 || err == nil {
			t.Errorf("direction %d: read %q, %v", d, got, err)
		}
		s.await(t, "the end", func() bool { return len(s.ends) == 1 })
		s.mu.Lock()
		if whole := string(s.got) == "a12345678"; whole != (d == faultnet.Down) {
			t.Errorf("direction %d: the server has got %q", d, s.got)
		}
		s.mu.Unlock()
		again := dial(t, l) // only one is cut
		write(t, again, "12345678")
		want(t, again, "12345678")
	}
}

func TestLinkHalfOpen(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.ln.Addr().String())
	c := dial(t, l)
	write(t, c, "a")
	want(t, c, "a")
	l.HalfOpen()
	if got, err := read(t, c, 1, 10*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %q, %v, want a reset", got, err)
	}
	d := dial(t, l)
	write(t, d, "b")
	want(t, d, "b")
	s.mu.Lock()
	if len(s.ends) != 0 {
		t.Errorf("the server was told: %v", s.ends)
	}
	if _, err := io.WriteString(s.open[0], "is anybody there?"); err != nil {
		t.Errorf("the server cannot write: %v", err)
	}
	s.mu.Unlock()
	l.Forget()
	s.await(t, "the end", func() bool { return len(s.ends) == 1 })
	write(t, d, "c")
	want(t, d, "c")
}

// Closing waits for everything, whatever is under way.
func TestLinkCloses(t *testing.T) {
	s := newServer(t)
	l, err := faultnet.NewLink(s.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	half, open := dial(t, l), dial(t, l)
	for _, c := range []net.Conn{half, open} {
		write(t, c, "a")
		want(t, c, "a")
	}
	l.HalfOpen()
	l.Drop(faultnet.Up, faultnet.Down)
	waiting := dial(t, l)
	write(t, waiting, "b")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, waiting, 1, 10*time.Second); err == nil {
		t.Errorf("read %q of a closed link", got)
	}
	s.await(t, "both ends", func() bool { return len(s.ends) == 2 })
	if l.Carried() < 2 {
		t.Errorf("%d connections were carried", l.Carried())
	}
}

// Nobody listens behind the link: clients are reset, not left waiting.
func TestLinkToNowhere(t *testing.T) {
	s := newServer(t)
	addr := s.ln.Addr().String()
	if err := s.ln.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", newLink(t, addr).Addr())
	if err == nil {
		defer func() { _ = c.Close() }()
		_, err = read(t, c, 1, 10*time.Second)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

// What is stranded carries nothing any more, not even when the link passes, and
// new connections do.
func TestLinkStrands(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.ln.Addr().String())
	old := dial(t, l)
	write(t, old, "before")
	want(t, old, "before")
	l.Strand()
	fresh := dial(t, l)
	write(t, old, "lost")
	write(t, fresh, "after")
	want(t, fresh, "after")
	l.Pass()
	silence(t, old)
}
