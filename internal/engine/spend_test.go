package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

func submissionLimits(l journal.Limits) *journal.Budget { return &journal.Budget{Submission: &l} }

// checkBudget holds a journal to the budget: whatever crashed, no limit was passed
// but by the last turn, the model was told once in each response, and the
// settlements name the limit.
func (sc scenario) checkBudget(t *testing.T, journaled [][]journal.Record) {
	t.Helper()
	if sc.limits == nil {
		return
	}
	l := sc.limits.Submission
	st := &fold.State{Head: -1}
	notes, last, responses := 0, 0, 0
	commands := make(map[string]bool) // which have no budget
	for _, batch := range journaled {
		for _, r := range batch {
			if err := st.Apply(r); err != nil {
				t.Fatal(err)
			}
			switch r := r.(type) {
			case *journal.Admitted:
				commands[r.Submission] = (&fold.Submission{Admitted: *r}).Command()
			case *journal.Entry:
				if r.Message.Type == journal.SignalBudget {
					notes++
				}
			case *journal.TurnStarted:
				if (r.Budget != nil) != (st.Exhausted() != nil) {
					t.Errorf("a turn begins with the limit %v, and the budget has reached %v", r.Budget, st.Exhausted())
				}
			case *journal.TurnDone:
				if st.Response.Concluding != nil && r.Stop != journal.StopAborted && !r.Mute {
					last++
				}
			case *journal.Settled:
				if commands[r.Submission] {
					continue
				}
				if r.AnsweredBy == r.Submission {
					responses++
				}
				if r.Budget == nil || *r.Budget != (journal.ExhaustedBudget{Scope: journal.ScopeSubmission, Limit: limitOf(*l)}) {
					t.Errorf("the settlement names %v", r.Budget)
				}
			}
			spent := st.Response.Spent
			if l.Turns > 0 && spent.Turns > l.Turns+2 || l.ToolCalls > 0 && spent.ToolCalls > l.ToolCalls {
				t.Fatalf("the response has spent %+v of %+v", spent, *l)
			}
		}
	}
	if notes != responses || last != responses {
		t.Errorf("in %d responses the model was told %d times, and concluded %d times", responses, notes, last)
	}
}

// checkCuts holds a journal to what the model is told of an answer that was cut,
// before the turn after it: that it goes on, or that it concludes, and never both.
// Whether a process has cut the answer or died over it makes no difference.
func checkCuts(t *testing.T, journaled []journal.Record) {
	t.Helper()
	var cut *journal.TurnDone
	var told []string
	concluding := "" // the response that has begun its last turn
	for _, r := range journaled {
		switch r := r.(type) {
		case *journal.TurnDone:
			cut, told = nil, nil
			if r.Stop == journal.StopAborted && slices.ContainsFunc(r.Blocks, func(b journal.Block) bool { return b.Kind == journal.Text && b.Text != "" }) {
				cut = r
			}
		case *journal.Entry:
			if r.Purpose == journal.Notice {
				told = append(told, r.Message.Type)
			}
		case *journal.TurnStarted:
			want := []string{journal.SignalInterrupted, journal.SignalContinued}
			if r.Budget != nil && concluding != r.Response {
				want[1] = journal.SignalBudget
			}
			if cut != nil && cut.Response == r.Response && !slices.Equal(told, want) {
				t.Errorf("of the cut turn %s the model is told %q, want %q", cut.Turn, told, want)
			}
			if r.Budget != nil {
				concluding = r.Response
			}
			cut = nil
		}
	}
}

func limitOf(l journal.Limits) journal.BudgetLimit {
	switch {
	case l.Turns > 0:
		return journal.LimitTurns
	case l.ToolCalls > 0:
		return journal.LimitToolCalls
	case l.Tokens > 0:
		return journal.LimitTokens
	case l.WorkMS > 0:
		return journal.LimitWallTime
	}
	return ""
}

