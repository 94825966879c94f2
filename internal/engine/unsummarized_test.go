package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// A summaryless model answers, with a window of 6,000 tokens, and writes no summary
// unless fail is nil.
type summaryless struct {
	narrow
	fail func(ctx context.Context, yield func(model.Event, error) bool)
	at   []time.Time // when a summary was asked for
}

func newSummaryless(w *world, fail func(ctx context.Context, yield func(model.Event, error) bool)) *summaryless {
	u := &summaryless{narrow: narrow{window: 6000}, fail: fail}
	u.use(w, true)
	w.info.Cost = model.Cost{Input: 1, Output: 1}
	info := w.infos["m"]
	info.Cost = w.info.Cost
	w.infos["m"] = info
	w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if isSummary(req) {
			u.mu.Lock()
			u.at = append(u.at, time.Now())
			fail := u.fail
			u.mu.Unlock()
			if fail != nil {
				fail(ctx, yield)
				return
			}
		}
		u.reply(ctx, req, yield)
	}
	return u
}

// asks is how often a summary was asked for.
func (u *summaryless) asks() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.at)
}

// set makes it fail in another way, or not at all.
func (u *summaryless) set(fail func(ctx context.Context, yield func(model.Event, error) bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fail, u.at = fail, nil
}

func deadKey(_ context.Context, yield func(model.Event, error) bool) {
	yield(nil, &model.Error{Class: model.Auth, Status: 401, Message: "no such key"})
}

func silent(ctx context.Context, yield func(model.Event, error) bool) {
	<-ctx.Done()
	yield(nil, context.Cause(ctx))
}

// fill holds a conversation until a summary is asked for.
func (u *summaryless) fill(t *testing.T, e *engine.Engine) (messages int) {
	t.Helper()
	for i := range 100 {
		if u.asks() > 0 {
			return i
		}
		converse(t, e, fmt.Sprintf("m%d %s", i, prose(i, 60)))
	}
	t.Fatal("no summary was asked for")
	return 0
}

func unsummarized(t testing.TB, s store.Store) (out []*journal.Unsummarized) {
	t.Helper()
	for _, r := range records(t, s, chat) {
		if r, ok := r.(*journal.Unsummarized); ok {
			out = append(out, r)
		}
	}
	return out
}

// sums holds what a settlement says of a response to what its turns and its
// summaries said, and returns what all of them have cost.
func sums(t *testing.T, w *world) (all model.Expense) {
	t.Helper()
	usage, cost := make(map[string]model.Usage), make(map[string]model.Expense)
	for _, ev := range w.seen() {
		switch ev.Type {
		case engine.EventTurnDone, engine.EventCompacted:
			usage[ev.Submission] = usage[ev.Submission].Add(ev.Usage)
			cost[ev.Submission] = cost[ev.Submission].Add(ev.Cost)
			all = all.Add(ev.Cost)
		case engine.EventSettled:
			if ev.Usage != usage[ev.Submission] || ev.Cost != cost[ev.Submission] {
				t.Errorf("%s has used %+v for %+v, its turns and summaries %+v for %+v", ev.Submission, ev.Usage, ev.Cost, usage[ev.Submission], cost[ev.Submission])
			}
		}
	}
	return all
}

// What was used for a summary that could not be had counts: as the provider says,
// or by estimate where it may have charged for what it has not said.
func TestFailedSummaryCounts(t *testing.T) {
	long := strings.Repeat("many words ", 300) // nine hundred tokens by the estimate
	for name, tt := range map[string]struct {
		fail        func(ctx context.Context, yield func(model.Event, error) bool)
		usage       model.Usage // of each call
		calls       int
		input       bool // the prompt is estimated
		least, most int  // the estimate of the answer
		free        bool
	}{
		"refused": {fail: deadKey, calls: 1, free: true},
		"said": {fail: func(_ context.Context, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Retryable, Message: "cut", Usage: model.Usage{Input: 5000, Output: 100}})
		}, usage: model.Usage{Input: 5000, Output: 100}, calls: 2},
		"broken": {fail: func(_ context.Context, yield func(model.Event, error) bool) {
			yield(model.Delta{Kind: model.Text, Text: long}, nil)
			yield(nil, &model.Error{Class: model.Retryable, Message: "cut"})
		}, calls: 2, input: true, least: 1700, most: 1900},
		"broken in a thought": {fail: func(_ context.Context, yield func(model.Event, error) bool) {
			yield(model.Delta{Kind: model.Reasoning, Text: long}, nil)
			yield(nil, &model.Error{Class: model.Overloaded, Message: "cut"})
		}, calls: 2, input: true, least: 1700, most: 1900},
		"a call": {fail: func(_ context.Context, yield func(model.Event, error) bool) {
			yield(model.BlockDone{Block: model.Block{Kind: model.ToolCall, Name: "work", Arguments: long}}, nil)
			yield(model.Done{Stop: model.StopToolUse}, nil)
		}, calls: 2, input: true, least: 1700, most: 2000},
		"empty": {fail: func(_ context.Context, yield func(model.Event, error) bool) {
			yield(model.Done{Stop: model.StopEnd, Usage: model.Usage{Input: 3000, Output: 1}}, nil)
		}, usage: model.Usage{Input: 3000, Output: 1}, calls: 2},
		"silent": {fail: silent, calls: 1, input: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				u := newSummaryless(w, tt.fail)
				s := memstore.New()
				e := w.start(t, s)
				u.fill(t, e)
				stop(t, e)
				all := unsummarized(t, s)
				if len(all) != 1 || u.asks() != tt.calls {
					t.Fatalf("%d summaries could not be had in %d calls", len(all), u.asks())
				}
				r := all[0]
				want := journal.Usage{Input: tt.calls * tt.usage.Input, Output: tt.calls * tt.usage.Output}
				if r.Usage != want || r.Calls != tt.calls || r.Error == nil || r.Model != "m" || (r.Guess.Input > 3000*tt.calls) != tt.input || r.Guess.Output < tt.least || r.Guess.Output > tt.most {
					t.Errorf("it has used %+v and, by estimate, %+v in %d calls, of %s, for %+v", r.Usage, r.Guess, r.Calls, r.Model, r.Error)
				}
				known := r.Cost != nil
				if free := known && *r.Cost == 0; free != tt.free || !known && r.AtMost != 1000*int64(r.Usage.Total()+r.Guess.Total()) || known && *r.Cost != 1000*int64(r.Usage.Total()) {
					t.Errorf("it has cost %v, at most %d", r.Cost, r.AtMost)
				}
				// All that was used is in the state, and in what is told.
				st := folded(t, s)
				turns, guessed := journal.Usage{}, 0
				for _, d := range turnsDone(t, s) {
					turns, guessed = turns.Add(d.Usage), guessed+d.Guess.Total()
				}
				if st.Usage != turns.Add(r.Usage) || st.Spent.Guessed != guessed+r.Guess.Total() {
					t.Errorf("the state has %+v and %+v", st.Usage, st.Spent)
				}
				if told := sums(t, w); told != engine.Expense(st.Cost) {
					t.Errorf("told the cost %+v, the state has %+v", told, engine.Expense(st.Cost))
				}
				bounded := &journal.Budget{Instance: &journal.Limits{Tokens: 1}}
				if used := st.BudgetUse(bounded)[0].Used; used != int64(st.Usage.Total()+st.Spent.Guessed) {
					t.Errorf("%d tokens are used", used)
				}
			})
		})
	}
}

