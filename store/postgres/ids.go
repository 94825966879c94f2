package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// generation is how many instances a generation of ids holds.
const generation = 8192

// ids remembers which instance has which id, which never changes: of what this
// process owns, writes to or reads live, those of the current generation and those of the one before, which is dropped when the
// current one is full. The zero value is empty.
type ids struct {
	mu         sync.Mutex
	young, old idMaps
}

type idMaps struct {
	addrs map[int64]store.Address
	ids   map[store.Address]int64
}

func (c *ids) put(id int64, a store.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.young.addrs[id]; !ok {
		// The strings may be parts of larger ones of a caller.
		c.keep(id, store.Address{Agent: strings.Clone(a.Agent), ID: strings.Clone(a.ID)})
	}
}

func (c *ids) keep(id int64, a store.Address) {
	if c.young.addrs == nil || len(c.young.addrs) >= generation {
		c.old = c.young
		c.young = idMaps{make(map[int64]store.Address), make(map[store.Address]int64)}
	}
	c.young.addrs[id] = a
	c.young.ids[a] = id
}

func (c *ids) addr(id int64) (store.Address, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.young.addrs[id]; ok {
		return a, true
	}
	a, ok := c.old.addrs[id]
	if ok {
		c.keep(id, a)
	}
	return a, ok
}

func (c *ids) id(a store.Address) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.young.ids[a]; ok {
		return id, true
	}
	id, ok := c.old.ids[a]
	if ok {
		c.keep(id, c.old.addrs[id])
	}
	return id, ok
}

const numbersSQL = `
SELECT i.id, i.agent, i.name FROM unnest($1::text[], $2::text[]) AS w(agent, name)
JOIN @.instances i ON i.agent = w.agent AND i.name = w.name`

// numbers looks up the ids of addresses. Those of instances that do not exist are
// left out.
func (s *Store) numbers(ctx context.Context, addrs []store.Address) (found []int64, err error) {
	var agents, names []string
	for _, a := range addrs {
		if id, ok := s.ids.id(a); ok {
			found = append(found, id)
		} else if storable(a.Agent, a.ID) {
			agents, names = append(agents, a.Agent), append(names, a.ID)
		}
	}
	if len(agents) == 0 {
		return found, nil
	}
	known := len(found)
	err = s.run(ctx, s.reading(), func(ctx context.Context, c *pgx.Conn) error {
		found = found[:known]
		return each(ctx, c, func(r pgx.Rows) error {
			var id int64
			var a store.Address
			err := r.Scan(&id, &a.Agent, &a.ID)
			if err == nil {
				s.ids.put(id, a)
				found = append(found, id)
			}
			return err
		}, s.sql.numbers, agents, names)
	})
	return found, err
}

// Watch implements [store.Sharer]. It also makes this process hear of the instances.
func (s *Store) Watch(ctx context.Context, addrs []store.Address) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	found, err := s.numbers(ctx, addrs)
	if err != nil {
		return fmt.Errorf("watch %d instances: %w", len(addrs), err)
	}
	if !s.signals.wanted() {
		return nil
	}
	for _, id := range found {
		s.signals.watched(id)
	}
	return nil
}
