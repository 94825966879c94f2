package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
	"github.com/flue-go/flue/wire"
)

// A hearing is what becomes of signals between processes, and how long things may
// take then.
type hearing struct {
	name    string
	signals faultstore.Signals
	intake  time.Duration // until an owner knows of what another process has taken in
	text    time.Duration // until a reader in another process sees text
}

// Signals that are lost are made up for by looking once a second, on both sides: the
// text that nobody is known to watch is appended once a second, too.
var hearings = []hearing{
	{"on", faultstore.Signals{}, 50 * time.Millisecond, 100 * time.Millisecond},
	{"twice", faultstore.Signals{Twice: 1, Late: 10 * time.Millisecond}, 50 * time.Millisecond, 100 * time.Millisecond},
	{"late", faultstore.Signals{Late: 20 * time.Millisecond}, 50 * time.Millisecond, 100 * time.Millisecond},
	{"lost", faultstore.Signals{Lost: 1}, 1100 * time.Millisecond, 2100 * time.Millisecond},
	{"none", faultstore.Signals{None: true}, 1100 * time.Millisecond, 100 * time.Millisecond},
}

// fleet opens engines a, b, c … on one store, which hear each other as the hearing
// says.
func fleet(t *testing.T, n int, h hearing, script func(*world)) (nodes []*node, durable *memstore.Store) {
	t.Helper()
	durable = memstore.New()
	for i := range n {
		w := newWorld()
		script(w)
		nodes = append(nodes, w.joinHearing(t, string(rune('a'+i)), durable, h.signals))
	}
	return nodes, durable
}

func (w *world) joinHearing(t testing.TB, name string, s store.Store, signals faultstore.Signals) *node {
	t.Helper()
	n := &node{world: w, name: name, fs: faultstore.New(s)}
	n.fs.SetSignals(signals)
	ctx := context.Background()
	if w.clock != nil {
		ctx = engine.WithClock(ctx, w.clock)
	}
	e, err := engine.Open(ctx, engine.Config{
		Store: n.fs, Programs: map[string]engine.Program{"chat": w}, Models: w, Observe: w.observe, Node: name, Log: testLog(), MergeAfter: w.merge,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.e = e
	return n
}

func stopAll(t *testing.T, nodes []*node) {
	t.Helper()
	for _, n := range nodes {
		stop(t, n.e)
	}
}

// hearingTest runs a test with two engines for each way of hearing.
func hearingTest(t *testing.T, script func(*world), test func(t *testing.T, h hearing, a, b *node, durable *memstore.Store)) {
	for _, h := range hearings {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, durable := fleet(t, 2, h, script)
				defer stopAll(t, nodes)
				time.Sleep(137 * time.Millisecond) // simulated: no message comes at the moment of a poll
				test(t, h, nodes[0], nodes[1], durable)
			})
		})
	}
}

// within fails the test unless what has begun has taken no longer than a time.
func within(t *testing.T, what string, began time.Time, most time.Duration) {
	t.Helper()
	if took := time.Since(began); took > most {
		t.Errorf("%s took %v, want at most %v", what, took, most)
	}
}

// A store that sends no signals is asked again from time to time, and believed when
// it sends some.
func TestSignalsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none, on := hearings[len(hearings)-1], hearings[0]
		nodes, _ := fleet(t, 2, none, func(w *world) { w.reply = echo })
		defer stopAll(t, nodes)
		a, b := nodes[0], nodes[1]
		settled(t, a.e, chat, send(t, a.e, chat, "one"))
		for _, n := range nodes {
			n.fs.SetSignals(on.signals)
		}
		time.Sleep(2 * time.Minute) // simulated
		settled(t, a.e, chat, send(t, a.e, chat, "two"))
		for i := range 5 {
			time.Sleep(730 * time.Millisecond) // simulated
			began := time.Now()
			settled(t, b.e, chat, send(t, b.e, chat, fmt.Sprint("three ", i)))
			within(t, "the answer", began, on.intake)
		}
	})
}

