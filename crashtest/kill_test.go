// Package crashtest kills a real server process, over and over, and holds what
// is left to the promise: whatever was accepted is answered exactly once.
//
// The server is this test's own binary, started again as a child: two agents
// on two codecs, on SQLite with full durability. What must survive (the model
// services, a ledger of what tools did, the clients) lives in the test.
package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
	"github.com/flue-go/flue/wire"
)

// A server is one life of the child process.
type server struct {
	cmd  *exec.Cmd
	base string
	log  bytes.Buffer
}

func start(t *testing.T, dir string, w *world) *server {
	t.Helper()
	s := &server{cmd: exec.Command(os.Args[0])}
	s.cmd.Env = append(os.Environ(), childEnv+"="+dir, childWorld+"="+w.URL)
	s.cmd.Stderr = &s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = s.cmd.Wait()
		t.Fatalf("the server did not start: %v\n%s", err, s.log.String())
	}
	s.base = strings.TrimSpace(line)
	return s
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// stop ends the server gracefully.
func (s *server) stop(t *testing.T) {
	t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("a graceful stop: %v\n%s", err, s.log.String())
	}
}

// A conversation is one client and what it knows.
type conversation struct {
	agent, id string
	number    int
	next      int
	pending   []string          // tokens whose send has not been acknowledged
	accepted  map[string]string // submission by token
	aborted   bool              // an abort was acknowledged at some time
	settled   map[string]wire.Settlement
}

func (c *conversation) url(base string) string { return base + "/" + c.agent + "/" + c.id }

var client = &http.Client{Timeout: 2 * time.Second}

// send sends a token's message until it is acknowledged, in this life or a
// later one. It never sends another first.
func (c *conversation) send(base string) {
	for len(c.pending) > 0 {
		token := c.pending[0]
		body, _ := json.Marshal(map[string]string{"kind": "user", "body": "please do " + token, "idempotencyKey": token})
		res, err := client.Post(c.url(base), "application/json", bytes.NewReader(body))
		if err != nil {
			return
		}
		var a wire.Admission
		err = json.NewDecoder(res.Body).Decode(&a)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusAccepted {
			return
		}
		c.accepted[token] = a.SubmissionID
		c.pending = c.pending[1:]
	}
}

// look reads the history.
func (c *conversation) look(base string) (*wire.Snapshot, error) {
	res, err := client.Get(c.url(base) + "?view=history")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%d %s %w", res.StatusCode, data, err)
	}
	snap := new(wire.Snapshot)
	if err := json.Unmarshal(data, snap); err != nil {
		return nil, err
	}
	for _, s := range snap.Settlements {
		c.settled[s.SubmissionID] = s
	}
	return snap, nil
}

func (c *conversation) open() int {
	n := len(c.pending)
	for _, sub := range c.accepted {
		if _, ok := c.settled[sub]; !ok {
			n++
		}
	}
	return n
}

// act is what the client does in one life of the server.
func (c *conversation) act(base string, rng *rand.Rand) {
	if c.open() < 1+rng.IntN(2) {
		c.pending = append(c.pending, fmt.Sprintf("T%dx%d", c.number, c.next))
		c.next++
	}
	c.send(base)
	if rng.IntN(40) == 0 {
		if res, err := client.Post(c.url(base)+"/abort", "", nil); err == nil {
			var told struct{ Aborted bool }
			if json.NewDecoder(res.Body).Decode(&told) == nil && told.Aborted {
				c.aborted = true
			}
			res.Body.Close()
		} else {
			c.aborted = true // it may have been taken
		}
	}
	_, _ = c.look(base)
}

// kills is how often the server is killed.
func kills(t *testing.T) int {
	if s := os.Getenv("FLUE_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if testing.Short() {
		return 25
	}
	return 500
}

func TestKill(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var cs []*conversation
	for i := range 8 {
		agent := []string{"openai", "anthropic"}[i%2]
		cs = append(cs, &conversation{agent: agent, id: fmt.Sprint("c", i), number: i + 1, accepted: map[string]string{}, settled: map[string]wire.Settlement{}})
	}
	began := time.Now()
	for range kills(t) {
		s := start(t, dir, w)
		deadline := time.NewTimer(time.Duration(rng.IntN(120)) * time.Millisecond)
		acted := make(chan struct{})
		go func() {
			defer close(acted)
			for _, c := range cs {
				c.act(s.base, rng)
			}
		}()
		<-deadline.C
		s.kill()
		<-acted
	}
	t.Logf("%d kills in %v", kills(t), time.Since(began).Round(time.Millisecond))

	s := start(t, dir, w)
	settle(t, cs, s.base)
	for _, c := range cs { // whatever happened, the next message works
		c.next = (c.next/10 + 1) * 10 // one that calls the tools
		c.pending = append(c.pending, fmt.Sprintf("T%dx%d", c.number, c.next))
		c.aborted = false
	}
	last := settle(t, cs, s.base)
	for i, c := range cs {
		final := c.accepted[fmt.Sprintf("T%dx%d", c.number, c.next)]
		if got := c.settled[final].Outcome; got != journal.Completed {
			t.Errorf("%s: the last message settled %q", c.id, got)
		}
		checkHistory(t, c, last[i])
	}
	s.stop(t)
	checkJournals(t, filepath.Join(dir, "crash.db"), cs, w)
	for _, complaint := range w.wrong {
		t.Errorf("a model service was sent what it would refuse: %.2000s", complaint)
	}
	total := 0
	for _, c := range cs {
		total += len(c.accepted)
	}
	if total < len(cs) {
		t.Errorf("only %d messages were accepted", total)
	}
	t.Logf("%d messages accepted, %d calls begun, %d ended", total, len(w.begun), len(w.ended))
}

