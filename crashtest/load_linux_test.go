package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// A load is what many clients ask of a fleet. Their requests come when they come,
// however long those before them take: an open load.
type load struct {
	*fleet
	rate float64 // arrivals a second
	most int     // of arrivals that are being served; more are turned away

	chats     []*chat
	serving   chan struct{}
	clients   sync.WaitGroup // who send and read
	waiters   sync.WaitGroup // who wait for answers
	followers sync.WaitGroup
	drained   chan struct{} // closed when followers should end

	sums       sync.Mutex // guards what follows
	turned     int        // away
	operations map[string]int
	admissions []admission
}

// An admission is how one message was accepted.
type admission struct {
	began time.Time
	took  time.Duration
}

// A chat is one conversation that many clients take part in.
type chat struct {
	*conversation
	create  sync.Once
	uid     string
	acked   []*sending    // that were acknowledged
	replays [][2]*sending // what was sent, and the answer to sending it again
}

// newLoad makes the clients of n conversations, half of which are followed from
// the beginning to the end.
func (f *fleet) newLoad(n int, rate float64) *load {
	l := &load{fleet: f, rate: rate, most: 400, drained: make(chan struct{}), operations: make(map[string]int)}
	l.serving = make(chan struct{}, l.most)
	agents := []string{"openai", "anthropic", "shaky"}
	for i := range n {
		t := &chat{conversation: &conversation{agent: agents[i%len(agents)], id: fmt.Sprintf("t%d", i)}}
		l.chats = append(l.chats, t)
		if i%2 == 0 {
			t.reader = f.client.newReader(t.conversation, []string{"sse", "sse", "long-poll", ""}[i/2%4], wire.Start)
		}
	}
	return l
}

// run lets clients come until stop is closed, and returns when all that they have
// sent is accepted.
func (l *load) run(ctx context.Context, stop <-chan struct{}) {
	defer l.clients.Wait()
	rng := l.random(2)
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(rng.ExpFloat64() / l.rate * float64(time.Second))):
		}
		t, own := l.chats[rng.IntN(len(l.chats))], rand.New(rand.NewPCG(rng.Uint64(), 0))
		select {
		case l.serving <- struct{}{}:
			l.clients.Go(func() {
				defer func() { <-l.serving }()
				l.arrive(ctx, t, own)
			})
		default:
			l.sums.Lock()
			l.turned++
			l.sums.Unlock()
		}
	}
}

func (l *load) did(what string) {
	l.sums.Lock()
	defer l.sums.Unlock()
	l.operations[what]++
}

// arrive is what one client does.
func (l *load) arrive(ctx context.Context, t *chat, rng *rand.Rand) {
	t.create.Do(func() { l.create(ctx, t, rng) })
	if t.uid == "" {
		return // it was too late to create it
	}
	switch what := rng.IntN(100); {
	case what < 58:
		s := t.add(plans[rng.IntN(len(plans))])
		if l.send(ctx, t, s, what < 6) && what < 30 {
			l.did("wait")
			l.waiters.Go(func() { l.client.waitFrom(ctx, t.conversation, s) })
		}
	case what < 66:
		l.replay(ctx, t, rng)
	case what < 72:
		l.did("abort")
		l.client.abort(ctx, t.conversation)
	case what < 76:
		l.refused(ctx, t, nil, http.StatusConflict)
	case what < 79:
		l.refused(ctx, t, "inst_other", http.StatusNotFound)
	case what < 84:
		l.did("continue")
		s := t.draft(plans[rng.IntN(len(plans))], object{"uid": t.uid})
		t.keep(s)
		l.send(ctx, t, s, false)
	default:
		l.did("read")
		l.client.history(ctx, t.conversation)
	}
}

