package crashtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flue-go/flue/internal/linear"
	"github.com/flue-go/flue/store"
)

// settleLimit is how soon after the last of what was done to a fleet all that it
// has accepted must be settled.
const settleLimit = 30 * time.Second

// settle waits until the fleet has settled everything that was sent to the
// instances. It reports false if that takes too long.
func (f *fleet) settle(ctx context.Context, of []store.Address) bool {
	healed := f.healed
	if healed.IsZero() {
		healed = time.Now()
	}
	open := slices.Clone(of)
	for ctx.Err() == nil {
		open = slices.DeleteFunc(open, func(a store.Address) bool {
			in, err := f.db.Instance(ctx, a)
			return err == nil && in.Unsettled == 0
		})
		if len(open) == 0 {
			f.t.Logf("all is settled %.1f s after the last of what was done to the fleet", max(time.Since(healed), 0).Seconds())
			return true
		}
		if time.Since(healed) > settleLimit {
			f.complain("%d instances are not settled %v after the last of what was done to the fleet, such as %s", len(open), settleLimit, f.describe(ctx, open))
			return false
		}
		pause(ctx, 20*time.Millisecond)
	}
	return false
}

// describe says who works on instances, if anybody does.
func (f *fleet) describe(ctx context.Context, of []store.Address) string {
	work, err := f.db.Work(ctx, 10_000)
	if err != nil {
		return fmt.Sprint(of[0], ", ", err)
	}
	text := ""
	for _, w := range work {
		if slices.Contains(of, w.Address) {
			text += fmt.Sprintf("\n%s: %d unsettled, head %d, owner %q (alive: %v) under epoch %d", w.Address, w.Unsettled, w.Head, w.Owner, w.Live, w.Epoch)
		}
	}
	return text
}

// goOn sends one more message to each conversation, and holds what clients see to
// the promise.
func (l *load) goOn(ctx context.Context) {
	next := make(chan *chat)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for t := range next {
				for _, r := range t.replays {
					if r[0].admitted.SubmissionID != r[1].admitted.SubmissionID {
						l.complain("%s: %s was accepted as %s, and when sent again as %s", t.path(), r[0].token, r[0].admitted.SubmissionID, r[1].admitted.SubmissionID)
					}
				}
				s := t.add([]string{"charge+ship"})
				if l.client.send(ctx, t.conversation, s, false) {
					l.client.waitFrom(ctx, t.conversation, s)
				}
				if ctx.Err() == nil {
					l.client.checkHistory(ctx, t.conversation)
				}
			}
		})
	}
	for _, t := range l.chats {
		if t.uid != "" {
			next <- t
		}
	}
	close(next)
	clients.Wait()
}

// retire ends all servers in order, and reads what they have written down.
func (f *fleet) retire() *holds {
	for _, r := range f.replicas {
		if r.proc == nil {
			continue
		}
		if err := r.proc.terminate(); err != nil {
			f.complain("%s did not end well: %v; see %s", r.proc.node, err, r.proc.log)
		}
	}
	h := new(holds)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.processes {
		p.inspect(f.complaints)
		if err := h.read(p.node, p.holds); err != nil {
			f.complain("%v", err)
		}
	}
	return h
}

// audit holds the journals to the promise, and measures.
func (l *load) audit(ctx context.Context, h *holds) {
	a := &audit{complaints: l.complaints, world: l.world, db: l.db, known: make(map[string]bool), phases: make(map[string]int)}
	var all []takeover
	forgiven := 0
	a.also = func(acc *account, page store.Page) {
		s, wrong := follow(page)
		for _, w := range wrong {
			l.complain("%s: %s", page.Address, w)
		}
		s.shift(-l.skew) // batches have the time of the database
		s.retime(h.appended[page.Address.String()])
		all = append(all, s.takeovers(page.Address, l.handovers, h.released(page.Address))...)
		forgiven += l.lateEffects(acc, &s, h.owners(page.Address))
	}
	messages := 0
	for _, c := range l.begun() {
		a.conversation(ctx, c)
		messages += len(c.sends)
	}
	a.strays()
	if err := linear.Step().Check(l.world.steps.history(), judgeTime); err != nil {
		l.complain("%v", err)
	}
	operations, err := h.judge()
	if err != nil {
		l.complain("%v", err)
	}
	l.t.Logf("%d conversations, %d messages, %d batches, %d model calls, %d tool calls of which %d were cut short, %d uses of ownership; taken up in %v",
		len(l.begun()), messages, a.batches, l.world.requests, a.calls, a.failed, operations, a.phases)
	if forgiven > 0 {
		l.t.Logf("%d effects began in processes that had been stopped between their last look at the lease and the effect", forgiven)
	}
	l.reportTakeovers(all)
}

