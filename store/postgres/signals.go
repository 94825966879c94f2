package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

const (
	// pace is how long after one notification the next one is sent at the
	// earliest. What comes meanwhile goes with it.
	pace = 5 * time.Millisecond

	// maxPayload bounds one notification, of which PostgreSQL takes 8,000 bytes.
	maxPayload = 7900

	// maxPending bounds what is kept while nothing can be sent. Beyond it
	// listeners are told that they have missed something.
	maxPending = 1 << 15
)

// A signaler collects what other processes should hear of, and says it by
// notifications of the database. They are not part of the transactions that they
// tell of: a transaction that notifies holds a lock, which all of the server share,
// while it is made durable. If one is lost, the truth is found later.
type signaler struct {
	mu      sync.Mutex
	pending map[signalKey]int64 // with the head
	lost    bool
	self    string        // a word that stands for this process; it does not change
	hello   bool          // it is to be said that this process listens
	alone   bool          // no other node lives
	heard   time.Time     // when somebody last said hello
	wake    chan struct{} // has a token if there is something to send; nil if nothing ever is
}

// A signalKey is of the letter that stands for the kind in a payload, and the id
// of an instance.
type signalKey struct {
	kind byte
	id   int64
}

func (g *signaler) init() {
	g.pending = make(map[signalKey]int64)
	g.self = rand.Text()[:12]
	g.wake = make(chan struct{}, 1)
}

// company is how long somebody who has said hello is believed to listen.
const company = 20 * time.Second

// wanted reports whether anybody may be listening.
func (g *signaler) wanted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wanting()
}

func (g *signaler) wanting() bool {
	return g.wake != nil && (!g.alone || time.Since(g.heard) < company)
}

// others is told how many other nodes live.
func (g *signaler) others(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone = n == 0
}

// greeted is told that somebody listens, who need not be a node.
func (g *signaler) greeted(word string) {
	who, _, _ := strings.Cut(word, ".") // older programs add a number
	g.mu.Lock()
	defer g.mu.Unlock()
	if who != g.self {
		g.heard = time.Now()
	}
}

func (g *signaler) grown(id, head int64) { g.add(signalKey{'g', id}, head) }
func (g *signaler) freed(id int64)       { g.add(signalKey{'f', id}, 0) }
func (g *signaler) watched(id int64)     { g.add(signalKey{'w', id}, 0) }

func (g *signaler) add(k signalKey, head int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.wanting() {
		return
	}
	if len(g.pending) >= maxPending {
		clear(g.pending)
		g.lost = true
	}
	g.pending[k] = max(g.pending[k], head)
	g.rouse()
}

// greet says that this process listens.
func (g *signaler) greet() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hello = true
	g.rouse()
}

// lose makes the next notification say that there should have been others.
func (g *signaler) lose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = true
}

func (g *signaler) rouse() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// take returns what is to be sent, as payloads.
func (g *signaler) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var words []string
	if g.lost {
		words = append(words, "m")
	}
	if g.hello {
		words = append(words, "h"+g.self)
	}
	for k, head := range g.pending {
		words = append(words, k.word(head))
	}
	clear(g.pending)
	g.lost, g.hello = false, false
	return join(words)
}

func (k signalKey) word(head int64) string {
	if k.kind == 'g' {
		return fmt.Sprintf("g%d:%d", k.id, head)
	}
	return fmt.Sprintf("%c%d", k.kind, k.id)
}

// join makes as few payloads of the words as may be.
func join(words []string) (payloads []string) {
	var b strings.Builder
	for _, w := range words {
		if b.Len() > 0 && b.Len()+1+len(w) > maxPayload {
			payloads = append(payloads, b.String())
			b.Reset()
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w)
	}
	if b.Len() > 0 {
		payloads = append(payloads, b.String())
	}
	return payloads
}

// A heard is what a payload says.
type heard struct {
	missed bool
	hello  []string
	about  []signalKey
	heads  []int64
}

// parse reads a payload. What it does not know is of a newer program, and left
// out.
func parse(payload string) (h heard) {
	for word := range strings.FieldsSeq(payload) {
		switch kind := word[0]; kind {
		case 'm':
			h.missed = true
		case 'h':
			h.hello = append(h.hello, word[1:])
		case 'g', 'f', 'w':
			number, at, _ := strings.Cut(word[1:], ":")
			id, err := strconv.ParseInt(number, 10, 64)
			head, _ := strconv.ParseInt(at, 10, 64)
			if err == nil {
				h.about = append(h.about, signalKey{kind, id})
				h.heads = append(h.heads, head)
			}
		}
	}
	return h
}

func (k signalKey) signal(a store.Address, head int64) store.Signal {
	switch k.kind {
	case 'g':
		return store.Signal{Kind: store.Grown, Address: a, Head: head}
	case 'f':
		return store.Signal{Kind: store.Freed, Address: a}
	}
	return store.Signal{Kind: store.Watched, Address: a}
}

// notify sends signals until the store closes: what comes when nothing has been
// sent for a while at once, the rest together. At the end it sends what is left,
// which is often that instances are free.
func (s *Store) notify() {
	for {
		select {
		case <-s.quit:
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s.send(ctx)
			return
		case <-s.signals.wake:
		}
		s.send(context.Background())
		select {
		case <-s.quit:
		case <-time.After(pace):
		}
	}
}

func (s *Store) send(ctx context.Context) {
	payloads := s.signals.take()
	if len(payloads) == 0 {
		return
	}
	if err := s.post(ctx, payloads); err != nil {
		s.signals.lose()
		s.opts.Log.Debug("signals to other processes were lost", "error", err)
		return
	}
	s.sent.Add(int64(len(payloads)))
}

// post sends payloads.
func (s *Store) post(ctx context.Context, payloads []string) error {
	m := manner{pool: s.urgent, patience: s.opts.Timeout / 5, repeat: true}
	return s.run(ctx, m, func(ctx context.Context, c *pgx.Conn) error {
		return each(ctx, c, func(pgx.Rows) error { return nil }, s.dialect.notifySQL(), channel(s.opts.Schema), payloads)
	})
}
