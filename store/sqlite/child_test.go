package sqlite_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// The tests of this package start the test binary again as another process,
// which does one of these with a file, by the environment.
var roles = map[string]func(file string) error{
	"open":  openRole,
	"write": writeRole,
	"step":  func(file string) error { return stepRole(file, "FULL") },
	"hasty": func(file string) error { return stepRole(file, "OFF") },
}

const (
	roleVar = "FLUE_SQLITE_TEST_ROLE"
	fileVar = "FLUE_SQLITE_TEST_FILE"
)

func TestMain(m *testing.M) {
	if role, ok := roles[os.Getenv(roleVar)]; ok {
		if err := role(os.Getenv(fileVar)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A child is another process.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer // closing it asks the process to end
	lines *bufio.Scanner
}

func start(t *testing.T, role, file string) *child {
	t.Helper()
	c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, fileVar+"="+file)
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdin, c.lines = in, bufio.NewScanner(out)
	return c
}

// kill ends the process without any warning and returns what it had still said.
func (c *child) kill(t *testing.T) (rest []string) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for c.lines.Scan() {
		rest = append(rest, c.lines.Text())
	}
	_ = c.cmd.Wait() // tells of the kill
	return rest
}

// openRole opens the file, says what came of it, and keeps it open until its
// standard input ends.
func openRole(file string) error {
	s, err := sqlite.Open(ctx, file, sqlite.Options{})
	switch {
	case errors.Is(err, store.ErrLocked):
		fmt.Println("locked")
		return nil
	case err != nil:
		return err
	}
	fmt.Println("opened")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Close()
}

// stepRole writes one after the other and says after each what is acknowledged.
func stepRole(file, synchronous string) error {
	s, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return err
	}
	if err := s.Exec(ctx, "PRAGMA synchronous = "+synchronous); err != nil {
		return err
	}
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		return err
	}
	fmt.Println("opened")
	for i := range 20 {
		r, err := s.Admit(ctx, &store.Admission{
			Address: addr, Submission: fmt.Sprint(i), Payload: fill("admit", 3000), Birth: &store.Birth{UID: "uid"},
		})
		if err != nil {
			return err
		}
		fmt.Println("acknowledged", r.Offset)
	}
	return s.Close()
}

const writers = 8

func instance(g int) store.Address {
	return store.Address{Agent: "clerk", ID: fmt.Sprint("writer-", g)}
}

// writeRole writes to several instances at once, as fast as it can and for
// ever, and says what has been acknowledged: "instance offset payload" and
// "settled instance submission".
func writeRole(file string) error {
	s, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return err
	}
	if err := s.Renew(ctx, "n1", time.Hour); err != nil {
		return err
	}
	var mu sync.Mutex
	// A line is one write to a pipe, so a kill does not cut it in two.
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	errs := make(chan error)
	for g := range writers {
		go func() { errs <- writeOne(s, g, say) }()
	}
	return <-errs
}

func writeOne(s *sqlite.Store, g int, say func(string, ...any)) error {
	a := instance(g)
	for i := 0; ; i++ {
		id := fmt.Sprintf("%d-%d-%d", os.Getpid(), g, i)
		r, err := s.Admit(ctx, &store.Admission{
			Address: a, Submission: id, Payload: []byte("admit-" + id), Birth: &store.Birth{UID: "uid"},
		})
		if err != nil {
			return err
		}
		say("%d %d admit-%s", g, r.Offset, id)
		l, err := s.Take(ctx, "n1", a)
		if err != nil {
			return err
		}
		for j := range 3 {
			p := fmt.Sprintf("work-%d-%s", j, id)
			offset, err := s.Append(ctx, l, store.Write{Payload: []byte(p)})
			if err != nil {
				return err
			}
			say("%d %d %s", g, offset, p)
		}
		if _, err := s.Append(ctx, l, store.Write{
			Payload: []byte("end-" + id), Settle: []store.Settlement{{Submission: id, Outcome: "completed"}},
		}); err != nil {
			return err
		}
		say("settled %d %s", g, id)
	}
}
