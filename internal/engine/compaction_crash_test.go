package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// message is what is delivered: what somebody says, or with a slash before it what
// is asked of the runtime.
func (d delivery) message(t *testing.T, e *engine.Engine) journal.Message {
	t.Helper()
	do, ok := strings.CutPrefix(d.body, "/")
	if !ok {
		return journal.Message{Kind: journal.User, Body: d.body}
	}
	m := journal.Message{Kind: journal.Signal, Type: journal.SignalCompaction, Attributes: map[string]string{engine.CommandDo: do}}
	if do == engine.CommandUndo {
		if latest, _, err := e.Compaction(t.Context(), chat); err == nil && latest != nil {
			m.Attributes[engine.CommandCompaction] = latest.ID
		}
	}
	return m
}

// tight gives a world a model with a small window, which finds fault with what is
// not in order.
func tight(window int, known bool) func(w *world) {
	return func(w *world) {
		n := &narrow{window: window, answer: w.reply}
		n.use(w, known)
		if known {
			w.infos = map[string]model.Info{"m": {ContextWindow: window, MaxOutput: window / 4}}
		}
		w.compaction = &journal.Compaction{KeepRecentTokens: 150}
		dump := w.tool("dump", func(context.Context, *engine.Work) engine.Result {
			return engine.Result{Content: strings.Repeat("lorem ipsum ", 1000)}
		})
		dump.Shown = -1
		w.tools = append(w.tools, dump)
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if text, results := asked(req); !isSummary(req) && strings.HasPrefix(text, "dump") && results == 0 && count(req) <= window {
				call(yield, fmt.Sprintf("dump d%d", len(req.Messages)))
				return
			}
			n.reply(ctx, req, yield)
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, f := range n.faults {
				w.effect("malformed: %s", f)
			}
		}
	}
}

// keyless is tight with a key that is no good for summaries, until it is mended.
func keyless(window int, known bool, until time.Duration) func(w *world) {
	return func(w *world) {
		tight(window, known)(w)
		w.fallbacks = nil
		began, reply := time.Now(), w.reply
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if isSummary(req) && time.Since(began) < until {
				w.effect("no summary")
				yield(nil, &model.Error{Class: model.Auth, Status: 401, Message: "no such key", Usage: model.Usage{Input: 100}})
				return
			}
			reply(ctx, req, yield)
		}
	}
}