// A spender is a model that calls a tool as long as it may, and then concludes.
func spender(w *world) {
	w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, _ *engine.Work) engine.Result {
		pause(ctx, time.Second)
		return engine.Result{Content: "ok"}
	})}
	w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		text, _ := asked(req)
		switch {
		case text == "stubborn" || !req.ToolsOff && text != "hello":
			for i, id := range []string{"a", "b"} {
				if !yield(model.BlockDone{Index: i, Block: model.Block{Kind: model.ToolCall, Name: "work", CallID: fmt.Sprint("w", len(req.Messages), id), Arguments: "{}"}}, nil) {
					return
				}
			}
			yield(model.Done{Stop: model.StopToolUse, Usage: model.Usage{Input: 10, Output: 2}}, nil)
		default:
			say(yield, "re: "+text)
		}
	}
}

// settlement is the record that settled the submission, and what it did not run.
func settlement(t *testing.T, s *memstore.Store, id string) (end *journal.Settled, outcomes []*journal.Outcome) {
	t.Helper()
	for _, batch := range batches(t, s, chat) {
		for _, r := range batch {
			switch r := r.(type) {
			case *journal.Settled:
				if r.Submission == id {
					end = r
				}
			case *journal.Outcome:
				outcomes = append(outcomes, r)
			}
		}
	}
	if end == nil {
		t.Fatalf("submission %s is not settled", id)
	}
	return end, outcomes
}

func TestBudgets(t *testing.T) {
	for name, tt := range map[string]struct {
		limits journal.Limits
		cost   model.Cost
		turns  int // model calls, the last one included
		ran    int // calls that were run
		limit  journal.BudgetLimit
	}{
		"turns":   {limits: journal.Limits{Turns: 3}, turns: 4, ran: 6, limit: journal.LimitTurns},
		"calls":   {limits: journal.Limits{ToolCalls: 3}, turns: 3, ran: 3, limit: journal.LimitToolCalls},
		"tokens":  {limits: journal.Limits{Tokens: 30}, turns: 4, ran: 6, limit: journal.LimitTokens}, // 10 in and 2 out a turn
		"dollars": {limits: journal.Limits{NanoDollars: 24_000}, cost: model.Cost{Input: 1, Output: 1}, turns: 3, ran: 4, limit: journal.LimitDollars},
		"time":    {limits: journal.Limits{WorkMS: 2500}, turns: 4, ran: 6, limit: journal.LimitWallTime},
	} {
		for _, body := range []string{"go on", "stubborn"} {
			t.Run(name+" "+body, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					spender(w)
					w.limits, w.info.Cost = submissionLimits(tt.limits), tt.cost
					s := memstore.New()
					e := w.start(t, s)
					id := send(t, e, chat, body)
					if got := settled(t, e, chat, id); got != journal.Completed {
						t.Fatalf("settled %s", got)
					}
					stop(t, e)
					end, outcomes := settlement(t, s, id)
					if want := (journal.ExhaustedBudget{Scope: journal.ScopeSubmission, Limit: tt.limit}); end.Budget == nil || *end.Budget != want {
						t.Errorf("the settlement names %v, want %v", end.Budget, want)
					}
					turns, told := tt.turns, 1
					if body == "stubborn" { // it is asked once more, without tools
						turns, told = turns+1, 2
					}
					if w.calls != turns {
						t.Errorf("%d model calls, want %d", w.calls, turns)
					}
					ran := 0
					for _, o := range outcomes {
						switch {
						case !o.Failed:
							ran++
						case !strings.Contains(o.Content, "the budget is used up"):
							t.Errorf("call %s has the outcome %q", o.Call, o.Content)
						}
					}
					if ran != tt.ran {
						t.Errorf("%d calls were run, want %d", ran, tt.ran)
					}
					if last := w.last; told == 1 {
						note := last.Messages[len(last.Messages)-1].Blocks[0].Text
						if !last.ToolsOff || len(last.Tools) == 0 || !strings.HasPrefix(note, `<signal type="budget">`) || !strings.Contains(note, "for this task") {
							t.Errorf("the last request ends with %q, tools off: %v", note, last.ToolsOff)
						}
					}
					var seen []string
					for _, ev := range w.seen() {
						if ev.Budget != nil {
							seen = append(seen, fmt.Sprint(ev.Type, " ", ev.Budget))
						}
					}
					want := append(slices.Repeat([]string{fmt.Sprintf("turn_start %s of the submission", tt.limit)}, told), fmt.Sprintf("submission_settled %s of the submission", tt.limit))
					if !cmp.Equal(want, seen) {
						t.Errorf("told %q, want %q", seen, want)
					}
				})
			})
		}
	}
}