// A message that one process accepts for an instance that another one owns is
// answered by that one at once.
func TestMessageForAnotherProcess(t *testing.T) {
	hearingTest(t, func(w *world) { w.reply = echo }, func(t *testing.T, h hearing, a, b *node, _ *memstore.Store) {
		settled(t, a.e, chat, send(t, a.e, chat, "one"))
		for i := range 3 {
			began := time.Now()
			if got := settled(t, b.e, chat, send(t, b.e, chat, fmt.Sprint("two ", i))); got != journal.Completed {
				t.Errorf("settled %s", got)
			}
			most := h.intake
			if h.signals.Lost > 0 { // nor does who waits hear of the answer
				most += time.Second
			}
			within(t, "the answer", began, most)
			time.Sleep(730 * time.Millisecond) // simulated
		}
		if a.asked() != 4 || b.asked() != 0 {
			t.Errorf("the owner made %d model calls and the other process %d", a.asked(), b.asked())
		}
		if got, want := transcript(t, b.e, chat), transcript(t, a.e, chat); !slices.Equal(got, want) {
			t.Errorf("one process shows\n%s\nthe other\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// toolScript is an agent that works for ten seconds and then says what it was told
// meanwhile.
func toolScript(w *world) {
	w.tools = []engine.Tool{w.tool("work", func(ctx context.Context, c *engine.Work) engine.Result {
		if !pause(ctx, 10*time.Second) {
			w.effect("stopped:%v", context.Cause(ctx))
			return engine.Result{Failed: true, Content: "stopped", Err: ctx.Err()}
		}
		return engine.Result{Content: "ok"}
	})}
	w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		text, results := asked(req)
		if text == "work" && results == 0 {
			call(yield, fmt.Sprintf("work w%d", len(req.Messages)))
			return
		}
		echo(ctx, req, yield)
	}
}

// A message that another process accepts while a response is under way joins it.
func TestJoinThroughAnotherProcess(t *testing.T) {
	hearingTest(t, toolScript, func(t *testing.T, _ hearing, a, b *node, durable *memstore.Store) {
		first := send(t, a.e, chat, "work")
		time.Sleep(3 * time.Second) // simulated
		second := send(t, b.e, chat, "and this")
		for _, id := range []string{first, second} {
			if got := settled(t, b.e, chat, id); got != journal.Completed {
				t.Errorf("%s settled %s", id, got)
			}
		}
		answered := make(map[string]string)
		for _, r := range records(t, durable, chat) {
			if s, ok := r.(*journal.Settled); ok {
				answered[s.Submission] = s.AnsweredBy
			}
		}
		if answered[first] != first || answered[second] != first {
			t.Errorf("the messages %s and %s were answered by %v", first, second, answered)
		}
		if b.asked() != 0 || len(a.did()) != 1 {
			t.Errorf("the other process made %d model calls, and the owner did %q", b.asked(), a.did())
		}
	})
}

// An abort that another process takes stops the work at once.
func TestAbortThroughAnotherProcess(t *testing.T) {
	hearingTest(t, toolScript, func(t *testing.T, h hearing, a, b *node, _ *memstore.Store) {
		id := send(t, a.e, chat, "work")
		time.Sleep(3 * time.Second) // simulated
		began := time.Now()
		if ok, err := b.e.Abort(t.Context(), chat); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if got := settled(t, a.e, chat, id); got != journal.Aborted {
			t.Errorf("settled %s", got)
		}
		within(t, "the abort", began, h.intake)
		if got := a.did(); len(got) != 2 || !strings.HasPrefix(got[1], "stopped:the submission was aborted") {
			t.Errorf("the owner did %q", got)
		}
	})
}

// An abort of what nobody works on is carried out by whoever takes it up.
func TestAbortOfWhatNobodyOwns(t *testing.T) {
	hearingTest(t, toolScript, func(t *testing.T, _ hearing, a, b *node, durable *memstore.Store) {
		id := send(t, a.e, chat, "work")
		time.Sleep(time.Second) // simulated
		a.fs.CrashNow()
		time.Sleep(time.Second) // simulated
		if ok, err := b.e.Abort(t.Context(), chat); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if got := settled(t, b.e, chat, id); got != journal.Aborted {
			t.Errorf("settled %s", got)
		}
		if len(b.did()) != 0 {
			t.Errorf("the other process did %q", b.did())
		}
	})
}

// wordEvery is how often the model of liveScript says a word.
const wordEvery = 70 * time.Millisecond

// liveScript is a model that says numbers, and notes when it says each.
func liveScript(words int, said *sync.Map) func(w *world) {
	return func(w *world) {
		w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			if !pause(ctx, 300*time.Millisecond) { // as a model does
				return
			}
			var all strings.Builder
			for i := range words {
				word := fmt.Sprintf("<%d>", i)
				said.Store(word, time.Now())
				all.WriteString(word)
				if !yield(model.Delta{Kind: model.Text, Text: word}, nil) || !pause(ctx, wordEvery) {
					return
				}
			}
			yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: all.String()}}, nil)
			yield(model.Done{Stop: model.StopEnd}, nil)
		}
	}
}