// create lets three clients create the conversation, of which one can.
func (l *load) create(ctx context.Context, t *chat, rng *rand.Rand) {
	var mu sync.Mutex
	var accepted []*sending
	var all sync.WaitGroup
	for range 3 {
		s := t.draft(plans[rng.IntN(len(plans))], object{"uid": nil})
		all.Go(func() {
			l.did("create")
			status, data, tries := l.client.ask(ctx, http.MethodPost, t.path(), s.request)
			switch {
			case tries == 0, status == http.StatusConflict && strings.Contains(string(data), "agent_instance_exists"):
			case status != http.StatusAccepted:
				l.complain("%s: creating it: %d %s", t.path(), status, data)
			case l.client.admitted(t.conversation, s, data, tries, false):
				mu.Lock()
				defer mu.Unlock()
				accepted = append(accepted, s)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return
	}
	if len(accepted) != 1 {
		l.complain("%s: %d of 3 clients have created it", t.path(), len(accepted))
		return
	}
	t.keep(accepted[0])
	t.uid = accepted[0].admitted.UID
	if t.reader != nil {
		l.followers.Go(func() {
			t.reader.follow(ctx, func(*wire.Conversation) bool {
				select {
				case <-l.drained:
					return true
				default:
					return false
				}
			})
		})
	}
}

// send sends a message until it is acknowledged.
func (l *load) send(ctx context.Context, t *chat, s *sending, hasty bool) bool {
	l.did("send")
	began := time.Now()
	if !l.client.send(ctx, t.conversation, s, hasty) {
		return false
	}
	l.sums.Lock()
	l.admissions = append(l.admissions, admission{began, time.Since(began)})
	l.sums.Unlock()
	t.mu.Lock()
	t.acked = append(t.acked, s)
	t.mu.Unlock()
	if s.admitted.UID != t.uid {
		l.complain("%s: %s was accepted by %s, not %s", t.path(), s.token, s.admitted.UID, t.uid)
	}
	return true
}

// replay sends a message again that was accepted before.
func (l *load) replay(ctx context.Context, t *chat, rng *rand.Rand) {
	t.mu.Lock()
	acked := t.acked
	t.mu.Unlock()
	if len(acked) == 0 {
		return
	}
	l.did("replay")
	s := acked[rng.IntN(len(acked))]
	data, tries := l.client.insist(ctx, http.MethodPost, t.path(), s.request)
	if tries == 0 {
		return
	}
	again := &sending{token: s.token}
	l.client.admitted(t.conversation, again, data, tries, true)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replays = append(t.replays, [2]*sending{s, again})
}

// refused sends a message under a condition that does not hold.
func (l *load) refused(ctx context.Context, t *chat, uid any, want int) {
	l.did("refused")
	s := t.draft(nil, object{"uid": uid})
	status, data, tries := l.client.ask(ctx, http.MethodPost, t.path(), s.request)
	if tries > 0 && status != want {
		l.complain("%s: a message for the uid %v: %d %s, want %d", t.path(), uid, status, data, want)
	}
}

// begun are the conversations that were created.
func (l *load) begun() []*conversation {
	var cs []*conversation
	for _, t := range l.chats {
		if t.uid != "" {
			cs = append(cs, t.conversation)
		}
	}
	return cs
}

// askingTime is how long a client goes on asking before it gives up. A number of
// tries would not do: the balancer knows nothing, so that while one server of three
// is stopped and another one is cut off, two requests of three are lost.
const askingTime = 30 * time.Second

// availability says how many messages were accepted, as the usual client sees it,
// while the database could be reached and while it could not.
func (l *load) availability() (asked, failed, without, withoutFailed int, took []time.Duration) {
	for _, a := range l.admissions {
		bad := 0
		if a.took > askingTime {
			bad = 1
		}
		if slices.ContainsFunc(l.outages, func(s *span) bool { return s.over(a.began, a.began.Add(a.took)) }) {
			without++
			withoutFailed += bad
			continue
		}
		asked++
		failed += bad
		took = append(took, a.took)
	}
	slices.Sort(took)
	return asked, failed, without, withoutFailed, took
}

// addresses are those of the conversations that were created.
func (l *load) addresses() []store.Address {
	var as []store.Address
	for _, c := range l.begun() {
		as = append(as, store.Address{Agent: c.agent, ID: c.id})
	}
	return as
}
