package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// A compaction comes when the tokens exceed the window less the reserve, and
// leaves about as many as are to be kept; unless it is switched off.
func TestCompactionSettings(t *testing.T) {
	// A message and its answer are about 190 tokens by the model's count, and the
	// window 8,000.
	for _, tt := range []struct {
		name     string
		settings *journal.Compaction
		at       int // the message at which it comes, about; 0 for never
		keep     int // tokens
	}{
		{"defaults", nil, 0, 0},
		{"reserve", &journal.Compaction{ReserveTokens: 4000}, 21, 1900},
		{"keep", &journal.Compaction{ReserveTokens: 4000, KeepRecentTokens: 500}, 21, 500},
		{"a reserve that leaves nothing", &journal.Compaction{ReserveTokens: 9000}, 0, 0},
		{"off", &journal.Compaction{Off: true, ReserveTokens: 4000}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.compaction = tt.settings
			n := &narrow{window: 8000}
			n.use(w, true)
			w.infos = map[string]model.Info{"m": {ContextWindow: 8000, MaxOutput: 1000}}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			for i, body := range messages(0, 30, 40) {
				converse(t, e, body)
				if all := compactions(t, s); len(all) > 0 && tt.at > 0 {
					if i < tt.at-4 || i > tt.at+4 {
						t.Errorf("compacted at message %d, want about %d", i, tt.at)
					}
					if kept := count(w.latest()); kept < tt.keep/2 || kept > tt.keep*3/2 {
						t.Errorf("the next request has %d tokens, want about %d", kept, tt.keep)
					}
					n.report(t)
					return
				}
			}
			if all := compactions(t, s); len(all) != 0 || tt.at > 0 {
				t.Errorf("%d compactions after 30 messages", len(all))
			}
			n.report(t)
		})
	}
}

// The summary stands at the beginning, once: an earlier one is given to whoever
// writes the next, and is not shown beside it.
func TestSummaryReplacesSummary(t *testing.T) {
	w := newWorld()
	n := &narrow{window: 6000}
	n.use(w, true)
	n.sum = func(i int, req *model.Request) string {
		text := shownText(req)
		if has := strings.Contains(text, "<earlier-summary>"); has != (i > 1) || i > 1 && !strings.Contains(text, fmt.Sprintf("gist %d <&>", i-1)) && !strings.Contains(text, fmt.Sprintf("gist %d &lt;&amp;&gt;", i-1)) {
			n.fault("summary %d is asked for with %.200q", i, text)
		}
		return fmt.Sprintf("gist %d <&>", i)
	}
	n.answer = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		if k := strings.Count(shownText(req), "gist "); k > 1 || k == 1 && !strings.HasPrefix(req.Messages[0].Blocks[0].Text, `<compaction type="compaction">`) {
			n.fault("the model is shown %d summaries: %.200q", k, shownText(req))
		}
		echo(ctx, req, yield)
	}
	s := memstore.New()
	e := w.start(t, s)
	defer stop(t, e)
	converse(t, e, messages(0, 120, 60)...)
	n.report(t)
	all := compactions(t, s)
	if len(all) < 3 || len(all) != len(n.summaries) {
		t.Fatalf("%d compactions from %d summaries", len(all), len(n.summaries))
	}
	for i, c := range all {
		if c.Summary != fmt.Sprintf("gist %d <&>", i+1) || c.Usage.Input != 10 || c.Calls != 1 || c.Model != "m" {
			t.Errorf("compaction %d is %+v", i, c)
		}
	}
	// What it has cost is in what the conversation has used.
	snap := foldAll(t, s)
	turns := 0
	for _, r := range records(t, s, chat) {
		if r, ok := r.(*journal.TurnDone); ok {
			turns += r.Usage.Input
		}
	}
	if snap.Usage.Input != turns+10*len(all) {
		t.Errorf("%d tokens were used, want %d and %d", snap.Usage.Input, turns, 10*len(all))
	}
}