// Calls whose cost is not known, because reading the cache has no price or the
// prompt is longer than the prices hold for, are charged for their own tokens, and
// not as much as a small one before them.
func TestUnknownCostIsEstimated(t *testing.T) {
	for name, tt := range map[string]struct {
		cost model.Cost
		used model.Usage
	}{
		"reading the cache": {model.Cost{Input: 1, Output: 1}, model.Usage{CacheRead: 1000}},
		"a long prompt":     {model.Cost{Input: 0.5, Output: 1, UpTo: 100}, model.Usage{Input: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{w.tool("work", nil)}
			w.info.Cost = tt.cost
			w.limits = submissionLimits(journal.Limits{NanoDollars: 3_000_000}) // three thousand tokens
			w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if req.ToolsOff {
					say(yield, "enough")
					return
				}
				_, results := asked(req)
				used := tt.used
				if results == 0 {
					used = model.Usage{Input: 10}
				}
				yield(model.BlockDone{Block: model.Block{Kind: model.ToolCall, Name: "work", Arguments: "{}"}}, nil)
				yield(model.Done{Stop: model.StopToolUse, Usage: used}, nil)
			}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			if got := settled(t, e, chat, send(t, e, chat, "go on")); got != journal.Completed {
				t.Fatalf("settled %s", got)
			}
			if w.asked() != 5 {
				t.Errorf("%d model calls, want a small one, three of a thousand tokens and the last", w.asked())
			}
			for _, ev := range w.seen() {
				if ev.Type == engine.EventSettled && (ev.Cost.Unknown != 3 || ev.Cost.AtMost != 0.003) {
					t.Errorf("told the cost %+v", ev.Cost)
				}
			}
		})
	}
}

// A message that comes when the budget is used up does not join the response: it
// gets one of its own, with a budget of its own.
func TestBudgetIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		spender(w)
		w.limits = submissionLimits(journal.Limits{Turns: 1})
		s := memstore.New()
		e := w.start(t, s)
		first := send(t, e, chat, "go on")
		time.Sleep(500 * time.Millisecond) // the calls are running
		second := send(t, e, chat, "hello")
		settled(t, e, chat, first)
		if got := settled(t, e, chat, second); got != journal.Completed {
			t.Fatalf("settled %s", got)
		}
		stop(t, e)
		end, _ := settlement(t, s, second)
		if end.AnsweredBy != second || end.Budget != nil {
			t.Errorf("the second message is answered by %s, its budget %v", end.AnsweredBy, end.Budget)
		}
	})
}

// An instance that has used up its budget refuses messages without asking a
// model or running a hook of the agent, and goes on when the budget is raised. What
// it has used is what the journal says, also to another process.
func TestInstanceBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		spender(w)
		limits := &journal.Limits{Turns: 2}
		starts := 0
		w.render = func(engine.View) (*engine.Plan, error) {
			hook := engine.Hook{Name: "start", Run: func(context.Context, *engine.Work) error { starts++; return nil }}
			return &engine.Plan{
				Settings: journal.Settings{Model: "test/m", Budget: &journal.Budget{Instance: limits}}, Tools: w.tools,
				Start: []engine.Hook{hook}, ResponseStart: []engine.Hook{hook},
			}, nil
		}
		s := memstore.New()
		e := w.start(t, s)
		first := send(t, e, chat, "go on")
		settled(t, e, chat, first)
		if end, _ := settlement(t, s, first); end.Budget == nil || end.Budget.Scope != journal.ScopeInstance {
			t.Errorf("the settlement names %v", end.Budget)
		}
		s = die(t, e, s)
		e = w.start(t, s)
		calls, began := w.calls, starts
		refused := send(t, e, chat, "hello")
		if got := settled(t, e, chat, refused); got != journal.Failed {
			t.Fatalf("settled %s", got)
		}
		if w.calls != calls || starts != began {
			t.Errorf("%d model calls and %d hooks for a message that is refused", w.calls-calls, starts-began)
		}
		if end, _ := settlement(t, s, refused); !strings.Contains(string(end.Error), `"type":"budget_exceeded"`) || !strings.Contains(string(end.Error), `"limit":"turns"`) {
			t.Errorf("the settlement says %s", end.Error)
		}
		limits = &journal.Limits{Turns: 20}
		if got := settled(t, e, chat, send(t, e, chat, "hello")); got != journal.Completed {
			t.Errorf("with a higher budget: settled %s", got)
		}
		stop(t, e)
	})
}

