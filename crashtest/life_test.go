package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// A life is one process of the server, from its start to its end.
type life struct {
	*complaints
	n      int
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	began  time.Time
	url    string        // once up is closed
	up     chan struct{} // closed when the server listens
	gone   chan struct{} // closed before the server is made to end
	said   chan struct{} // closed when its standard output has ended

	ending  bool            // it was asked to end
	resumed []time.Duration // after began: when interrupted work was taken up; once said is closed
}

func begin(t *testing.T, c *complaints, cfg serverConfig) *life {
	t.Helper()
	l := &life{
		complaints: c, n: cfg.Life, cmd: exec.Command(os.Args[0]),
		up: make(chan struct{}), gone: make(chan struct{}), said: make(chan struct{}),
	}
	encoded, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.cmd.Env = append(os.Environ(), serverVar+"="+string(encoded))
	l.cmd.Stderr = &l.stderr
	if l.stdin, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.began = time.Now()
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go l.listen(out)
	return l
}

// listen follows what the server says.
func (l *life) listen(out io.Reader) {
	defer close(l.said)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "ready":
			l.url = rest
			close(l.up)
		case "resumed":
			l.resumed = append(l.resumed, time.Since(l.began))
		}
	}
}

// await waits until the server listens.
func (l *life) await() bool {
	select {
	case <-l.up:
		return true
	case <-l.said:
		l.complain("life %d ended before it was ready", l.n)
	case <-time.After(patience):
		l.complain("life %d was not ready in %v", l.n, patience)
	}
	return false
}

// patience bounds every wait for something that must happen soon.
const patience = 20 * time.Second

// kill ends the server as a loss of power would end its process.
func (l *life) kill() {
	select {
	case <-l.said:
		if !l.ending {
			l.complain("life %d ended by itself", l.n)
		}
	default:
	}
	_ = l.cmd.Process.Kill()
	<-l.said
	_ = l.cmd.Wait() // tells of the kill
	_ = l.stdin.Close()
	l.inspect()
}

// stop asks the server to end, and waits until it has.
func (l *life) stop() {
	_ = l.stdin.Close()
	late := time.AfterFunc(patience, func() {
		l.complain("life %d did not end within %v", l.n, patience)
		_ = l.cmd.Process.Kill()
	})
	defer late.Stop()
	<-l.said
	if err := l.cmd.Wait(); err != nil {
		l.complain("life %d did not end well: %v", l.n, err)
	}
	l.inspect()
}

// inspect looks at what the server logged: errors only, and there must be none.
func (l *life) inspect() {
	if l.stderr.Len() > 0 {
		l.complain("life %d logged:\n%s", l.n, l.stderr.String())
	}
}

// lives tells clients where the server is.
type lives struct {
	mu   sync.Mutex
	life *life         // nil between two lives
	next chan struct{} // closed when there is one
}

func newLives() *lives { return &lives{next: make(chan struct{})} }

// set makes l, which is ready, the server of the clients.
func (s *lives) set(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = l
	close(s.next)
}

// end takes l away from the clients, if they had it.
func (s *lives) end(l *life) {
	close(l.gone)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == l {
		s.life, s.next = nil, make(chan struct{})
	}
}

// current returns the server, once there is one, or nil once ctx has ended.
func (s *lives) current(ctx context.Context) *life {
	for ctx.Err() == nil {
		s.mu.Lock()
		l, next := s.life, s.next
		s.mu.Unlock()
		if l != nil {
			return l
		}
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
	return nil
}