// grace is how long after it was stopped a process may begin what it had been
// about to begin.
const grace = 250 * time.Millisecond

// lateEffects complains of effects of an owner after its successor's first append.
// It returns how many a pause explains.
func (l *load) lateEffects(acc *account, s *succession, owners map[int64]string) (forgiven int) {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	for _, o := range acc.outcomes {
		e := l.world.effects[o.Call]
		if e == nil || len(e.begun) == 0 {
			continue
		}
		at := time.Unix(0, e.at)
		by, late := s.late(e.begun[0], at, owners)
		if !late {
			continue
		}
		if slices.ContainsFunc(l.pauses, func(p *span) bool {
			return p.node == e.begun[0] && at.After(p.end) && at.Before(p.end.Add(grace))
		}) {
			forgiven++
			continue
		}
		l.complain("%s: the effect of call %s began in %s %v after another owner had begun", acc.of.path(), o.Call, e.begun[0], by)
	}
	return forgiven
}

// reportTakeovers holds the times of takeovers to the promise, as long as the
// database was there.
func (l *load) reportTakeovers(all []takeover) {
	by := make(map[string][]takeover)
	for _, t := range all {
		if slices.ContainsFunc(l.outages, func(s *span) bool { return s.over(t.began, t.began.Add(t.took)) }) {
			continue
		}
		by[t.how] = append(by[t.how], t)
	}
	for _, how := range slices.Sorted(maps.Keys(by)) {
		ts := by[how]
		slices.SortFunc(ts, func(a, b takeover) int { return cmp.Compare(a.took, b.took) })
		worst := ts[len(ts)-1]
		l.t.Logf("%d takeovers after %s: median %v, p99 %v, worst %v (of %s, from %s)", len(ts), how,
			short(percentile(ts, 50).took), short(percentile(ts, 99).took), short(worst.took), worst.of, worst.began.Format(clock))
	}
	l.bound(by["kill"], "a kill", l.lease+2*time.Second)
	l.bound(by[inOrder], "a release", time.Second)
	if d := percentile(by[inTurn], 50).took; d > drainDelay+3*time.Second { // calls that run come to their end before
		l.complain("the median of takeovers after %s is %v", inTurn, d)
	}
}

// bound complains of takeovers that took too long: of the usual one, and with the
// lease of production, under which a loaded machine is not taken for a dead one, of
// one in a hundred. Of a few takeovers, as there are in a short run, one that the
// machine has delayed would be the usual one.
func (l *load) bound(sorted []takeover, after string, limit time.Duration) {
	const enough = 20
	if len(sorted) < enough {
		return
	}
	for _, p := range []int{50, 99} {
		if d := percentile(sorted, p).took; d > limit && (p == 50 || l.lease >= production) {
			l.complain("percentile %d of takeovers after %s with a lease of %v is %v, want at most %v", p, after, l.lease, d, limit)
		}
	}
}

// percentile returns the one of a hundred; of nothing, nothing.
func percentile[T any](sorted []T, p int) (v T) {
	if len(sorted) == 0 {
		return v
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// report says what was done to the fleet.
func (f *fleet) report() {
	f.t.Logf("done to the fleet: %v; %d processes there have been; the balancer was refused %d times and answered %d with 502; %v",
		f.counts, len(f.processes), f.balancer.Refused(), f.balancer.Failed(), &f.pulse)
}

// report says what clients did, and holds the availability to the promise.
func (l *load) report() {
	asked, failed, without, withoutFailed, took := l.availability()
	share := 100.0
	if asked > 0 {
		share = 100 * float64(asked-failed) / float64(asked)
	}
	l.t.Logf("%.2f %% of %d messages were accepted within %v (median %v, p99 %v), and %d of %d while the database was down",
		share, asked, askingTime, short(percentile(took, 50)), short(percentile(took, 99)), without-withoutFailed, without)
	if share < 99.9 {
		l.complain("%d of %d messages were not accepted within %v although the database was there", failed, asked, askingTime)
	}
	reconnects := 0
	followers := 0
	for _, t := range l.chats {
		if t.reader != nil {
			followers++
			reconnects += max(t.reader.requests-1, 0)
		}
	}
	l.t.Logf("operations: %v; %d arrivals were turned away; %d followers made %d requests after their first", l.operations, l.turned, followers, reconnects)
	l.fleet.report()
}
