package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// A batch of which a store has kept half is refused when it is read. Nothing is
// done for its instance any more, whoever asks is told, and other instances go on.
func TestTornBatchIsRefused(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			for n := 1; sc.tear(t, n); n++ {
				if t.Failed() {
					t.Fatalf("after write %d was torn", n)
				}
			}
		})
	}
}

// tear holds the scenario until its n-th write, which is torn, and looks at what
// the next process does. It reports false if there is no such write.
func (sc scenario) tear(t *testing.T, n int) (torn bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		sc.script(w)
		durable := memstore.New()
		fs := faultstore.New(durable)
		fs.Crash(n, faultstore.Torn)
		e, err := w.open(fs)
		if err != nil {
			t.Fatal(err)
		}
		abortSent := false
		torn = sc.live(t, e, fs, time.Now(), map[int]bool{}, &abortSent)
		if !torn || fs.Written().Total() < n { // an abort of nothing writes nothing
			stop(t, e)
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Close(ctx); err != nil {
			t.Fatal(err)
		}

		calls, effects := w.calls, len(w.effects)
		e = w.start(t, durable.Reopen())
		defer stop(t, e)
		synctest.Wait()
		_, err = e.Admit(t.Context(), engine.Admission{
			Address: chat, Submission: "sub_after", Identity: []byte("x"), Message: journal.Message{Kind: journal.User, Body: "hello"},
		})
		if err == nil { // nobody had reason to look at the journal before
			synctest.Wait()
			_, err = e.Admit(t.Context(), engine.Admission{
				Address: chat, Submission: "sub_again", Identity: []byte("x"), Message: journal.Message{Kind: journal.User, Body: "hello"},
			})
		}
		var format *journal.FormatError
		if !errors.Is(err, engine.ErrDamaged) || !errors.As(err, &format) {
			t.Errorf("a message to it: %v, want ErrDamaged and the reason", err)
		}
		time.Sleep(time.Minute) // simulated
		if w.calls != calls || len(w.effects) != effects {
			t.Errorf("%d model calls and the effects %q came after the damage", w.calls-calls, w.effects[effects:])
		}
		other := store.Address{Agent: "chat", ID: "other"}
		if got := settled(t, e, other, send(t, e, other, fmt.Sprint("hello ", n))); got != "completed" {
			t.Errorf("a message to another instance settled %s", got)
		}
	})
	return torn
}
