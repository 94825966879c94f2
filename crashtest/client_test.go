package crashtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// A conversation is one instance and what was sent to it.
type conversation struct {
	agent, id string
	reader    *reader // keeps its place in the conversation; nil if nothing does

	mu      sync.Mutex // guards what follows, while several goroutines talk to it
	drafts  int
	sends   []*sending // that were accepted, or will be
	aborts  int        // how often an abort was tried
	aborted int        // how often it was said to have found work
}

// A sending is one message, sent under a key until it was acknowledged.
type sending struct {
	token    string
	request  []byte
	admitted wire.Admission
	tries    int // it took to be acknowledged
}

func (c *conversation) path() string { return "/agents/" + c.agent + "/" + c.id }

// add makes the conversation's next message.
func (c *conversation) add(rounds []string) *sending {
	s := c.draft(rounds, nil)
	c.keep(s)
	return s
}

// draft makes a message that may be refused, with what else is sent with it.
func (c *conversation) draft(rounds []string, with object) *sending {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &sending{token: fmt.Sprintf("%s-%s-%d", c.agent, c.id, c.drafts)}
	c.drafts++
	request := object{"kind": "user", "body": body(s.token, rounds), "idempotencyKey": "key-" + s.token}
	maps.Copy(request, with)
	var err error
	if s.request, err = json.Marshal(request); err != nil {
		panic(err) // strings encode
	}
	return s
}

// keep adds a message to those of the conversation.
func (c *conversation) keep(s *sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sends = append(c.sends, s)
}

// settled reports whether v shows the end of all messages.
func (c *conversation) settled(v *wire.Conversation) bool {
	return !slices.ContainsFunc(c.sends, func(s *sending) bool { return settlementIn(v.Settlements, s) == nil })
}

// A client talks to whichever life of the server there is.
type client struct {
	*complaints
	lives *lives
	http  *http.Client
	burst int // the most messages sent without waiting for an answer

	patience time.Duration // with one try of a request; zero means without end
	silence  time.Duration // that makes a reader believe that nothing will come; zero means never
	poll     time.Duration // between two looks of who does not wait; zero means 5 ms
	shortest time.Duration // of the rests between tries; zero means 2 ms
	longest  time.Duration // of them, as they double; zero means that they do not
}

// try makes one request of l.
func (c *client) try(ctx context.Context, l *life, method, path string, body []byte) (status int, data []byte, err error) {
	if c.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.patience)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// insist repeats a request, in this life of the server and in later ones, until
// it succeeds. It returns how many tries that took, or zero if ctx ended first
// or the request was refused, which is a fault.
func (c *client) insist(ctx context.Context, method, path string, body []byte) (data []byte, tries int) {
	status, data, tries := c.ask(ctx, method, path, body)
	if tries > 0 && status >= 300 {
		c.complain("%s %s: %d %s", method, path, status, data)
		return nil, 0
	}
	return data, tries
}

// ask is insist for a request that may be refused.
func (c *client) ask(ctx context.Context, method, path string, body []byte) (status int, data []byte, tries int) {
	for tries := 1; ; tries++ {
		l := c.lives.current(ctx)
		if l == nil {
			return 0, nil, 0
		}
		status, data, err := c.try(ctx, l, method, path, body)
		if err == nil && status < 500 {
			return status, data, tries
		}
		c.rest(ctx, l, tries)
	}
}