// A message that the store is slow to take in, in the process of a reader, keeps that
// from nothing that the owner says meanwhile.
func TestReaderBesideSlowIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const words = 60
		said := new(sync.Map)
		nodes, _ := fleet(t, 2, hearings[0], liveScript(words, said))
		defer stopAll(t, nodes)
		a, b := nodes[0], nodes[1]
		ctx, cancel := context.WithCancel(t.Context())
		var lags map[string]time.Duration
		done := make(chan struct{})
		id := send(t, a.e, chat, "one")
		go func() { defer close(done); lags = lag(ctx, t, b.e, chat, said) }()
		slow := make(chan struct{})
		b.fs.SetHook(func(_ context.Context, p faultstore.Point) error {
			if p.Op == faultstore.Admit && !p.Done {
				<-slow
			}
			return nil
		})
		sent := make(chan struct{})
		go func() { defer close(sent); send(t, b.e, chat, "two") }()
		settled(t, a.e, chat, id)
		time.Sleep(3 * time.Second) // simulated
		cancel()
		<-done
		close(slow)
		<-sent
		worst := time.Duration(0)
		for i := 20; i < words; i++ { // the owner knows of the reader by then
			at, ok := lags[fmt.Sprintf("<%d>", i)]
			if !ok {
				t.Fatalf("word %d was not seen", i)
			}
			worst = max(worst, at)
		}
		if most := hearings[0].text; worst > most {
			t.Errorf("a word was seen %v after it was said, want at most %v", worst, most)
		}
		time.Sleep(time.Minute) // simulated: the second message is answered
	})
}

// Whoever hears signals does not wait for the store to give back what comes while the
// process leaves.
func TestHearNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, durable := fleet(t, 2, hearings[0], func(w *world) { w.reply = echo })
		a, b := nodes[0], nodes[1]
		defer stopAll(t, nodes)
		settled(t, a.e, chat, send(t, a.e, chat, "one"))
		inst, err := durable.Instance(t.Context(), chat)
		if err != nil {
			t.Fatal(err)
		}
		a.fs.Cut(faultstore.Before, true)
		a.e.BeginToLeave()
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			a.e.Hear(store.Signal{Kind: store.Grown, Address: chat, Head: inst.Head + 1})
		}()
		synctest.Wait()
		select {
		case <-heard:
		default:
			t.Error("who hears a signal waits for a store that does not answer")
		}
		a.fs.Mend()
		<-heard
		time.Sleep(time.Second) // simulated
		if got := settled(t, b.e, chat, send(t, b.e, chat, "two")); got != journal.Completed || b.asked() != 1 {
			t.Errorf("settled %s after %d model calls elsewhere", got, b.asked())
		}
	})
}

