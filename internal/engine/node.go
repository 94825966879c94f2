package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flue-go/flue/store"
)

// nodeName makes a name for this process that no other life of any process has: two
// that had the same one would count as one for the store.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	host = strings.ToValidUTF8(strings.ReplaceAll(host, "\x00", ""), "")
	return fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

// claimable returns the agents whose instances this process claims: none stands for
// all. Of a shared store it leaves alone those that it could not work on, which
// another process may have. Otherwise there is no other, and it takes them so that it
// can say what they wait for.
func (e *Engine) claimable() (agents []string, some bool) {
	if !e.shared() {
		return nil, true
	}
	return e.names, len(e.names) > 0
}

// sortedNames returns the names of programs in order.
func sortedNames(programs map[string]Program) []string {
	names := make([]string, 0, len(programs))
	for name, p := range programs {
		if p != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// resign lets this node's lease lapse, once nothing of it runs any more: what it could
// not give back is claimed by others then, without waiting for that.
func (e *Engine) resign() {
	if !e.shared() {
		return
	}
	done := make(chan error, 1)
	go func() { done <- e.renew(e.writes, time.Millisecond) }()
	grace := time.NewTimer(e.cfg.Grace)
	defer grace.Stop()
	select {
	case err := <-done:
		if err != nil {
			e.cfg.Log.Debug("ending the lease of this node", "node", e.cfg.Node, "error", err)
		}
	case <-grace.C:
	}
}

// How long an instance waits for an agent that no process has before that is told,
// and how often it is looked for.
const (
	strayAfter = time.Minute
	strayEvery = time.Minute
	strayPage  = 256
)

// strays says of instances that wait for an agent that this program does not have
// and that nobody takes up: it may be that no process has it. It says so once of each
// agent as long as that lasts.
type strays struct {
	next time.Time
	told map[string]bool
}

func (e *Engine) lookForStrays(ctx context.Context, s *strays) {
	surveyor, ok := e.cfg.Store.(store.Surveyor)
	if !ok || !e.shared() || time.Now().Before(s.next) {
		return
	}
	s.next = time.Now().Add(strayEvery)
	work, err := surveyor.Work(ctx, strayPage)
	if err != nil {
		return // claims say what is wrong
	}
	found := make(map[string]bool)
	for _, w := range work {
		if w.Live || w.Waiting < strayAfter || e.cfg.Programs[w.Agent] != nil {
			continue
		}
		if found[w.Agent] = true; !s.told[w.Agent] {
			e.tellStray(w.Address, w.Waiting)
		}
	}
	s.told = found
}

func (e *Engine) tellStray(addr store.Address, waiting time.Duration) {
	e.cfg.Log.Warn("an instance waits for an agent that this program does not have, and nobody takes it up: start a program that has it",
		"instance", addr.String(), "agent", addr.Agent, "for", waiting.Round(time.Second))
	e.tell(Event{Type: EventStalled, Time: time.Now(), Instance: addr, Took: waiting, Reason: "no process has its agent"})
}
