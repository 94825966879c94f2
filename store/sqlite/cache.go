package sqlite

import "github.com/flue-go/flue/store"

// generation is how many entries a generation of the cache holds.
const generation = 4096

// A cache remembers the instances that were written lately: those of the
// current generation and those of the one before, which is dropped when the
// current one is full. It thus holds every one of the last 4,096, and never
// more than twice that. The zero value is empty.
type cache struct {
	young, old map[store.Address]*entry
}

func (c *cache) get(addr store.Address) *entry {
	if e := c.young[addr]; e != nil {
		return e
	}
	e := c.old[addr]
	if e != nil {
		c.put(e)
	}
	return e
}

func (c *cache) put(e *entry) {
	if c.young == nil || len(c.young) >= generation {
		c.young, c.old = make(map[store.Address]*entry), c.young
	}
	c.young[e.addr] = e
}
