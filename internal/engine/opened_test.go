package engine_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A claimed store counts how often somebody looked for work.
type claimed struct {
	store.Store
	claims int
}

func (c *claimed) Claim(ctx context.Context, node string, limit int, agents ...string) ([]store.Lease, error) {
	c.claims++
	return c.Store.Claim(ctx, node, limit, agents...)
}

// Whoever opens an engine has it before the engine takes up anything: what it
// takes up may need it.
func TestOpenedBeforeWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &claimed{Store: memstore.New()}
		var given *engine.Engine
		e, err := engine.Open(t.Context(), engine.Config{Store: s, Opened: func(e *engine.Engine) {
			given = e
			synctest.Wait() // all that runs has gone as far as it can
			if s.claims > 0 {
				t.Error("the engine has looked for work already")
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, e)
		if given != e {
			t.Error("another engine was given")
		}
		synctest.Wait()
		if s.claims == 0 {
			t.Error("the engine does not look for work")
		}
	})
}