// lag follows an instance until ctx ends, and returns how long after each word was
// said it was seen.
func lag(ctx context.Context, t *testing.T, e *engine.Engine, addr store.Address, said *sync.Map) map[string]time.Duration {
	t.Helper()
	lags := make(map[string]time.Duration)
	after := int64(wire.Start)
	var text strings.Builder
	for ctx.Err() == nil {
		u, err := e.More(ctx, addr, after, 100)
		if err != nil {
			if !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
				t.Error(err)
			}
			pauseFor(ctx, 10*time.Millisecond)
			continue
		}
		var chunks []wire.Chunk
		if err := json.Unmarshal([]byte("["+string(u.Chunks)+"]"), &chunks); err != nil {
			t.Error(err)
		}
		for _, c := range chunks {
			text.WriteString(c.Delta)
		}
		said.Range(func(word, at any) bool {
			if w := word.(string); lags[w] == 0 && strings.Contains(text.String(), w) {
				lags[w] = time.Since(at.(time.Time)) + 1
			}
			return true
		})
		after = u.Next
		if err := e.Wait(ctx, addr, after); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	return lags
}

// A reader in another process than the one that works sees text soon after the model
// has said it, whether it was there before the work began or comes in the middle.
func TestFollowerInAnotherProcess(t *testing.T) {
	const words = 60
	for _, before := range []string{"idle", "given back", "working"} {
		t.Run(before, func(t *testing.T) {
			var said sync.Map
			hearingTest(t, liveScript(words, &said), func(t *testing.T, h hearing, a, b *node, durable *memstore.Store) {
				said.Clear()
				switch before {
				case "idle":
					settled(t, a.e, chat, send(t, a.e, chat, "one"))
				case "given back":
					settled(t, a.e, chat, send(t, a.e, chat, "one"))
					time.Sleep(2 * time.Minute) // simulated
				}
				said.Clear()
				ctx, cancel := context.WithCancel(t.Context())
				var lags map[string]time.Duration
				done := make(chan struct{})
				follow := func() {
					go func() { defer close(done); lags = lag(ctx, t, b.e, chat, &said) }()
				}
				if before != "working" {
					follow()
					time.Sleep(5 * time.Second) // simulated: the owner was told of it long ago
				}
				id := send(t, a.e, chat, "two")
				if before == "working" {
					time.Sleep(1330 * time.Millisecond) // simulated
					follow()
				}
				settled(t, b.e, chat, id)   // who waits at the owner would be a reader that it knows of
				time.Sleep(3 * time.Second) // simulated
				cancel()
				<-done
				if len(lags) != words {
					t.Fatalf("%d words of %d were seen", len(lags), words)
				}
				worst := time.Duration(0)
				for i := range words {
					if before == "working" && i < 17 { // these were said before it came
						continue
					}
					worst = max(worst, lags[fmt.Sprintf("<%d>", i)])
				}
				if worst > h.text {
					t.Errorf("a word was seen %v after it was said, want at most %v", worst, h.text)
				}
				t.Logf("signals %s, %s: a word was seen at most %v after it was said", h.name, before, worst)
			})
		})
	}
}

// A settler does something before the first batch is appended that settles a message.
type settler struct {
	*memstore.Store
	before func()
}

func (s *settler) Append(ctx context.Context, l store.Lease, w store.Write) (int64, error) {
	if before := s.before; before != nil && len(w.Settle) > 0 {
		s.before = nil
		before()
	}
	return s.Store.Append(ctx, l, w)
}

// A message that another process takes in just before the last append of a response is
// in that append's wake: the owner knows of it then, and does not come to rest.
func TestMessageBeforeTheLastAppend(t *testing.T) {
	for _, h := range hearings {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := memstore.New()
				s := &settler{Store: durable}
				var nodes []*node
				for i, s := range []store.Store{s, durable} {
					w := newWorld()
					w.reply = echo
					nodes = append(nodes, w.joinHearing(t, string(rune('a'+i)), s, h.signals))
				}
				defer stopAll(t, nodes)
				a, b := nodes[0], nodes[1]
				var second string
				s.before = func() { second = send(t, b.e, chat, "second") }
				settled(t, a.e, chat, send(t, a.e, chat, "first"))
				began := time.Now()
				if got := settled(t, b.e, chat, second); got != journal.Completed {
					t.Errorf("settled %s", got)
				}
				within(t, "the second message", began, 5*time.Second)
			})
		})
	}
}