// A budget in dollars does not go with a model whose price nobody knows: that is
// said before anything is done.
func TestBudgetOfUnknownPrice(t *testing.T) {
	for name, tt := range map[string]struct {
		cost model.Cost
		want string
	}{
		"unknown":      {model.Cost{}, journal.Failed},
		"half unknown": {model.Cost{Input: 1}, journal.Failed},
		"free":         {model.Cost{Free: true}, journal.Completed},
		"known":        {model.Cost{Input: 1, Output: 1}, journal.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			spender(w)
			w.limits, w.info.Cost = submissionLimits(journal.Limits{NanoDollars: 1e9}), tt.cost
			s := memstore.New()
			e := w.start(t, s)
			id := send(t, e, chat, "hello")
			if got := settled(t, e, chat, id); got != tt.want {
				t.Errorf("settled %s", got)
			}
			stop(t, e)
			if end, _ := settlement(t, s, id); tt.want == journal.Failed && (w.calls > 0 || !strings.Contains(string(end.Error), `test/m`) || !strings.Contains(string(end.Error), "the price of the model is not known")) {
				t.Errorf("%d model calls; %s", w.calls, end.Error)
			}
		})
	}
}

// What finish hooks append after the last turn does not send the model back to
// work: it reads it in the next response. Before the last turn it does.
func TestBudgetAndFinishHooks(t *testing.T) {
	w := newWorld()
	w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		say(yield, fmt.Sprint("off: ", req.ToolsOff))
	}
	var saw []bool
	w.render = func(engine.View) (*engine.Plan, error) {
		return &engine.Plan{
			Settings: journal.Settings{Model: "test/m", Budget: submissionLimits(journal.Limits{Turns: 1})},
			Finish: []engine.Hook{{Name: "finish", Run: func(_ context.Context, hw *engine.Work) error {
				saw = append(saw, hw.Response.Budget != nil)
				return hw.Append(journal.Message{Kind: journal.Signal, Type: "check", Body: "check it"})
			}}},
		}, nil
	}
	s := memstore.New()
	e := w.start(t, s)
	id := send(t, e, chat, "hello")
	if got := settled(t, e, chat, id); got != journal.Completed {
		t.Fatalf("settled %s", got)
	}
	if w.calls != 2 || !cmp.Equal(saw, []bool{false, true}) {
		t.Errorf("%d model calls; the hooks saw %v", w.calls, saw)
	}
	settled(t, e, chat, send(t, e, chat, "again"))
	stop(t, e)
	checks := 0
	for _, m := range w.last.Messages {
		if strings.Contains(m.Blocks[0].Text, "check it") {
			checks++
		}
	}
	if checks != 3 { // two of the first response, one of the second before its last turn
		t.Errorf("the model reads %d of what the hooks have appended", checks)
	}
}

// The last turn is made again when it fails or is cut, and the model is told once.
func TestLastTurnThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		spender(w)
		spend := w.reply
		offs := 0
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if req.ToolsOff {
				switch offs++; offs {
				case 1:
					yield(nil, &model.Error{Class: model.Retryable, Message: "try later"})
					return
				case 2:
					yield(model.Delta{Kind: model.Text, Text: "I have "}, nil)
					<-ctx.Done()
					return
				}
			}
			spend(ctx, req, yield)
		}
		w.limits = submissionLimits(journal.Limits{Turns: 1})
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go on")
		time.Sleep(time.Minute)
		s = die(t, e, s)
		e = w.start(t, s)
		if got := settled(t, e, chat, id); got != journal.Completed {
			t.Fatalf("settled %s", got)
		}
		stop(t, e)
		if end, _ := settlement(t, s, id); end.Budget == nil || offs != 3 {
			t.Errorf("after %d last turns the settlement names %v", offs, end.Budget)
		}
		notes := 0
		for _, m := range w.last.Messages {
			if strings.Contains(m.Blocks[0].Text, `type="budget"`) {
				notes++
			}
		}
		if notes != 1 {
			t.Errorf("the model was told %d times", notes)
		}
	})
}