// A summary that is cut counts what was asked for, whether its process is there to
// say so or has died, and says nothing of the next one.
func TestCutSummaryCounts(t *testing.T) {
	for name, cut := range map[string]func(t *testing.T, e *engine.Engine, s *memstore.Store) *memstore.Store{
		"abort": func(t *testing.T, e *engine.Engine, s *memstore.Store) *memstore.Store {
			if _, err := e.Abort(t.Context(), chat); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return die(t, e, s)
		},
		"closing": func(t *testing.T, e *engine.Engine, s *memstore.Store) *memstore.Store {
			stop(t, e)
			return s.Reopen()
		},
		"deadline": func(t *testing.T, e *engine.Engine, s *memstore.Store) *memstore.Store {
			time.Sleep(4 * time.Minute)
			return die(t, e, s)
		},
		"death": die,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.budget.Timeout = 4 * time.Minute
				u := newSummaryless(w, silent)
				s := memstore.New()
				e := w.start(t, s)
				var id string
				for i := 0; u.asks() == 0; i++ {
					id = send(t, e, chat, fmt.Sprintf("m%d %s", i, prose(i, 60)))
					synctest.Wait()
				}
				time.Sleep(time.Second)
				s = cut(t, e, s)
				u.set(nil)
				e = w.start(t, s)
				settled(t, e, chat, id)
				converse(t, e, "and now")
				stop(t, e)
				all := unsummarized(t, s)
				if len(all) != 1 || len(compactions(t, s)) != 1 {
					t.Fatalf("%d summaries could not be had, %d could", len(all), len(compactions(t, s)))
				}
				r := all[0]
				if r.Error != nil || r.Next != 0 || r.Calls != 1 || r.Model != "m" || r.Guess.Input < 3000 || r.Guess.Input > 8000 || r.Cost != nil || r.AtMost != 1000*int64(r.Guess.Total()) {
					t.Errorf("it is %+v", r)
				}
				if st := folded(t, s); st.Spent.Guessed != r.Guess.Total() || st.Cost.AtMost != r.AtMost || st.Summarizing != nil || st.Unsummarized.Failures != 0 {
					t.Errorf("the state has %+v, %+v and %+v", st.Spent, st.Cost, st.Unsummarized)
				}
				sums(t, w)
			})
		})
	}
}