// Messages that are pinned, calls that wait, and what is being answered stay as
// they are, in their order.
func TestWhatStays(t *testing.T) {
	w := newWorld()
	n := &narrow{window: 6000}
	n.use(w, true)
	w.tools = []engine.Tool{w.tool("ask", func(context.Context, *engine.Work) engine.Result {
		return engine.Result{Content: "pending", EndTurn: true}
	}), w.tool("look", func(_ context.Context, c *engine.Work) engine.Result {
		return engine.Result{Content: prose(len(c.ID), 80)}
	})}
	w.render = func(engine.View) (*engine.Plan, error) {
		return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Tools: w.tools, Waiting: []string{"w1"}}, nil
	}
	looks := 0
	n.answer = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		text, results := asked(req)
		switch {
		case text == "please":
			if results == 0 {
				call(yield, "look w0", "ask w1")
				return
			}
		case strings.HasPrefix(text, "work") && looks < 60:
			looks++
			call(yield, fmt.Sprintf("look l%d", looks))
			return
		}
		echo(ctx, req, yield)
	}
	s := memstore.New()
	e := w.start(t, s)
	defer stop(t, e)
	pin := func(body string) {
		t.Helper()
		a := engine.Admission{Address: chat, Submission: engine.NewSubmissionID(), Identity: []byte(body), Origin: "direct", Message: journal.Message{Kind: journal.User, Body: body, Pinned: true}}
		if _, err := e.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if got := settled(t, e, chat, a.Submission); got != "completed" {
			t.Errorf("settled %s", got)
		}
	}
	converse(t, e, "hello")
	pin("the first rule: <never> on Fridays")
	converse(t, e, "please")
	pin("the second rule")
	converse(t, e, messages(0, 100, 60)...)
	converse(t, e, "work hard") // sixty turns for one message
	n.report(t)
	if len(compactions(t, s)) < 4 {
		t.Fatalf("only %d compactions", len(compactions(t, s)))
	}
	text := shownText(w.latest())
	want := []string{"<compaction", "the first rule: <never> on Fridays", "pending", "the second rule", "work hard"}
	at := -1
	for _, part := range want {
		i := strings.Index(text, part)
		if i <= at || strings.Count(text, part) != 1 {
			t.Errorf("%q is at %d, after %d:\n%.600s", part, i, at, text)
		}
		at = i
	}
}

// The summary is asked of the model that the settings name, with the author's
// words, in portions if that model's window is small.
func TestSummarizer(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			w := newWorld()
			big, small := &narrow{window: 12_000}, &narrow{window: 3000}
			var seen strings.Builder
			small.sum = func(i int, req *model.Request) string {
				seen.WriteString(shownText(req))
				if !strings.Contains(shownText(req), "Keep all order numbers.") {
					small.fault("the author's words are missing: %.300q", shownText(req))
				}
				return fmt.Sprintf("part %d", i)
			}
			w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if req.Model == "small" {
					small.reply(ctx, req, yield)
					return
				}
				big.reply(ctx, req, yield)
			}
			w.infos = map[string]model.Info{"m": {ContextWindow: 12_000, MaxOutput: 2000}}
			if known {
				w.infos["small"] = model.Info{ContextWindow: 3000, MaxOutput: 1000}
			}
			w.render = func(engine.View) (*engine.Plan, error) {
				return &engine.Plan{Settings: journal.Settings{Model: "test/m", Compaction: &journal.Compaction{Model: "test/small"}}, Summary: "Keep all order numbers."}, nil
			}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			bodies := messages(0, 80, 60)
			for i := 0; i < len(bodies) && len(compactions(t, s)) == 0; i++ {
				converse(t, e, bodies[i])
			}
			big.report(t)
			small.report(t)
			c := compactions(t, s)
			if len(c) != 1 || c[0].Model != "small" || c[0].Dropped || len(small.summaries) < 3 || c[0].Summary != fmt.Sprintf("part %d", len(small.summaries)) || c[0].Calls != small.requests {
				t.Fatalf("%d summaries in %d calls make %+v", len(small.summaries), small.requests, c)
			}
			if known && small.refused > 0 || small.refused > 3 {
				t.Errorf("%d were refused", small.refused)
			}
			for i := range 20 {
				if !strings.Contains(seen.String(), fmt.Sprintf("m%d ", i)) {
					t.Errorf("message %d was not summed up", i)
				}
			}
			if len(big.summaries) > 0 {
				t.Error("the other model was asked")
			}
		})
	}
}

