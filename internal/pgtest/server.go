//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Server is a PostgreSQL server of a test's own, which it may stop, kill and
// start again.
type Server struct {
	URL string // of its one database

	dir      string
	bin      string
	settings []string
	env      []string // of the server; nil for that of the test
	who      *syscall.SysProcAttr
	cmd      *exec.Cmd
	ended    chan struct{} // closed when cmd has
	log      *os.File      // of the server
}

// Start makes a server with an empty database and starts it, or skips the test
// where PostgreSQL is not installed. Settings are as in "fsync=off". It is ended,
// and everything removed, at the end of the test.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{bin: binaries(t), settings: settings}
	s.who = unprivileged(t)
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if s.who.Credential != nil {
		if err := os.Chown(dir, int(s.who.Credential.Uid), int(s.who.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s.dir = filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "-N")
	initdb.SysProcAttr, initdb.Dir = s.who, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", freePort(t))
	t.Cleanup(func() {
		s.end(t, syscall.SIGQUIT)
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.said())
		}
		s.log.Close()
	})
	s.Start(t)
	return s
}

// Start starts the server again and waits until it takes connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	cfg, err := pgx.ParseConfig(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	late := time.Now().Add(time.Minute)
	for {
		s.launch(t, cfg.Port)
		if s.ready(late) {
			return
		}
		// After a kill, what is left of the old one may still hold its memory.
		s.end(t, syscall.SIGQUIT)
		if time.Now().After(late) {
			t.Fatalf("the server does not start:\n%s", s.said())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// said is the server's log.
func (s *Server) said() string {
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) launch(t testing.TB, port uint16) {
	t.Helper()
	args := []string{
		"-D", s.dir, "-p", strconv.Itoa(int(port)), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=" + filepath.Dir(s.dir), "-c", "shared_buffers=16MB", "-c", "max_wal_size=256MB",
	}
	for _, set := range s.settings {
		args = append(args, "-c", set)
	}
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.SysProcAttr, s.cmd.Dir, s.cmd.Env = s.who, filepath.Dir(s.dir), s.env
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log // a file, because children of a killed server have it too
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	s.ended = ended
	go func() {
		_ = cmd.Wait() // it says how it was ended
		close(ended)
	}()
}

// ready waits until the server takes connections. It reports false if it has ended.
func (s *Server) ready(late time.Time) bool {
	for time.Now().Before(late) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		c, err := pgx.Connect(ctx, s.URL)
		if err == nil {
			_ = c.Close(ctx)
		}
		cancel()
		if err == nil {
			return true
		}
		select {
		case <-s.ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// Stop ends the server and all connections in good order.
func (s *Server) Stop(t testing.TB) { s.end(t, syscall.SIGINT) }

// Break ends the server and all connections at once. It recovers when it is started.
func (s *Server) Break(t testing.TB) { s.end(t, syscall.SIGQUIT) }

// Kill ends the server as kill -9 does. Its children end by themselves, soon after.
func (s *Server) Kill(t testing.TB) { s.end(t, syscall.SIGKILL) }

// Demote makes the server a standby, which answers reads and takes no writes. As with
// any server, that ends all connections.
func (s *Server) Demote(t testing.TB) {
	t.Helper()
	s.Stop(t)
	if err := os.WriteFile(filepath.Join(s.dir, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
}

// Promote makes the server take writes again.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if !Value[bool](t, s.URL, "SELECT pg_promote()") {
		t.Fatal("the standby was not promoted in time")
	}
}

func (s *Server) end(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	<-s.ended
	s.cmd = nil
}

// binaries returns where the programs of PostgreSQL are, or skips the test.
func binaries(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		const how = "the programs initdb and postgres are not installed; on Debian they are in the package postgresql"
		if os.Getenv("FLUE_REQUIRE_ALL") != "" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	return filepath.Dir(found[len(found)-1])
}

// unprivileged is how a process is started that root may not be: as the user
// postgres, if we are root.
func unprivileged(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return new(syscall.SysProcAttr)
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Skipf("root may run no PostgreSQL, and there is no user postgres: %v", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
