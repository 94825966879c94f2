package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// converse sends messages one after another and wants each to complete.
func converse(t *testing.T, e *engine.Engine, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if got := settled(t, e, chat, send(t, e, chat, body)); got != "completed" {
			t.Errorf("%.20q settled %s", body, got)
		}
	}
}

func messages(from, to, words int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("m%d %s", i, prose(i, words)))
	}
	return out
}

// shownText is all that a request shows.
func shownText(req *model.Request) string {
	var b strings.Builder
	for _, m := range req.Messages {
		for _, bl := range m.Blocks {
			b.WriteString(bl.Text + bl.Arguments + "\n")
		}
	}
	return b.String()
}

// A model whose window is not known refuses what is too large: the conversation
// is compacted once, and goes on.
func TestOverflowIsCompacted(t *testing.T) {
	w := newWorld()
	n := &narrow{window: 4000}
	n.use(w, false)
	s := memstore.New()
	e := w.start(t, s)
	defer stop(t, e)
	converse(t, e, messages(0, 60, 100)...)
	n.report(t)
	all := compactions(t, s)
	if len(all) < 2 || len(all) > 10 || n.refused > len(all) {
		t.Errorf("%d compactions after %d refusals", len(all), n.refused)
	}
	for _, c := range all {
		if c.Reason != journal.CompactionOverflow || c.Dropped {
			t.Errorf("a compaction for %s: %q", c.Reason, c.Summary)
		}
	}
}

// The last result of a tool alone is larger than the window. What is sent of it
// is shortened, the journal has all of it.
func TestOverflowOfOneResult(t *testing.T) {
	for _, known := range []bool{true, false} {
		for _, before := range []int{0, 20} {
			t.Run(fmt.Sprint(known, before), func(t *testing.T) {
				w := newWorld()
				n := &narrow{window: 8000}
				n.use(w, known)
				huge := "BEGIN " + strings.Repeat("lorem ipsum dolor ", 12_000) + " END"
				w.tools = []engine.Tool{w.tool("dump", func(context.Context, *engine.Work) engine.Result { return engine.Result{Content: huge} })}
				w.tools[0].Shown = -1
				n.answer = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					text, results := asked(req)
					switch shown := shownText(req); {
					case !strings.HasPrefix(text, "dump"), results > 0 && strings.Contains(shown, "BEGIN") && strings.Contains(shown, " END") && strings.Contains(shown, "left out"):
						say(yield, "re: "+text)
					case results == 0:
						call(yield, "dump d1")
					default:
						say(yield, "where is it?")
					}
				}
				s := memstore.New()
				e := w.start(t, s)
				defer stop(t, e)
				converse(t, e, messages(0, before, 50)...)
				converse(t, e, "dump it")
				n.report(t)
				if got := strings.Join(transcript(t, e, chat), "\n"); !strings.Contains(got, `"re: dump it"`) {
					t.Errorf("it ends with %s", got[max(0, len(got)-300):])
				}
				fitted := 0
				for _, r := range records(t, s, chat) {
					switch r := r.(type) {
					case *journal.Outcome:
						if r.Content != huge {
							t.Error("the journal does not have the whole result")
						}
					case *journal.TurnStarted:
						if r.Fitted {
							fitted++
						}
					}
				}
				if fitted == 0 || fitted > 6 {
					t.Errorf("%d turns are said to have been sent less", fitted)
				}
				converse(t, e, messages(before, before+10, 50)...) // and it goes on
				n.report(t)
			})
		}
	}
}

// Images, and then whole turns, are left out when nothing else helps.
func TestOverflowOfTheRest(t *testing.T) {
	w := newWorld()
	n := &narrow{window: 3000}
	n.use(w, false)
	n.sum = func(int, *model.Request) string { return "" } // nobody sums up
	w.budget.Timeout = time.Hour
	n.answer = echo
	s := memstore.New()
	e := w.start(t, s)
	defer stop(t, e)
	a := engine.Admission{Address: chat, Submission: "sub_img", Identity: []byte{1}, Origin: "direct", Message: journal.Message{Kind: journal.User, Body: "look"}}
	for i := range 4 {
		addImage(&a, i)
	}
	if _, err := e.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := settled(t, e, chat, a.Submission); got != "completed" {
		t.Errorf("settled %s", got)
	}
	if got := shownText(w.latest()); strings.Count(got, "An image was attached here.") < 3 || len(w.latest().Messages) != 1 {
		t.Errorf("the model was shown %q", got)
	}
	n.report(t)
}

// What cannot be made smaller fails with an error that says so, and the next
// message works.
func TestOverflowForGood(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			w := newWorld()
			n := &narrow{window: 2000}
			n.use(w, known)
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			converse(t, e, messages(0, 3, 30)...)
			if got := settled(t, e, chat, send(t, e, chat, "paste "+strings.Repeat("lorem ipsum ", 5000))); got != "failed" {
				t.Errorf("settled %s", got)
			}
			var end string
			for _, r := range records(t, s, chat) {
				if r, ok := r.(*journal.Settled); ok && r.Outcome == journal.Failed {
					end = string(r.Error)
				}
			}
			for _, want := range []string{`"type":"context_overflow"`, "does not fit the context window", "larger context window"} {
				if !strings.Contains(end, want) {
					t.Errorf("the error is %s, want one that has %s", end, want)
				}
			}
			if n.refused > 10 {
				t.Errorf("%d requests were refused", n.refused)
			}
			converse(t, e, messages(3, 6, 30)...)
			n.report(t)
		})
	}
}

// What is done about a request that is too large is a function of the journal: a
// process that dies in the middle goes on where it was.
func TestOverflowSurvivesCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := &narrow{window: 2000}
		n.use(w, false)
		w.tools = []engine.Tool{w.tool("dump", func(context.Context, *engine.Work) engine.Result {
			return engine.Result{Content: strings.Repeat("lorem ipsum dolor ", 6_000)}
		})}
		w.tools[0].Shown = -1
		n.answer = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if text, results := asked(req); text == "dump" && results == 0 {
				call(yield, "dump d1")
				return
			}
			echo(ctx, req, yield)
		}
		durable := memstore.New()
		e := w.start(t, durable)
		converse(t, e, messages(0, 10, 30)...)
		stop(t, e)
		requests := n.asked()
		// Each life is ended after one more model call has been answered.
		for life := 0; ; life++ {
			if life > 30 {
				t.Fatal("it does not come to an end")
			}
			durable = durable.Reopen()
			e = w.start(t, durable)
			if life == 0 {
				if _, err := e.Admit(t.Context(), engine.Admission{Address: chat, Submission: "sub_0", Identity: []byte{1}, Origin: "direct", Message: journal.Message{Kind: journal.User, Body: "dump"}}); err != nil {
					t.Fatal(err)
				}
			}
			for was := n.asked(); n.asked() == was; {
				time.Sleep(time.Millisecond)
				if sub, err := e.Submission(t.Context(), chat, "sub_0"); err == nil && sub.Outcome != "" {
					if sub.Outcome != "completed" || n.asked()-requests > 60 {
						t.Errorf("settled %s after %d model calls", sub.Outcome, n.asked()-requests)
					}
					stop(t, e)
					n.report(t)
					return
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := e.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	})
}
