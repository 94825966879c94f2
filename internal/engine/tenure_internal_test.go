package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The end of a term is noticed by whoever asks, although nobody has told: after a
// pause of the whole process the first to run may be one that is about to act.
func TestTermEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var e tenure
		e.begin(ctx, 10*time.Second, time.Now())
		first := e.now()
		time.Sleep(5*time.Second - time.Nanosecond)
		if err := e.holds(first); err != nil || e.holds(nil) == nil {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := e.holds(first); !errors.Is(err, ErrLeaseLapsed) || !errors.Is(context.Cause(first.ctx), ErrLeaseLapsed) {
			t.Errorf("%v, %v", err, context.Cause(first.ctx))
		}
		// What was asked for too long ago begins no term, and one begins only once.
		if began, _ := e.renew(time.Now().Add(-5 * time.Second)); began {
			t.Error("an old renewal has begun a term")
		}
		began, untold := e.renew(time.Now())
		if !began || !untold {
			t.Errorf("began %v, untold %v", began, untold)
		}
		if began, _ := e.renew(time.Now()); began {
			t.Error("a term has begun in a term")
		}
		if e.holds(first) == nil || e.holds(e.now()) != nil {
			t.Error("what was got in the first term is good in the second")
		}
		// An answer that comes late does not turn time back.
		time.Sleep(4 * time.Second)
		e.renew(time.Now())
		e.renew(time.Now().Add(-3 * time.Second))
		time.Sleep(4 * time.Second)
		if e.holds(e.now()) != nil {
			t.Error("an answer that came late has shortened the term")
		}
	})
}
