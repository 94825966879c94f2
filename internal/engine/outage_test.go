package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store/memstore"
)

// A provider that is down for a moment costs a conversation nothing of what was
// said in it, although it has no room left.
func TestOutageAtTheThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := &narrow{window: 6000}
		n.use(w, true)
		var down time.Time
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if time.Now().Before(down) {
				yield(nil, &model.Error{Class: model.Overloaded, Status: 529, Message: "try again later"})
				return
			}
			n.reply(ctx, req, yield)
		}
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		converse(t, e, messages(0, 12, 60)...) // most of what there is room for
		if c := compactions(t, s); len(c) != 0 {
			t.Fatalf("%d compactions before", len(c))
		}
		down = time.Now().Add(5 * time.Second)
		if got := settled(t, e, chat, send(t, e, chat, strings.Repeat("more and more words ", 480))); got != "completed" {
			t.Errorf("settled %s", got)
		}
		// The answer may come while no other summary is asked for: less was sent for it.
		time.Sleep(10 * time.Second)
		if got := settled(t, e, chat, send(t, e, chat, "and now")); got != "completed" {
			t.Errorf("settled %s", got)
		}
		c := compactions(t, s)
		if len(c) == 0 || slices.ContainsFunc(c, func(c *journal.Compacted) bool { return c.Dropped }) {
			t.Errorf("compacted %+v", c)
		}
	})
}

// A summarizer whose quota is used up, whose key was replaced, or that does not
// come to an end costs a conversation nothing either, however long that lasts:
// the model is sent less of it until a summary can be had.
func TestSummarizerOutage(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context, yield func(model.Event, error) bool){
		"quota": func(_ context.Context, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Quota, Status: 402, Message: "pay first"})
		},
		"key": func(_ context.Context, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Auth, Status: 401, Message: "no"})
		},
		"slow": func(ctx context.Context, yield func(model.Event, error) bool) {
			<-ctx.Done()
			yield(nil, context.Cause(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				n := &narrow{window: 6000}
				n.use(w, true)
				down := true
				w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
					if down && isSummary(req) {
						w.effect("summary")
						fail(ctx, yield)
						return
					}
					n.reply(ctx, req, yield)
				}
				s := memstore.New()
				e := w.start(t, s)
				defer stop(t, e)
				i, bodies := 0, messages(0, 100, 60)
				for ; i < len(bodies) && w.count("summary") == 0; i++ {
					converse(t, e, bodies[i])
				}
				more := 20
				if name == "slow" { // that may be this summary's fault
					more = 6
				}
				converse(t, e, bodies[i:i+more]...)
				if c := compactions(t, s); len(c) != 0 {
					t.Fatalf("compacted %+v after %d summaries were asked for", c, w.count("summary"))
				}
				if last := shownText(w.latest()); !strings.Contains(last, "are left out here") {
					t.Error("the model was sent all of it")
				}
				down = false
				time.Sleep(20 * time.Minute)
				converse(t, e, "and now")
				if c := compactions(t, s); len(c) != 1 || c[0].Dropped || !strings.HasPrefix(c[0].Summary, "summary ") {
					t.Errorf("compacted %+v when the summarizer is back", c)
				}
				n.report(t)
			})
		})
	}
}

// The models that a response falls back to write the summary too, when those
// before them cannot.
func TestSummaryByAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := &narrow{window: 6000}
		n.use(w, true)
		w.infos["b"] = model.Info{ContextWindow: 6000, MaxOutput: 4096}
		w.fallbacks, w.compaction = []string{"test/b"}, &journal.Compaction{Model: "test/small"}
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if isSummary(req) && req.Model != "b" {
				w.effect("%s", req.Model)
				yield(nil, &model.Error{Class: model.Quota, Status: 402, Message: "pay first"})
				return
			}
			n.reply(ctx, req, yield)
		}
		s := memstore.New()
		e := w.start(t, s)
		defer stop(t, e)
		converse(t, e, messages(0, 30, 60)...)
		c := compactions(t, s)
		if len(c) == 0 || c[0].Model != "b" || c[0].Dropped || c[0].Calls != 3 {
			t.Fatalf("compacted %+v", c)
		}
		if d := w.did(); len(d) < 2 || d[0] != "small" || d[1] != "m" {
			t.Errorf("asked before it: %v", d)
		}
	})
}