// Time in which no process is at it does not count.
func TestBudgetOfTimeRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		spender(w)
		w.limits = submissionLimits(journal.Limits{WorkMS: 3_500})
		s := memstore.New()
		e := w.start(t, s)
		id := send(t, e, chat, "go on")
		time.Sleep(1500 * time.Millisecond)
		s = die(t, e, s)
		time.Sleep(10 * time.Minute)
		e = w.start(t, s)
		settled(t, e, chat, id)
		stop(t, e)
		// One turn of a second, another one that was cut, three more: the budget is
		// looked at after the third second that is recorded.
		if w.calls < 5 {
			t.Errorf("%d model calls", w.calls)
		}
		if end, _ := settlement(t, s, id); end.Budget == nil || end.Budget.Limit != journal.LimitWallTime {
			t.Errorf("the settlement names %v", end.Budget)
		}
	})
}

// What no provider has counted, because the call broke or was cut, or since it
// counts nothing, is counted by estimate. What the provider has said of a call
// that failed counts as it says, and a call that it refused counts nothing.
func TestUncountedTokens(t *testing.T) {
	long := strings.Repeat("many words ", 300) // nine hundred tokens by the estimate
	for name, tt := range map[string]struct {
		first        func(yield func(model.Event, error) bool)
		usage        model.Usage
		input        bool // the prompt is estimated
		least, most  int  // the estimate of the answer
		atMost, free bool
	}{
		"refused": {
			first: func(yield func(model.Event, error) bool) {
				yield(nil, &model.Error{Class: model.RateLimited, Status: 429, Message: "slow down"})
			},
			free: true,
		},
		"no connection": {
			first: func(yield func(model.Event, error) bool) {
				yield(nil, &model.Error{Class: model.Retryable, Message: "no", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}})
			},
		},
		"broken": {
			first: func(yield func(model.Event, error) bool) {
				yield(model.Delta{Kind: model.Text, Text: long}, nil)
				yield(nil, &model.Error{Class: model.Retryable, Message: "cut"})
			},
			input: true, least: 800, most: 1000, atMost: true,
		},
		"broken in a call": {
			first: func(yield func(model.Event, error) bool) {
				yield(model.Delta{Kind: model.ToolCall, Name: "work", Text: long}, nil)
				yield(nil, &model.Error{Class: model.Retryable, Message: "cut"})
			},
			input: true, least: 800, most: 1000, atMost: true,
		},
		"broken, and the prompt is counted": {
			first: func(yield func(model.Event, error) bool) {
				yield(model.Delta{Kind: model.Text, Text: long}, nil)
				yield(nil, &model.Error{Class: model.Retryable, Message: "cut", Usage: model.Usage{Input: 5000, Output: 100}})
			},
			usage: model.Usage{Input: 5000, Output: 100}, least: 700, most: 900, atMost: true,
		},
		"not counted": {
			first: func(yield func(model.Event, error) bool) {
				yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: long}}, nil)
				yield(model.Done{Stop: model.StopEnd}, nil)
			},
			input: true, least: 800, most: 1000, atMost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.info.Cost = model.Cost{Input: 1, Output: 1}
				w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) {
					if w.asked() == 1 {
						tt.first(yield)
						return
					}
					say(yield, "done")
				}
				s := memstore.New()
				e := w.start(t, s)
				settled(t, e, chat, send(t, e, chat, "hello"))
				stop(t, e)
				first := turnsDone(t, s)[0]
				g := first.Guess
				if model.Usage(first.Usage) != tt.usage || (g.Input > 0) != tt.input || g.Output < tt.least || g.Output > tt.most {
					t.Errorf("the turn has used %+v and, by estimate, %+v", first.Usage, g)
				}
				if free := first.Cost != nil && *first.Cost == 0; free != tt.free || (first.AtMost > 0) != tt.atMost {
					t.Errorf("the turn has cost %v, at most %d", first.Cost, first.AtMost)
				}
				st := folded(t, s)
				if st.Spent.Guessed != g.Total() || st.Counted.Tokens == g.Total() {
					t.Errorf("the state has %+v, counted %+v", st.Spent, st.Counted)
				}
				if u := st.BudgetUse(submissionLimits(journal.Limits{Tokens: 1})); u[0].Used != 0 { // of the response, which has ended
					t.Errorf("%d tokens are used of the next response", u[0].Used)
				}
				all := &journal.Budget{Instance: &journal.Limits{Tokens: 1}}
				if u := st.BudgetUse(all); u[0].Used != int64(st.Usage.Total()+g.Total()) {
					t.Errorf("%d tokens are used", u[0].Used)
				}
			})
		})
	}
}

