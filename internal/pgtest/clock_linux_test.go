package pgtest_test

import (
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
)

func TestSkew(t *testing.T) {
	s := pgtest.Start(t)
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		if !s.Skew(t, by) {
			t.Skip("there is no C compiler")
		}
		now := pgtest.Value[time.Time](t, s.URL, "SELECT clock_timestamp()")
		if ahead := time.Until(now); (ahead - by).Abs() > time.Minute {
			t.Errorf("the clock is ahead by %v, want %v", ahead, by)
		}
	}
}