// Summaries that cannot be had use up a budget: the response in which that happens
// ends with a last turn, and the next message is refused.
func TestFailedSummariesUseUpABudget(t *testing.T) {
	for _, scope := range []journal.BudgetScope{journal.ScopeInstance, journal.ScopeSubmission} {
		t.Run(string(scope), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				u := newSummaryless(w, func(_ context.Context, yield func(model.Event, error) bool) {
					yield(nil, &model.Error{Class: model.Invalid, Status: 400, Message: "no", Usage: model.Usage{Input: 500_000}})
				})
				limits := &journal.Limits{Tokens: 900_000}
				if w.limits = (&journal.Budget{Instance: limits}); scope == journal.ScopeSubmission {
					w.limits = &journal.Budget{Submission: limits}
				}
				s := memstore.New()
				e := w.start(t, s)
				defer stop(t, e)
				u.fill(t, e)
				var last *journal.Settled
				for _, r := range records(t, s, chat) {
					if r, ok := r.(*journal.Settled); ok {
						last = r
					}
				}
				if last.Outcome != journal.Completed || last.Budget == nil || last.Budget.Scope != scope || last.Budget.Limit != journal.LimitTokens {
					t.Errorf("the response in which it happens settled %s, for %v", last.Outcome, last.Budget)
				}
				if shown := shownText(w.latest()); !w.latest().ToolsOff || !strings.Contains(shown, "This is your last turn") {
					t.Errorf("the last request shows %q", shown)
				}
				want := journal.Failed
				if scope == journal.ScopeSubmission { // it has a budget of its own
					want = journal.Completed
				}
				if got := settled(t, e, chat, send(t, e, chat, "and now")); got != want {
					t.Errorf("the next message settled %s", got)
				}
				if u.asks() != 2 {
					t.Errorf("a summary was asked for %d times", u.asks())
				}
			})
		})
	}
}

// A summary that cannot be had is asked for again after a pause, each longer than
// the one before, and neither a death nor another process begins anew, however
// wrong its clock is. When one is had, that is over.
func TestPauseBetweenSummaries(t *testing.T) {
	for name, tt := range map[string]struct {
		fail  func(ctx context.Context, yield func(model.Event, error) bool)
		pause func(n int) time.Duration // after the n-th failure
		takes time.Duration             // a try
	}{
		"dead key": {deadKey, doubled(time.Minute), 0},
		"invalid": {func(_ context.Context, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Invalid, Status: 400, Message: "no"})
		}, doubled(time.Minute), 0},
		"quota that asks for a pause": {func(_ context.Context, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Quota, Status: 402, Message: "pay", RetryAfter: 20 * time.Minute})
		}, func(n int) time.Duration { return max(20*time.Minute, doubled(time.Minute)(n)) }, 0},
		"silent": {silent, doubled(10 * time.Minute), 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := memstore.New()
				var tries []time.Time
				well := false
				open := func(name string, by time.Duration) *node {
					w := newWorld()
					w.clock = ahead(by)
					u := newSummaryless(w, func(ctx context.Context, yield func(model.Event, error) bool) {
						if well {
							say(yield, "they talked")
							return
						}
						if len(tries) == 0 || time.Since(tries[len(tries)-1]) > 20*time.Second { // and not the second call
							tries = append(tries, time.Now())
						}
						tt.fail(ctx, yield)
					})
					// There is room for all that is said, so that nothing need be dropped.
					u.window, w.compaction = 100_000, &journal.Compaction{ReserveTokens: 86_000}
					w.infos["m"] = model.Info{ContextWindow: 100_000, MaxOutput: 1000}
					return w.joinHearing(t, name, durable, hearings[0].signals)
				}
				hold := func(n *node, until func() bool) {
					for i := 0; !until(); i++ {
						if converse(t, n.e, fmt.Sprintf("m%d", i)); i > 2000 {
							t.Fatalf("after %v nothing has changed", tries)
						}
						time.Sleep(30 * time.Second)
					}
				}
				a := open("a", -time.Hour)
				for i := 0; len(tries) == 0; i++ {
					converse(t, a.e, fmt.Sprintf("m%d %s", i, prose(i, 120)))
				}
				hold(a, func() bool { return len(tries) == 3 })
				a.kill(t)
				b := open("b", time.Hour)
				hold(b, func() bool { return len(tries) == 5 })
				b.kill(t)
				c := open("c", 0)
				defer func() { stop(t, c.e) }()
				hold(c, func() bool { return len(tries) == 9 })
				for i := range tries[1:] {
					gap, want := tries[i+1].Sub(tries[i])-tt.takes, tt.pause(i+1)
					if gap < want*3/4 || gap > want+2*time.Minute {
						t.Errorf("%v after failure %d, want about %v", gap, i+1, want)
					}
				}
				well = true
				hold(c, func() bool { return len(compactions(t, durable)) == 1 })
				well = false
				last := compactions(t, durable)[0]
				if st := foldAll(t, durable); last.Dropped || st.Unsummarized.Failures != 0 {
					t.Errorf("compacted %+v, and the state has %+v", last, st.Unsummarized)
				}
				tries = nil
				for i := 0; len(tries) == 0; i++ {
					converse(t, c.e, fmt.Sprintf("n%d %s", i, prose(i, 120)))
				}
				hold(c, func() bool { return len(tries) == 2 })
				if gap := tries[1].Sub(tries[0]) - tt.takes; gap > tt.pause(1)+2*time.Minute {
					t.Errorf("after a summary the first pause is %v", gap)
				}
			})
		})
	}
}