// A summary that fails does not end a conversation: another is asked for, then
// the conversation goes on without, and only when there is no room is the older
// part dropped, with a word that it was.
func TestSummaryFails(t *testing.T) {
	for name, fail := range map[string]func(yield func(model.Event, error) bool){
		"empty":  func(yield func(model.Event, error) bool) { say(yield, "  \n") },
		"a call": func(yield func(model.Event, error) bool) { call(yield, "work w1") },
		"refused": func(yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Invalid, Message: "no"})
		},
		"overloaded": func(yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Overloaded, Message: "later"})
		},
		"filtered":  func(yield func(model.Event, error) bool) { yield(model.Done{Stop: model.StopFiltered}, nil) },
		"cut":       func(func(model.Event, error) bool) {},
		"too large": func(yield func(model.Event, error) bool) { yield(nil, &model.Error{Class: model.Overflow}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				n := &narrow{window: 6000}
				n.use(w, true)
				calls, well := 0, false
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if isSummary(req) && !well {
						calls++
						fail(yield)
						return
					}
					n.reply(ctx, req, yield)
				}
				s := memstore.New()
				e := w.start(t, s)
				defer stop(t, e)
				bodies := messages(0, 200, 60)
				i := 0
				for ; i < len(bodies) && len(compactions(t, s)) == 0; i++ {
					converse(t, e, bodies[i])
					time.Sleep(time.Minute)
				}
				n.report(t)
				c := compactions(t, s)
				if len(c) != 1 || !c[0].Dropped || !strings.Contains(c[0].Summary, "earlier messages of this conversation have been left out") || n.refused > 0 {
					t.Fatalf("%d compactions after %d messages, %d refused: %+v", len(c), i, n.refused, c)
				}
				failed := 0
				for _, ev := range w.seen() {
					if ev.Type == engine.EventCompacted && ev.Error != nil {
						failed++
					}
				}
				if failed < 2 || calls < 2*failed || calls > 12*failed {
					t.Errorf("%d calls in %d tries", calls, failed)
				}
				well = true
				for ; i < len(bodies) && len(compactions(t, s)) == 1; i++ {
					converse(t, e, bodies[i])
					time.Sleep(time.Minute)
				}
				if c = compactions(t, s); len(c) != 2 || c[1].Dropped || !strings.Contains(shownText(n.summaries[0]), "have been left out") {
					t.Errorf("the next one is %+v", c[len(c)-1])
				}
			})
		})
	}
}

// While a summary is written, an abort, a deadline and a closing runtime are
// obeyed, messages are accepted, and a summarizer that never answers is left.
func TestSummaryIsCut(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  func(t *testing.T, e *engine.Engine)
		want string
	}{
		{"abort", func(t *testing.T, e *engine.Engine) {
			if ok, err := e.Abort(t.Context(), chat); !ok || err != nil {
				t.Error(ok, err)
			}
		}, "aborted"},
		{"deadline", func(*testing.T, *engine.Engine) {}, "failed"},
		{"closing", func(t *testing.T, e *engine.Engine) { stop(t, e) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.budget.Timeout = 4 * time.Minute
				n := &narrow{window: 6000}
				n.use(w, true)
				hang := make(chan struct{})
				asked := 0
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if isSummary(req) && asked == 0 {
						asked++
						close(hang)
						<-ctx.Done()
						return
					}
					n.reply(ctx, req, yield)
				}
				s := memstore.New()
				e := w.start(t, s)
				bodies := messages(0, 200, 60)
				var id string
				for i := 0; asked == 0; i++ {
					id = send(t, e, chat, bodies[i])
					synctest.Wait()
				}
				<-hang
				before := len(records(t, s, chat))
				tt.cut(t, e)
				if tt.want != "" {
					if got := settled(t, e, chat, id); got != tt.want {
						t.Errorf("settled %s", got)
					}
					if c := compactions(t, s); len(c) != 0 {
						t.Errorf("it was compacted: %+v", c)
					}
				} else {
					s = s.Reopen()
					if added := records(t, s, chat)[before:]; len(added) != 2 || added[0].Kind() != journal.KindUnsummarized || added[1].Kind() != journal.KindRelease {
						t.Errorf("%d records were added, want what was used and a release", len(added))
					}
					e = w.start(t, s)
					if got := settled(t, e, chat, id); got != "completed" {
						t.Errorf("settled %s", got)
					}
				}
				defer stop(t, e)
				converse(t, e, "and now")
				n.report(t)
			})
		})
	}
	t.Run("silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			n := &narrow{window: 6000}
			n.use(w, true)
			w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if isSummary(req) {
					<-ctx.Done()
					return
				}
				n.reply(ctx, req, yield)
			}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			for _, body := range messages(0, 45, 60) {
				converse(t, e, body)
				time.Sleep(10 * time.Minute)
			}
			n.report(t)
			if c := compactions(t, s); len(c) == 0 || !c[0].Dropped {
				t.Errorf("compacted %+v", c)
			}
		})
	})
}