func turnsDone(t *testing.T, s *memstore.Store) (out []*journal.TurnDone) {
	t.Helper()
	for _, r := range records(t, s, chat) {
		if r, ok := r.(*journal.TurnDone); ok {
			out = append(out, r)
		}
	}
	return out
}

// A budget of tokens also holds with a server that counts none.
func TestTokensNobodyCounts(t *testing.T) {
	w := newWorld()
	w.tools = []engine.Tool{w.tool("work", nil)}
	w.limits = submissionLimits(journal.Limits{Tokens: 2000})
	w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if req.ToolsOff || w.asked() > 20 {
			yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: "enough"}}, nil)
			yield(model.Done{Stop: model.StopEnd}, nil)
			return
		}
		call(yield, fmt.Sprintf("work c%d", len(req.Messages)))
	}
	s := memstore.New()
	e := w.start(t, s)
	defer stop(t, e)
	if got := settled(t, e, chat, send(t, e, chat, strings.Repeat("many words ", 100))); got != journal.Completed || w.asked() > 9 {
		t.Errorf("settled %s after %d calls", got, w.asked())
	}
}

// A call that is cut counts what was asked and what was received, whether its
// process is there to say so or has died.
func TestTokensOfACutCall(t *testing.T) {
	for _, how := range []string{"abort", "death"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.info.Cost = model.Cost{Input: 1, Output: 1}
				w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
					if w.asked() > 1 {
						say(yield, "done")
						return
					}
					yield(model.Delta{Kind: model.Text, Text: strings.Repeat("many words ", 300)}, nil)
					<-ctx.Done()
				}
				s := memstore.New()
				e := w.start(t, s)
				id := send(t, e, chat, "hello")
				time.Sleep(10 * time.Second)
				if how == "abort" {
					if _, err := e.Abort(t.Context(), chat); err != nil {
						t.Fatal(err)
					}
				} else {
					s = die(t, e, s)
					e = w.start(t, s)
				}
				settled(t, e, chat, id)
				stop(t, e)
				cut := turnsDone(t, s)[0]
				if g := cut.Guess; cut.Stop != journal.StopAborted || g.Input == 0 || g.Output < 800 || g.Output > 1000 || cut.Cost != nil || cut.AtMost != int64(g.Total())*1000 {
					t.Errorf("the turn has used %+v and cost at most %d", g, cut.AtMost)
				}
			})
		})
	}
}

