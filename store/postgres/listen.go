package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

var _ store.Sharer = (*Store)(nil)

const (
	// still is how often a listener looks whether its connection is alive.
	still = 10 * time.Second

	// deaf is on how many connections, one after the other, a listener does not
	// hear what it says to itself before it concludes that it cannot hear at all.
	deaf = 3
)

// errDeaf means that a connection is good but signals do not come by it.
var errDeaf = errors.New("signals do not arrive: is there a pooler in between that gives connections away by transaction? " +
	"Give Options.Listen a URL that leads to the server itself")

// Listen implements [store.Sharer]. It has a connection of its own, see
// Options.Listen, and makes another one when that is lost. fn should not take
// long: the server keeps what a listener has not taken yet.
func (s *Store) Listen(ctx context.Context, fn func(store.Signal)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if s.signals.wake == nil {
		return fmt.Errorf("listen: %w: the server has no notifications", errors.ErrUnsupported)
	}
	listening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	wait, failures := firstWait, 0
	for {
		began := time.Now()
		err := s.listen(listening, fn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case listening.Err() != nil:
			return store.ErrClosed
		case errors.Is(err, errDeaf):
			if failures++; failures == deaf {
				return fmt.Errorf("listen: %w: %w", errors.ErrUnsupported, err)
			}
		default:
			failures = 0
		}
		if time.Since(began) > 2*still {
			wait, failures = firstWait, 0
		}
		s.opts.Log.WarnContext(ctx, "not listening to what other processes do; trying again", "error", err, "after", wait)
		select {
		case <-time.After(wait/2 + mathrand.N(wait)):
		case <-listening.Done():
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// firstWait is how long to wait, about, before a lost connection is made again.
const firstWait = 50 * time.Millisecond

// listen hands on signals until its connection is lost.
func (s *Store) listen(ctx context.Context, fn func(store.Signal)) error {
	connecting, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	c, err := pgx.ConnectConfig(connecting, s.listener)
	if err != nil {
		return plain(err)
	}
	defer c.Close(context.WithoutCancel(connecting))
	if err := s.dialect.listen(connecting, c, channel(s.opts.Schema)); err != nil {
		return plain(err)
	}
	if err := s.await(connecting, c); err != nil {
		return err
	}
	fn(store.Signal{Kind: store.Missed})
	look := time.Now().Add(still)
	for {
		h, err := s.hear(ctx, c, &look)
		if err != nil {
			return err
		}
		s.tell(h, fn)
	}
}

// await says hello to itself, again and again, until it hears that. What else is
// heard until then is covered by the signal that something may have been missed.
//
// It is deaf only if a hello that was sent did not come back. One that the database
// did not take says nothing of signals.
func (s *Store) await(ctx context.Context, c *pgx.Conn) error {
	unheard := 0
	var failed error
	for {
		err := s.post(ctx, []string{"h" + s.signals.self})
		if err != nil {
			failed = err
		}
		heard, lost := s.hearsItself(ctx, c, s.opts.Timeout/10)
		switch {
		case heard:
			return nil
		case lost != nil:
			return lost
		case err == nil && ctx.Err() == nil:
			unheard++
		}
		switch {
		case ctx.Err() == nil:
		case unheard > 0:
			return errDeaf
		default:
			return fmt.Errorf("nothing could be sent to find out whether signals arrive: %w", cmp.Or(failed, ctx.Err()))
		}
	}
}

// hearsItself waits for a hello of this process.
func (s *Store) hearsItself(ctx context.Context, c *pgx.Conn, patience time.Duration) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n, err := c.WaitForNotification(waiting)
		switch {
		case err != nil && waiting.Err() != nil && !c.IsClosed():
			return false, nil
		case err != nil:
			return false, plain(err)
		case slices.Contains(parse(n.Payload).hello, s.signals.self):
			return true, nil
		}
	}
}

// hear waits for the next notification. From time to time it looks whether the
// connection is alive, and lets the others know that somebody listens.
func (s *Store) hear(ctx context.Context, c *pgx.Conn, look *time.Time) (heard, error) {
	for {
		if !time.Now().Before(*look) {
			if err := s.probe(ctx, c); err != nil {
				return heard{}, err
			}
			*look = time.Now().Add(still)
		}
		waiting, cancel := context.WithDeadline(ctx, *look)
		n, err := c.WaitForNotification(waiting)
		quiet := err != nil && waiting.Err() != nil && ctx.Err() == nil && !c.IsClosed()
		cancel()
		switch {
		case quiet:
		case err != nil:
			return heard{}, plain(err)
		default:
			return parse(n.Payload), nil
		}
	}
}

func (s *Store) probe(ctx context.Context, c *pgx.Conn) error {
	s.signals.greet()
	probing, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	if err := answer(c.Ping(probing)); err != nil {
		return err
	}
	if closed(c.PgConn()) { // nobody says anything there any more
		return errReadOnly
	}
	return nil
}

// tell hands on what was heard. It asks the database nothing: what it does not know
// by name this process neither owns nor reads, see ids, and that another instance
// is free it says without the name.
func (s *Store) tell(h heard, fn func(store.Signal)) {
	for _, word := range h.hello {
		s.signals.greeted(word)
	}
	if h.missed {
		fn(store.Signal{Kind: store.Missed})
	}
	for i, k := range h.about {
		if a, known := s.ids.addr(k.id); known || k.kind == 'f' {
			fn(k.signal(a, h.heads[i]))
		}
	}
}
