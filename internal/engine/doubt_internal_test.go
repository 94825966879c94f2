package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/flue-go/flue/store"
)

// A silent store answers nothing about instances.
type silent struct {
	store.Store
	asked atomic.Int64
}

func (s *silent) Instance(context.Context, store.Address) (store.Instance, error) {
	s.asked.Add(1)
	return store.Instance{}, store.ErrUnavailable
}

// A store that does not answer is asked about a few doubts and not about each of
// them, and none is forgotten.
func TestDoubtsOfASilentStore(t *testing.T) {
	s := new(silent)
	e := &Engine{cfg: Config{Store: s}}
	const doubts = 500
	for i := range doubts {
		e.doubts.add(store.Address{Agent: "chat", ID: fmt.Sprint(i)}, store.ErrUnavailable)
	}
	e.settleDoubts(t.Context())
	if n := s.asked.Load(); n < 1 || n > doubters {
		t.Errorf("the store was asked %d times, want at most %d", n, doubters)
	}
	if n := len(e.doubts.take()); n != doubts {
		t.Errorf("%d doubts are left, want %d", n, doubts)
	}
}