// settle waits until everything that the clients sent is settled, and returns
// the histories.
func settle(t *testing.T, cs []*conversation, base string) []*wire.Snapshot {
	t.Helper()
	snaps := make([]*wire.Snapshot, len(cs))
	deadline := time.Now().Add(30 * time.Second)
	for i, c := range cs {
		for {
			c.send(base)
			snap, err := c.look(base)
			if snaps[i] = snap; err == nil && c.open() == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d messages are not settled after 30 s: %v", c.id, c.open(), err)
			}
			time.Sleep(5 * time.Millisecond) // a client that polls
		}
	}
	return snaps
}

// checkHistory holds what clients see to the promise.
func checkHistory(t *testing.T, c *conversation, snap *wire.Snapshot) {
	t.Helper()
	answers := make(map[string]string) // by the submission that they answer
	for _, m := range snap.Messages {
		for _, p := range m.Parts {
			if p.State == wire.StateStreaming || p.State == wire.StateInputAvailable {
				t.Errorf("%s: message %s is still %s", c.id, m.ID, p.State)
			}
			if m.Role == wire.RoleAssistant && p.Text != nil {
				answers[m.SubmissionID] += *p.Text
			}
		}
	}
	for token, sub := range c.accepted {
		s := c.settled[sub]
		switch s.Outcome {
		case journal.Aborted:
			continue
		case journal.Completed:
		default:
			t.Errorf("%s: %s settled %q: %s", c.id, token, s.Outcome, s.Error)
			continue
		}
		// What joined is answered together with what it joined; the script
		// answers the last.
		joined := false
		for other, o := range c.accepted {
			joined = joined || other != token && c.settled[o].AnsweredBy == s.AnsweredBy && strings.Contains(answers[s.AnsweredBy], "answer to "+other+" ")
		}
		if !strings.Contains(answers[s.AnsweredBy], "answer to "+token+" ") && !joined {
			t.Errorf("%s: %s is settled and its answer is %q\n%s", c.id, token, answers[s.AnsweredBy], around(snap, sub, s.AnsweredBy))
		}
	}
}

// around shows the messages of two submissions, for a failure.
func around(snap *wire.Snapshot, submissions ...string) string {
	var b strings.Builder
	for _, m := range snap.Messages {
		if slices.Contains(submissions, m.SubmissionID) {
			data, _ := json.Marshal(m)
			fmt.Fprintf(&b, "%s\n", data)
		}
	}
	for _, s := range snap.Settlements {
		if slices.Contains(submissions, s.SubmissionID) {
			fmt.Fprintf(&b, "%+v\n", s)
		}
	}
	return b.String()
}

// checkJournals holds the journals and the ledger to the promise.
func checkJournals(t *testing.T, path string, cs []*conversation, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for call, n := range w.begun {
		if n > 1 {
			t.Errorf("call %s began %d times", call, n)
		}
	}
	for _, c := range cs {
		st, ends, succeeded := read(t, s, store.Address{Agent: c.agent, ID: c.id})
		if st.Phase != fold.Idle || st.Unsettled() {
			t.Errorf("%s: the journal ends in phase %s", c.id, st.Phase)
		}
		for token, sub := range c.accepted {
			if len(ends[sub]) != 1 {
				t.Errorf("%s: %s has the settlements %q, want exactly one", c.id, token, ends[sub])
			}
			row, err := s.Submission(ctx, store.Address{Agent: c.agent, ID: c.id}, sub)
			if err != nil || !slices.Equal(ends[sub], []string{row.Outcome}) {
				t.Errorf("%s: the index says %q of %s, the journal %q (%v)", c.id, row.Outcome, token, ends[sub], err)
			}
		}
		var charged map[string]bool
		if raw, ok := st.Vars["charged"]; ok {
			if err := json.Unmarshal(raw, &charged); err != nil {
				t.Error(err)
			}
		}
		for _, call := range succeeded {
			if w.ended[call] != 1 {
				t.Errorf("%s: call %s is recorded as done and ended %d times", c.id, call, w.ended[call])
			}
			if token, ok := strings.CutSuffix(strings.TrimPrefix(call, "call_"), "_charge"); ok && !charged[token] {
				t.Errorf("%s: call %s succeeded and what it wrote is lost", c.id, call)
			}
		}
	}
}

// read folds a journal. It returns the settlements by submission and the calls
// that succeeded.
func read(t *testing.T, s store.Store, addr store.Address) (*fold.State, map[string][]string, []string) {
	t.Helper()
	st := &fold.State{Head: -1}
	ends := make(map[string][]string)
	var succeeded []string
	for after := int64(-1); ; {
		page, err := s.Read(context.Background(), addr, after, 1000)
		if errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s does not exist", addr)
			return st, ends, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Batches {
			batch, err := journal.Decode(b.Payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range batch.Records {
				if err := st.Apply(r); err != nil {
					t.Errorf("offset %d of %s: %v", b.Offset, addr, err)
				}
				switch r := r.(type) {
				case *journal.Settled:
					ends[r.Submission] = append(ends[r.Submission], r.Outcome)
				case *journal.Outcome:
					if !r.Failed {
						succeeded = append(succeeded, r.Call)
					}
				}
			}
			after = b.Offset
		}
		if after >= page.Head {
			return st, ends, succeeded
		}
	}
}