// An answer may be no longer than what is left of the tokens and of the money
// allows. One that ends there is followed by the last turn.
func TestAnswersFitTheBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		limits journal.Limits
		limit  journal.BudgetLimit
		least  int // of the first MaxOutput
		most   int
	}{
		"tokens":         {journal.Limits{Tokens: 3000}, journal.LimitTokens, 2700, 2999},
		"hardly a token": {journal.Limits{Tokens: 100}, journal.LimitTokens, 1024, 1024},
		"dollars":        {journal.Limits{NanoDollars: 20_000_000}, journal.LimitDollars, 1800, 2000}, // two thousand tokens at ten dollars a million
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.info = model.Info{ContextWindow: 100_000, MaxOutput: 8000, Cost: model.Cost{Input: 1, Output: 10, CacheRead: 0.1}}
			w.limits = submissionLimits(tt.limits)
			var asked []int
			w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				asked = append(asked, req.MaxOutput)
				if err := wellFormed(req.Messages); err != nil {
					t.Error(err)
				}
				text := "The first half of"
				if req.ToolsOff {
					text = "That is all."
				}
				yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: text}}, nil)
				yield(model.Done{Stop: model.StopLength, Usage: model.Usage{Input: 20, Output: req.MaxOutput - 100}}, nil)
			}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			id := send(t, e, chat, "tell me everything")
			if got := settled(t, e, chat, id); got != journal.Completed {
				t.Fatalf("settled %s", got)
			}
			if len(asked) != 2 || asked[0] < tt.least || asked[0] > tt.most || asked[1] != 1024 {
				t.Errorf("the answers may have %d tokens, want %d to %d and then 1024", asked, tt.least, tt.most)
			}
			if end, _ := settlement(t, s, id); end.Budget == nil || end.Budget.Limit != tt.limit {
				t.Errorf("the settlement names %v", end.Budget)
			}
			if last := shownText(w.latest()); !strings.Contains(last, "The first half of") || !strings.Contains(last, "This is your last turn") {
				t.Errorf("the last request shows %q", last)
			}
		})
	}
	t.Run("enough is left", func(t *testing.T) {
		w := newWorld()
		w.info = model.Info{MaxOutput: 8000}
		w.limits = submissionLimits(journal.Limits{Tokens: 100_000})
		w.reply = echo
		e := w.start(t, memstore.New())
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "hello"))
		if got := w.latest().MaxOutput; got != 0 {
			t.Errorf("the answer is bounded to %d tokens", got)
		}
	})
}

// A model call ends with the working time, and the model then concludes.
func TestModelCallEndsWithTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.limits = submissionLimits(journal.Limits{WorkMS: 30_000})
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if req.ToolsOff {
				pause(ctx, 5*time.Second)
				say(yield, "enough")
				return
			}
			yield(model.Delta{Kind: model.Text, Text: "thinking about it"}, nil)
			<-ctx.Done()
			yield(nil, context.Cause(ctx))
		}
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		began := time.Now()
		id := send(t, e, chat, "go on")
		if got := settled(t, e, chat, id); got != journal.Completed {
			t.Fatalf("settled %s", got)
		}
		if took := time.Since(began); took < 35*time.Second || took > 36*time.Second {
			t.Errorf("it took %v", took)
		}
		end, _ := settlement(t, s, id)
		if end.Budget == nil || end.Budget.Limit != journal.LimitWallTime || w.asked() != 2 {
			t.Errorf("the settlement names %v after %d calls", end.Budget, w.asked())
		}
		if last := shownText(w.latest()); !strings.Contains(last, "thinking about it") || !strings.Contains(last, "This is your last turn") {
			t.Errorf("the last request shows %q", last)
		}
	})
}

// A model that calls tools in its last turn and says nothing is asked once more,
// without tools. It is asked no third time.
func TestMuteLastTurn(t *testing.T) {
	for name, stubborn := range map[string]bool{"it answers then": false, "it calls again": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{w.tool("work", nil)}
			w.limits = submissionLimits(journal.Limits{Turns: 1})
			w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if err := wellFormed(req.Messages); err != nil {
					t.Error(err)
				}
				if text, _ := asked(req); text == "and now?" || len(req.Tools) == 0 && !stubborn {
					say(yield, "I have done some work.")
					return
				}
				call(yield, fmt.Sprintf("work c%d", w.asked()))
			}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			id := send(t, e, chat, "go on")
			if got := settled(t, e, chat, id); got != journal.Completed || w.asked() != 3 || len(w.did()) != 1 {
				t.Errorf("settled %s after %d calls, ran %v", got, w.asked(), w.did())
			}
			last := w.latest()
			if text := shownText(last); len(last.Tools) > 0 || !strings.Contains(text, "[I called the tool work with ") || !strings.Contains(text, "[The tool answered: did c1]") {
				t.Errorf("the last request has %d tools and shows %q", len(last.Tools), text)
			}
			if end, _ := settlement(t, s, id); end.Budget == nil {
				t.Error("the settlement names no limit")
			}
			settled(t, e, chat, send(t, e, chat, "and now?"))
			if calls := w.latest().Messages[1].Blocks; len(calls) != 1 || calls[0].Kind != model.ToolCall {
				t.Errorf("afterwards the model is shown %+v in the place of its call", calls)
			}
		})
	}
}