// doubled is a pause that doubles with each failure, up to an hour.
func doubled(first time.Duration) func(n int) time.Duration {
	return func(n int) time.Duration { return min(first<<(n-1), time.Hour) }
}

// A summary that has failed is durable with the next batch. Whoever dies between has
// asked in vain, and the next process knows that something was asked for.
func TestFailureRidesWithTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		u := newSummaryless(w, deadKey)
		u.window, w.compaction = 100_000, &journal.Compaction{ReserveTokens: 86_000}
		w.infos["m"] = model.Info{ContextWindow: 100_000, MaxOutput: 1000}
		fs := faultstore.New(memstore.New())
		e := w.start(t, fs)
		defer stop(t, e)
		for i := range 200 {
			before, asks, failed := fs.Calls().Append, u.asks(), len(unsummarized(t, fs))
			converse(t, e, fmt.Sprintf("m%d %s", i, prose(i, 120)))
			want := 2
			if u.asks() > asks {
				want = 3
			}
			if got := fs.Calls().Append - before; got != want || len(unsummarized(t, fs))-failed != want-2 {
				t.Errorf("%d appends, want %d, with %d failures", got, want, len(unsummarized(t, fs))-failed)
			}
			time.Sleep(20 * time.Second)
		}
		if u.asks() < 4 {
			t.Errorf("a summary was asked for %d times", u.asks())
		}
		// It is durable with what comes after it.
		for _, batch := range batches(t, fs, chat) {
			for i, r := range batch {
				switch r.(type) {
				case *journal.Unsummarized:
					if _, ok := batch[i+1].(*journal.TurnStarted); !ok {
						t.Errorf("behind a failure there is a %s", batch[i+1].Kind())
					}
				case *journal.Summarizing:
					if i != len(batch)-1 || i == 0 {
						t.Errorf("that a summary is begun is record %d of a batch of %d", i, len(batch))
					}
				}
			}
		}
	})
}

// What the model has refused as too large is compacted at once, whatever has failed
// before, but not again and again: once for each message, and after some in a row
// with the same pauses. The conversation goes on with less.
func TestUrgentSummaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		u := newSummaryless(w, deadKey)
		w.infos = nil  // its window is not known
		var asks []int // of each message that was too large
		s := memstore.New()
		e := w.start(t, s)
		began := time.Now()
		for i := range 200 {
			before, refused := u.asks(), u.refused
			converse(t, e, fmt.Sprintf("m%d %s", i, prose(i, 60)))
			if u.refused > refused {
				asks = append(asks, u.asks()-before)
			}
			if i%20 == 19 {
				s = die(t, e, s)
				e = w.start(t, s)
			}
			time.Sleep(time.Second)
		}
		defer stop(t, e)
		u.report(t)
		if len(asks) < 100 || len(compactions(t, s)) > 0 {
			t.Fatalf("%d messages were too large; compacted %+v", len(asks), compactions(t, s))
		}
		total := 0
		for i, n := range asks {
			if total += n; n > 1 || i < 3 && n != 1 {
				t.Errorf("for message %d a summary was asked for %d times", i, n)
			}
		}
		if most := 3 + 2; total > most { // minutes have passed
			t.Errorf("a summary was asked for %d times in %v", total, time.Since(began))
		}
		u.set(nil)
		time.Sleep(time.Hour)
		converse(t, e, "and now")
		if c := compactions(t, s); len(c) != 1 || c[0].Dropped || folded(t, s).Unsummarized.Overflows != 0 {
			t.Errorf("compacted %+v when the key is mended", c)
		}
	})
}