// A compaction is one append beside the one that tells what led to it, and
// nothing more is appended when there is none.
func TestCompactionCommits(t *testing.T) {
	synctest.Test(t, testCompactionCommits)
}

func testCompactionCommits(t *testing.T) {
	w := newWorld()
	n := &narrow{window: 6000}
	n.use(w, true)
	fs := faultstore.New(memstore.New())
	e := w.start(t, fs)
	defer stop(t, e)
	was := 0
	for _, body := range messages(0, 60, 60) {
		before := fs.Calls().Append
		converse(t, e, body)
		want := 2
		if now := len(compactions(t, fs)); now > was {
			was, want = now, 3
		}
		if got := fs.Calls().Append - before; got != want {
			t.Errorf("%d appends, want %d", got, want)
		}
	}
	if was < 2 {
		t.Errorf("%d compactions", was)
	}
}

// With a compaction what the agent declares is the new baseline: what was told of
// changes before it is not told again, and the prompt lists what is there now.
func TestCompactionIsABaseline(t *testing.T) {
	w := newWorld()
	n := &narrow{window: 6000}
	n.use(w, true)
	skill := ""
	w.render = func(engine.View) (*engine.Plan, error) {
		p := &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Instructions: "be brief"}
		if skill != "" {
			p.Resources = []journal.Resource{{Kind: journal.ResourceSkill, Name: skill, Description: "a skill"}}
		}
		return p, nil
	}
	s := memstore.New()
	e := w.start(t, s)
	defer stop(t, e)
	converse(t, e, "one")
	skill = "cooking"
	converse(t, e, "two")
	if strings.Contains(w.latest().System, "cooking") || !strings.Contains(shownText(w.latest()), "cooking") {
		t.Fatalf("before: %q, %q", w.latest().System, shownText(w.latest()))
	}
	bodies := messages(0, 60, 60)
	for i := 0; len(compactions(t, s)) == 0; i++ {
		converse(t, e, bodies[i])
	}
	if !strings.Contains(w.latest().System, "cooking") || strings.Contains(shownText(w.latest()), "cooking") {
		t.Errorf("after: %q, %q", w.latest().System, shownText(w.latest()))
	}
	stop(t, e)
	e = w.start(t, s.Reopen())
	converse(t, e, "three")
	if !strings.Contains(w.latest().System, "cooking") || strings.Contains(shownText(w.latest()), "cooking") {
		t.Errorf("after a restart: %q, %q", w.latest().System, shownText(w.latest()))
	}
	n.report(t)
}

// Observers are told of each compaction, with its numbers.
func TestCompactionEvents(t *testing.T) {
	w := newWorld()
	n := &narrow{window: 6000}
	n.use(w, true)
	s := memstore.New()
	e := w.start(t, s)
	converse(t, e, messages(0, 60, 60)...)
	stop(t, e)
	var types []string
	for _, ev := range w.seen() {
		switch ev.Type {
		case engine.EventCompactionStarted:
			if ev.Reason != "threshold" || ev.TokensBefore < 3000 || ev.MessagesBefore < 10 || ev.Submission == "" {
				t.Errorf("%+v", ev)
			}
		case engine.EventCompacted:
			if ev.Error != nil || ev.TokensBefore <= ev.TokensAfter || ev.TokensAfter == 0 || ev.MessagesBefore <= ev.MessagesAfter || ev.Usage.Input != 10 || ev.Model != "test/m" {
				t.Errorf("%+v", ev)
			}
		default:
			continue
		}
		types = append(types, string(ev.Type))
	}
	if len(types) != 2*len(compactions(t, s)) || !slices.Contains(types, "compaction") {
		t.Errorf("the events are %q", types)
	}
}
