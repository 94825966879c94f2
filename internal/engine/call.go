package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/flue-go/flue/journal"
)

// ErrCallOver is the error of a write by a call that has ended or was
// abandoned. What it meant to write is lost, as its result is.
var ErrCallOver = errors.New("the tool call is over, so it can no longer write")

// A Call is what one running tool call may reach.
type Call struct {
	ID   string
	Key  string // unique among all calls of all instances, and the same if the call is run again
	Tool string
	Log  *slog.Logger

	scratch *scratch
	writes  []journal.VarWrite // guarded by scratch.mu
	over    bool               // guarded by scratch.mu
}

// scratch holds what the calls of one batch have written and not committed.
// All calls of a batch share one, so that each sees the others' writes.
type scratch struct {
	mu   sync.Mutex
	seq  int
	vars map[string]json.RawMessage
	by   map[string]*Call // who wrote a name last, if a call of this batch did
}

func newScratch(vars map[string]json.RawMessage) *scratch {
	return &scratch{vars: maps.Clone(vars), by: make(map[string]*Call)}
}

// Update replaces the value of one name of the persistent state by what fn
// makes of the current one, which is nil if the name was never written. It is
// atomic with the other calls of the batch. A value equal to the current one is
// not written, unless it is another call's: that call may yet be interrupted,
// and its write is then lost.
func (c *Call) Update(name string, fn func(current json.RawMessage) (json.RawMessage, error)) error {
	c.scratch.mu.Lock()
	defer c.scratch.mu.Unlock()
	if c.over {
		return ErrCallOver
	}
	current := c.scratch.vars[name]
	next, err := fn(current)
	if err != nil {
		return err
	}
	if by := c.scratch.by[name]; current != nil && bytes.Equal(current, next) && (by == nil || by == c) {
		return nil
	}
	c.scratch.seq++
	c.scratch.vars[name], c.scratch.by[name] = next, c
	// Only the last value of a name counts.
	c.writes = slices.DeleteFunc(c.writes, func(w journal.VarWrite) bool { return w.Name == name })
	c.writes = append(c.writes, journal.VarWrite{Seq: c.scratch.seq, Name: name, Value: []byte(next)})
	return nil
}

// Var returns the current value of one name of the persistent state, with the
// writes of this batch so far, or nil.
func (c *Call) Var(name string) json.RawMessage {
	c.scratch.mu.Lock()
	defer c.scratch.mu.Unlock()
	return c.scratch.vars[name]
}

// end closes the call and returns what it wrote.
func (c *Call) end() []journal.VarWrite {
	c.scratch.mu.Lock()
	defer c.scratch.mu.Unlock()
	c.over = true
	return c.writes
}
