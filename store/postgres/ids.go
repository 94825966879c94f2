package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// How many instances a generation of names holds at least.
const (
	generation         = 8192
	followedGeneration = 4 * generation
)

// ids remembers which instance has which id, which never changes: of what this
// process has to do with, and, apart from that and longer, of what it owns or reads
// live. Of those it must hear, however many others it takes messages in for meanwhile.
// The zero value is empty.
type ids struct {
	mu              sync.Mutex
	known, followed names
}

// put notes the id of an instance.
func (c *ids) put(id int64, a store.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.put(id, a, generation)
}

// follow notes that this process owns an instance, or reads it live.
func (c *ids) follow(id int64, a store.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.put(id, a, generation)
	c.followed.put(id, a, followedGeneration)
}

// unfollow notes that an instance was given back. What is lost in another way, or read
// no more, stays until others take its place. It does no harm: it is heard of in vain.
func (c *ids) unfollow(a store.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followed.remove(a)
}

func (c *ids) addr(id int64) (store.Address, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.known.addr(id, generation); ok {
		return a, true
	}
	return c.followed.addr(id, followedGeneration)
}

func (c *ids) id(a store.Address) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.known.id(a, generation); ok {
		return id, true
	}
	return c.followed.id(a, followedGeneration)
}

// names are those of the current generation and those of the one before, which is
// dropped when the current one is full. What is used is of the current one again.
type names struct{ young, old idMaps }

type idMaps struct {
	addrs map[int64]store.Address
	ids   map[store.Address]int64
}

func (n *names) put(id int64, a store.Address, most int) {
	if _, ok := n.young.addrs[id]; !ok {
		// The strings may be parts of larger ones of a caller.
		n.keep(id, store.Address{Agent: strings.Clone(a.Agent), ID: strings.Clone(a.ID)}, most)
	}
}

func (n *names) keep(id int64, a store.Address, most int) {
	if n.young.addrs == nil || len(n.young.addrs) >= most {
		n.old = n.young
		n.young = idMaps{make(map[int64]store.Address), make(map[store.Address]int64)}
	}
	n.young.addrs[id] = a
	n.young.ids[a] = id
}

func (n *names) addr(id int64, most int) (store.Address, bool) {
	if a, ok := n.young.addrs[id]; ok {
		return a, true
	}
	a, ok := n.old.addrs[id]
	if ok {
		n.keep(id, a, most)
	}
	return a, ok
}

func (n *names) id(a store.Address, most int) (int64, bool) {
	if id, ok := n.young.ids[a]; ok {
		return id, true
	}
	id, ok := n.old.ids[a]
	if ok {
		n.keep(id, n.old.addrs[id], most)
	}
	return id, ok
}

func (n *names) remove(a store.Address) {
	for _, m := range []idMaps{n.young, n.old} {
		if id, ok := m.ids[a]; ok {
			delete(m.addrs, id)
			delete(m.ids, a)
		}
	}
}

const numbersSQL = `
SELECT i.id, i.agent, i.name FROM unnest($1::text[], $2::text[]) AS w(agent, name)
JOIN @.instances i ON i.agent = w.agent AND i.name = w.name`

// numbers looks up the ids of addresses, which are followed from now on. Those of
// instances that do not exist are left out.
func (s *Store) numbers(ctx context.Context, addrs []store.Address) (found []int64, err error) {
	var agents, names []string
	for _, a := range addrs {
		if id, ok := s.ids.id(a); ok {
			s.ids.follow(id, a)
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
				s.ids.follow(id, a)
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