// A request that is refused again and again, and made smaller each time, asks for
// one summary.
func TestOneSummaryForManyRefusals(t *testing.T) {
	w := newWorld()
	u := newSummaryless(w, deadKey)
	w.infos = nil // its window is not known
	w.tools = []engine.Tool{w.tool("dump", func(context.Context, *engine.Work) engine.Result {
		return engine.Result{Content: strings.Repeat("lorem ipsum dolor ", 20_000)}
	})}
	w.tools[0].Shown = -1
	u.answer = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if text, results := asked(req); text == "dump" && results == 0 {
			call(yield, "dump d1")
			return
		}
		echo(ctx, req, yield)
	}
	s := memstore.New()
	e := w.start(t, s)
	defer stop(t, e)
	converse(t, e, messages(0, 10, 60)...)
	converse(t, e, "dump")
	u.report(t)
	if u.refused < 3 || u.asks() != 1 {
		t.Errorf("after %d refusals a summary was asked for %d times", u.refused, u.asks())
	}
}

// One warning and one event say that no summary could be had, what to do about it,
// and when the next is asked for.
func TestUnsummarizedIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		fail func(ctx context.Context, yield func(model.Event, error) bool)
		do   string
	}{
		"dead key": {deadKey, "set a key for test/m that is accepted; Instance.Compact asks for a summary at once"},
		"quota": {func(_ context.Context, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Quota, Message: "pay"})
		}, "raise the quota for test/m; Instance.Compact asks for a summary at once"},
		"overload": {func(_ context.Context, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Overloaded, Status: 529, Message: "later"})
		}, "wait until test/m answers again; Instance.Compact asks for a summary at once"},
		"silent": {silent, "have a faster model than test/m write the summaries (ModelOptions.Compaction.Model); Instance.Compact asks for a summary at once"},
		"empty": {
			func(_ context.Context, yield func(model.Event, error) bool) { say(yield, " ") },
			"have another model than test/m write the summaries (ModelOptions.Compaction.Model); Instance.Compact asks for a summary at once",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var log strings.Builder
				w.log = slog.New(slog.NewTextHandler(&log, nil))
				u := newSummaryless(w, tt.fail)
				s := memstore.New()
				e := w.start(t, s)
				u.fill(t, e)
				stop(t, e)
				var told []*engine.SummaryError
				for _, ev := range w.seen() {
					var failed *engine.SummaryError
					if ev.Type == engine.EventCompacted && errors.As(ev.Error, &failed) {
						told = append(told, failed)
					}
				}
				if len(told) != 1 || strings.Count(log.String(), "no summary of a conversation could be had") != 1 || strings.Count(log.String(), "level=WARN") > 1 && name != "silent" || !strings.Contains(log.String(), tt.do) {
					t.Fatalf("told %v, and the log says\n%s", told, log.String())
				}
				r := unsummarized(t, s)[0]
				if f := told[0]; f.Do != tt.do || f.Failures != 1 || f.Next.UnixMilli() != r.Next || len(f.Models) != 1 || !strings.Contains(f.Error(), tt.do) || f.Unwrap() == nil {
					t.Errorf("told %+v", f)
				}
			})
		})
	}
}

// A model that stands in for the one that is to write the summaries is a warning,
// too: somebody has to mend that one.
func TestStandInIsTold(t *testing.T) {
	w := newWorld()
	var log strings.Builder
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	n := &narrow{window: 6000}
	n.use(w, true)
	w.compaction = &journal.Compaction{Model: "test/small"}
	w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if req.Model == "small" {
			deadKey(ctx, yield)
			return
		}
		n.reply(ctx, req, yield)
	}
	s := memstore.New()
	e := w.start(t, s)
	for i := 0; len(compactions(t, s)) == 0; i++ {
		converse(t, e, fmt.Sprintf("m%d %s", i, prose(i, 60)))
	}
	stop(t, e)
	if out := log.String(); strings.Count(out, "level=WARN") != 1 || !strings.Contains(out, "by=test/m") || !strings.Contains(out, "set a key for test/small that is accepted") {
		t.Errorf("the log says\n%s", out)
	}
}