// checkSummaries holds a journal to what is promised of summaries, whatever has
// crashed: none is asked for before it is written that it will be, each has one end,
// at which what it took counts, and after one that could not be had there is a pause.
func checkSummaries(t *testing.T, w *world, s store.Store) {
	t.Helper()
	var open *journal.Summarizing
	calls, tokens := 0, 0
	next := time.Time{}
	for b, err := range store.Batches(t.Context(), s, chat, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			switch r := r.(type) {
			case *journal.Summarizing:
				if open != nil {
					t.Error("a summary is begun before the one before it has ended")
				}
				if open = r; r.Reason == journal.CompactionThreshold && batch.At.Before(next) {
					t.Errorf("a summary is asked for at %v, before %v", batch.At, next)
				}
			case *journal.Unsummarized:
				if open = nil; r.Error != nil {
					next = time.UnixMilli(r.Next)
				}
				calls, tokens = calls+r.Calls, tokens+r.Usage.Total()+r.Guess.Total()
			case *journal.Compacted:
				if open == nil {
					t.Error("a summary was had that nobody has asked for")
				}
				open = nil
				calls, tokens = calls+r.Calls, tokens+r.Usage.Total()+r.Guess.Total()
			case *journal.TurnDone:
				tokens += r.Usage.Total() + r.Guess.Total()
			case *journal.TurnStarted, *journal.Settled:
				if open != nil {
					t.Errorf("there is a %s while a summary is asked for", r.Kind())
				}
			}
		}
	}
	if open != nil {
		t.Error("a summary has no end")
	}
	if asked := w.count("no summary"); asked > calls {
		t.Errorf("a summary was asked for in vain %d times, and %d count", asked, calls)
	}
	st, err := fold.Replay(func(yield func(fold.Batch, error) bool) {
		for i, records := range batches(t, s, chat) {
			if !yield(fold.Batch{Offset: int64(i), Records: records}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if used := st.Usage.Total() + st.Spent.Guessed; used != tokens {
		t.Errorf("the state has %d tokens, its journal %d", used, tokens)
	}
}

func compactionScenarios() []scenario {
	long := func(n int) (out []delivery) {
		for i := range n {
			out = append(out, delivery{at: time.Duration(i) * 10 * time.Second, body: fmt.Sprintf("m%d %s", i, prose(i, 36))})
		}
		return out
	}
	spread := func(by time.Duration, d []delivery) []delivery {
		for i := range d {
			d[i].at = time.Duration(i) * by
		}
		return d
	}
	after := func(d []delivery, more ...delivery) []delivery {
		for i := range more {
			more[i].at += d[len(d)-1].at
		}
		return append(d, more...)
	}
	return []scenario{
		{name: "threshold", setup: tight(520, true), sends: long(4)},
		{name: "overflow", setup: tight(460, false), sends: long(4)},
		{name: "overflow of one result", setup: tight(420, false), sends: []delivery{{0, "dump"}, {20 * time.Second, "hello"}}},
		{name: "asked for", setup: tight(5000, true), sends: after(long(2), delivery{10 * time.Second, "/compact"}, delivery{20 * time.Second, "hello"})},
		{name: "asked for during a response", setup: tight(5000, true), sends: after(long(2), delivery{10 * time.Second, "work"}, delivery{10*time.Second + 500*time.Millisecond, "/compact"})},
		{name: "undone", setup: tight(5000, true), sends: after(long(2), delivery{10 * time.Second, "/compact"}, delivery{20 * time.Second, "/undo"}, delivery{30 * time.Second, "hello"})},
		{name: "asked for while an answer is cut by the time", setup: tight(5000, true), sends: []delivery{{0, "dawdle " + prose(1, 36)}, {10 * time.Second, "dawdle " + prose(2, 36)}, {11 * time.Second, "/compact"}}, limits: submissionLimits(journal.Limits{WorkMS: 2000})},
		{name: "a key that is mended", setup: keyless(440, true, 100*time.Second), sends: spread(40*time.Second, long(4))},
		{name: "a key that is mended, and a window that is not known", setup: keyless(400, false, 100*time.Second), sends: spread(40*time.Second, long(4))},
		{name: "aborted", setup: tight(520, true), sends: long(4), abort: 25 * time.Second},
	}
}

// TestCrashInCompaction kills the process at every write of conversations that
// are compacted, then at every pair of writes.
func TestCrashInCompaction(t *testing.T) {
	runs := 0
	for _, sc := range compactionScenarios() {
		t.Run(sc.name, func(t *testing.T) {
			for n, total := 1, sc.run(t)[0]; n <= total; n++ {
				for m, mode := range modes {
					if testing.Short() && n%len(modes) != m {
						continue
					}
					writes := sc.run(t, crash{n, mode})
					if len(writes) < 2 {
						continue // it came to its end before
					}
					for m := 1; len(writes) > 1 && m <= writes[1] && !testing.Short(); m++ {
						sc.run(t, crash{n, mode}, crash{m, modes[(n+m)%len(modes)]})
						runs++
					}
					if runs++; t.Failed() {
						t.Fatalf("after a crash at write %d, %v", n, mode)
					}
				}
			}
		})
	}
	t.Logf("%d runs", runs)
}

// What a scenario is about does happen in it when nothing fails.
func TestCompactionScenariosCompact(t *testing.T) {
	for _, sc := range compactionScenarios() {
		t.Run(sc.name, func(t *testing.T) {
			made, undone, fitted, failed := 0, 0, 0, 0
			sc.setup = func(setup func(*world)) func(*world) {
				return func(w *world) { setup(w); w.every = 0 }
			}(sc.setup)
			sc.look = func(s store.Store) {
				for _, r := range records(t, s, chat) {
					switch r := r.(type) {
					case *journal.Compacted:
						made++
					case *journal.Uncompacted:
						undone++
					case *journal.Unsummarized:
						failed++
					case *journal.TurnStarted:
						if r.Fitted {
							fitted++
						}
					}
				}
			}
			sc.run(t)
			want := map[string][3]int{"threshold": {1, 0, 0}, "overflow": {1, 0, 0}, "overflow of one result": {0, 0, 1}, "undone": {1, 1, 0}}[sc.name]
			if made < max(want[0], 0) || undone < want[1] || fitted < want[2] || want == [3]int{} && made == 0 || strings.HasPrefix(sc.name, "a key") && failed == 0 {
				t.Errorf("%d compactions, %d undone, %d requests that were sent in part; want at least %v", made, undone, fitted, want)
			}
		})
	}
}