// rest waits a moment after a failure. The server is dead, or about to be.
func (c *client) rest(ctx context.Context, l *life, tries int) {
	d := cmp.Or(c.shortest, 2*time.Millisecond)
	if c.longest > 0 {
		d = min(d<<min(tries-1, 20), c.longest)
	}
	select {
	case <-l.gone:
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// send sends the message until it is acknowledged. If the client is hasty, it
// gives its first try up at once.
func (c *client) send(ctx context.Context, to *conversation, s *sending, hasty bool) bool {
	if l := c.lives.current(ctx); hasty && l != nil {
		short, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		_, _, _ = c.try(short, l, http.MethodPost, to.path(), s.request)
		cancel()
	}
	data, tries := c.insist(ctx, http.MethodPost, to.path(), s.request)
	return tries > 0 && c.admitted(to, s, data, tries, hasty)
}

// admitted takes the answer to a message that was accepted.
func (c *client) admitted(to *conversation, s *sending, data []byte, tries int, hasty bool) bool {
	var a wire.Admission
	if err := json.Unmarshal(data, &a); err != nil || a.SubmissionID == "" {
		c.complain("%s: the admission %s: %v", to.path(), data, err)
		return false
	}
	first := s.admitted.SubmissionID
	switch {
	case first != "" && (a.SubmissionID != first || !a.Deduplicated):
		c.complain("%s: %s was accepted as %s and then as %+v", to.path(), s.token, first, a)
	case first == "" && tries == 1 && !hasty && a.Deduplicated:
		c.complain("%s: %s was sent once and is a duplicate", to.path(), s.token)
	}
	if first == "" {
		s.admitted, s.tries = a, tries
	}
	return true
}

func (c *client) abort(ctx context.Context, of *conversation) {
	of.mu.Lock()
	of.aborts++
	of.mu.Unlock()
	data, tries := c.insist(ctx, http.MethodPost, of.path()+"/abort", nil)
	var told struct {
		Aborted *bool `json:"aborted"`
	}
	if err := json.Unmarshal(data, &told); tries > 0 && (err != nil || told.Aborted == nil) {
		c.complain("%s: the abort was answered with %s", of.path(), data)
	} else if tries > 0 && *told.Aborted {
		of.mu.Lock()
		defer of.mu.Unlock()
		of.aborted++
	}
}

// history reads the conversation as it is.
func (c *client) history(ctx context.Context, of *conversation) *wire.Snapshot {
	data, tries := c.insist(ctx, http.MethodGet, of.path(), nil)
	if tries == 0 {
		return nil
	}
	snap := new(wire.Snapshot)
	if err := json.Unmarshal(data, snap); err != nil {
		c.complain("%s: the history: %v", of.path(), err)
		return nil
	}
	return snap
}

// wait waits until everything that was sent is settled, in one of the ways in
// which a client can learn of it.
func (c *client) wait(ctx context.Context, of *conversation, rng *rand.Rand) {
	switch {
	case of.reader != nil:
		of.reader.follow(ctx, of.settled)
	case rng.IntN(2) == 0:
		for _, s := range of.sends {
			c.waitFrom(ctx, of, s)
		}
	default:
		for ctx.Err() == nil {
			snap := c.history(ctx, of)
			if snap == nil || of.settled(&wire.Conversation{Settlements: snap.Settlements}) {
				return
			}
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// waitFrom waits for the end of one message. It reads from where the admission
// said, which must be early enough to see all that came of the message.
func (c *client) waitFrom(ctx context.Context, of *conversation, s *sending) {
	r := c.newReader(of, "sse", s.admitted.Offset)
	var end *wire.Settlement
	r.follow(ctx, func(v *wire.Conversation) bool {
		end = settlementIn(v.Settlements, s)
		return end != nil
	})
	if end == nil || end.Outcome != journal.Completed {
		return
	}
	for i := range r.seen.Messages {
		if m := &r.seen.Messages[i]; m.Role == wire.RoleUser && m.SubmissionID == s.admitted.SubmissionID {
			return
		}
	}
	c.complain("%s: after the offset %s of its admission %s is settled, but its message does not appear", of.path(), s.admitted.Offset, s.token)
}

// settlementIn returns the settlement of the message, or nil.
func settlementIn(settlements []wire.Settlement, s *sending) *wire.Settlement {
	for i := range settlements {
		if settlements[i].SubmissionID == s.admitted.SubmissionID {
			return &settlements[i]
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// plans are the rounds of calls that messages ask for. None has two charges
// side by side: when one of them is interrupted, what the other wrote to the
// state may have been made from what the interrupted one wrote, and keep it.
var plans = [][]string{
	nil,
	{"charge"},
	{"ship"},
	{"charge+ship"},
	{"charge", "ship"},
	{"charge", "charge+ship"},
	{"ship+charge", "ship"},
	{"pack"},
	{"charge+pack", "ship"},
}

// converse holds a conversation of a few messages. Some are sent while an
// earlier one is being answered, some are aborted.
func (c *client) converse(ctx context.Context, with *conversation, rng *rand.Rand) {
	if live := []string{"sse", "long-poll", "", "none", "none"}[rng.IntN(5)]; live != "none" {
		with.reader = c.newReader(with, live, wire.Start)
	}
	for range 2 + rng.IntN(4) {
		for n := 0; n == 0 || n < c.burst && rng.IntN(10) < 4; n++ {
			s := with.add(plans[rng.IntN(len(plans))])
			if !c.send(ctx, with, s, rng.IntN(10) == 0) {
				return
			}
			if rng.IntN(10) == 0 && !c.send(ctx, with, s, false) {
				return
			}
			pause(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
		}
		if rng.IntN(7) == 0 {
			c.abort(ctx, with)
		}
		if c.wait(ctx, with, rng); ctx.Err() != nil {
			return
		}
	}
}
