package engine_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// TestFaultStorm holds the scenarios on a store of which one call in twenty
// fails, is late or hangs, and which then recovers. Nothing that was acknowledged
// is lost or done twice, and all is settled soon after the storm, by the same
// process. FLUE_STORMS says how many storms are tried, twenty by default, and
// FLUE_SEED which is the first.
func TestFaultStorm(t *testing.T) {
	seeds := stormsWanted(t, 20)
	first := seedOf(t)
	var faults int
	var slowest time.Duration
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			struck := 0
			for i := range seeds {
				n, took := sc.storm(t, first+uint64(i))
				struck += n
				slowest = max(slowest, took)
				if t.Failed() {
					t.Fatalf("in the storm of FLUE_SEED=%d", first+uint64(i))
				}
			}
			if faults += struck; struck == 0 {
				t.Errorf("no call has failed in %d storms", seeds)
			}
		})
	}
	t.Logf("%d calls failed; all was settled at most %v after a storm", faults, slowest)
}

// stormsWanted is FLUE_STORMS, or as many as usual, and few with -short.
func stormsWanted(t *testing.T, usual int) int {
	t.Helper()
	s := os.Getenv("FLUE_STORMS")
	switch {
	case s == "" && testing.Short():
		return max(usual/5, 1)
	case s == "":
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("FLUE_STORMS: %v", err)
	}
	return n
}

// seedOf returns FLUE_SEED, or another seed each time, and logs it.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FLUE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("FLUE_SEED: %v", err)
		}
	}
	t.Logf("FLUE_SEED=%d", seed)
	return seed
}

// afterStorm is how long work may take to go on once the store is well. A call that
// hangs already does so for ten seconds more, and who has failed to reach the store
// some times in a row pauses before the next time. As a rule it is within three.
const afterStorm = 20 * time.Second

// storm holds the scenario in a storm. It returns how many calls failed, and how long
// after the storm all was settled.
func (sc scenario) storm(t *testing.T, seed uint64) (faults int, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		sc.script(w)
		if sc.timeout > 0 {
			w.budget.Timeout = sc.timeout
		}
		durable := memstore.New()
		fs := faultstore.New(durable)
		e := w.start(t, fs)
		fs.Storm(seed, 0.05)
		acked := make(map[int]bool)
		abortSent := sc.abort == 0
		began := time.Now()
		for time.Since(began) < time.Minute {
			for i, d := range sc.sends {
				if !acked[i] && d.at <= time.Since(began) {
					acked[i] = admitWithin(e, submissionOf(i), d.body)
				}
			}
			if sc.abort <= time.Since(began) && !abortSent {
				_, err := e.Abort(t.Context(), chat)
				abortSent = err == nil
			}
			time.Sleep(200 * time.Millisecond)
		}
		faults = fs.Faults()
		fs.Calm()
		fs.Flush()
		calm := time.Now()
		for !sc.finished(e, acked) {
			if time.Since(calm) > afterStorm {
				t.Errorf("not settled %v after the storm: acknowledged %v", time.Since(calm), acked)
				break
			}
			time.Sleep(200 * time.Millisecond)
			for i, d := range sc.sends {
				acked[i] = acked[i] || admitWithin(e, submissionOf(i), d.body)
			}
		}
		took = time.Since(calm)
		stop(t, e)
		if t.Failed() {
			return
		}
		durable = durable.Reopen()
		e = w.start(t, durable)
		defer stop(t, e)
		sc.check(t, w, e, durable, acked)
	})
	return faults, took
}

// admitWithin sends a message and reports whether it was acknowledged in time.
func admitWithin(e *engine.Engine, id, body string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := e.Admit(ctx, engine.Admission{
		Address: chat, Submission: id, Identity: []byte(body), Origin: "direct",
		Message: journal.Message{Kind: journal.User, Body: body},
	})
	return err == nil
}

// A message or an abort whose acknowledgement was lost is in the journal. It is
// found by asking the store, though nobody sends it again.
func TestLostAcknowledgement(t *testing.T) {
	for _, idle := range []bool{false, true} {
		t.Run(map[bool]string{false: "of a birth", true: "of a message to an idle instance"}[idle], func(t *testing.T) {
			onEach(t, func(t *testing.T, s store.Store) {
				w := newWorld()
				script(w)
				fs := faultstore.New(s)
				e := w.start(t, fs)
				defer stop(t, e)
				if idle {
					settled(t, e, chat, send(t, e, chat, "hello"))
				}
				fs.Fail(1, faultstore.After)
				if admitWithin(e, "sub_lost", "hello") {
					t.Fatal("the failure was not injected")
				}
				time.Sleep(5 * time.Second) // simulated
				if sub, err := e.Submission(t.Context(), chat, "sub_lost"); err != nil || sub.Outcome != journal.Completed {
					t.Errorf("after five seconds: %+v, %v", sub, err)
				}
			})
		})
	}
}

// An abort that the running work was not told of is noticed with the next batch
// that it appends.
func TestAbortThatNobodyTold(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		w := newWorld()
		script(w)
		e := w.start(t, s)
		defer stop(t, e)
		id := send(t, e, chat, "slow") // speaks for three seconds, and a segment is appended each
		time.Sleep(500 * time.Millisecond)
		payload, err := journal.Encode(journal.Batch{At: time.Now(), Records: []journal.Record{&journal.Abort{}}})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := s.Abort(t.Context(), chat, payload); !ok || err != nil {
			t.Fatal(ok, err)
		}
		began := time.Now()
		if got := settled(t, e, chat, id); got != journal.Aborted {
			t.Errorf("settled %s", got)
		}
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("it took %v to notice", took)
		}
	})
}

// Who waits for an instance learns of a batch that was stored although its append
// was reported as failed, also when it is the last one.
func TestReadersLearnOfLostAcknowledgements(t *testing.T) {
	for n := 1; n <= 8; n++ {
		for _, mode := range modes {
			for _, body := range []string{"fall", "long", "work"} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					script(w)
					fs := faultstore.New(memstore.New())
					fs.Fail(n, mode)
					e := w.start(t, fs)
					defer stop(t, e)
					for !admitWithin(e, "sub_0", body) {
						time.Sleep(time.Second)
					}
					live, early := newWatcher(t, e, chat), newWatcher(t, e, chat)
					began := time.Now()
					if got := settled(t, e, chat, "sub_0"); got != journal.Completed || time.Since(began) > time.Minute {
						t.Errorf("%s, write %d %s: settled %s after %v", body, n, mode, got, time.Since(began))
					}
					want := transcript(t, e, chat)
					early.stop()
					if has := early.rest(); strings.Join(has, "\n") != strings.Join(want, "\n") {
						t.Errorf("%s, write %d %s: a reader that asks has %d parts of %d", body, n, mode, len(has), len(want))
					}
					time.Sleep(time.Second) // simulated: the instance is taken anew before anybody can be told
					if has := live.stop(); strings.Join(has, "\n") != strings.Join(want, "\n") {
						t.Errorf("%s, write %d %s: a reader that follows has %d parts of %d", body, n, mode, len(has), len(want))
					}
				})
			}
		}
	}
}
