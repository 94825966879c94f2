package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// While the line is down calls wait, as long as their contexts let them. With After
// a write is done all the same.
func TestCut(t *testing.T) {
	for _, tt := range []struct {
		mode faultstore.Mode
		deaf bool
		err  error         // of an admission that has a second
		took time.Duration // until it answers
		done bool          // it is done when the second is over
	}{
		{faultstore.Before, false, context.DeadlineExceeded, time.Second, false},
		{faultstore.After, false, context.DeadlineExceeded, time.Second, true},
		{faultstore.Before, true, context.DeadlineExceeded, time.Minute, false}, // it comes too late
		{faultstore.After, true, nil, time.Minute, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New()
			s := faultstore.New(inner)
			s.Cut(tt.mode, tt.deaf)
			s.Cut(tt.mode, !tt.deaf) // it is down already
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			var took time.Duration
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = s.Admit(ctx, admission("s1"))
				took = time.Since(began)
			}()
			time.Sleep(2 * time.Second)
			if _, err := inner.Instance(t.Context(), addr); (err == nil) != tt.done {
				t.Errorf("%+v: the store says %v", tt, err)
			}
			time.Sleep(58 * time.Second)
			s.Mend()
			s.Mend()
			<-done
			if !errors.Is(err, tt.err) || took != tt.took {
				t.Errorf("%+v: %v after %v", tt, err, took)
			}
		})
	}
}

func TestRefuseRenewals(t *testing.T) {
	s := faultstore.New(memstore.New())
	mine := errors.New("mine")
	s.RefuseRenewals(mine)
	if err := s.Renew(t.Context(), "n1", time.Minute); !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
	s.RefuseRenewals(nil)
	if err := s.Renew(t.Context(), "n1", time.Minute); err != nil {
		t.Error(err)
	}
}
