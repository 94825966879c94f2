package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/flue-go/flue/examples/support/escalation"
)

// A Shop has orders and takes returns. It is in memory and stands for a database.
type Shop struct {
	mu      sync.Mutex
	orders  map[string]string // what can be returned
	returns map[string]string // the key of the call that returned an order
}

func newShop() *Shop {
	return &Shop{orders: map[string]string{"R-1": "a hand drill", "R-2": "a box of nails"}, returns: make(map[string]string)}
}

// Find returns what was ordered.
func (s *Shop) Find(order string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, ok := s.orders[order]
	switch {
	case !ok:
		return "", fmt.Errorf("there is no order %s that could be returned; ask for the right number", order)
	case s.returns[order] != "":
		return "", fmt.Errorf("the return of order %s is registered already", order)
	}
	return fmt.Sprintf("Order %s is %s and can be returned.", order, item), nil
}

// Return registers the return of an order, once.
func (s *Shop) Return(order, reason, key string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by := s.returns[order]; s.orders[order] == "" || by != "" && by != key {
		return "", fmt.Errorf("order %s cannot be returned, or not again", order)
	}
	s.returns[order] = key
	return fmt.Sprintf("The return of %s (%s) is registered. Write %s-RET on the parcel.", order, reason, order), nil
}

// A caseDesk is a desk in memory, which stands for a help desk.
type caseDesk struct {
	mu    sync.Mutex
	cases []escalation.Case
	notes map[string]string // by their keys
}

func newDesk() *caseDesk { return &caseDesk{notes: make(map[string]string)} }

// Open implements [escalation.Desk].
func (d *caseDesk) Open(_ context.Context, c escalation.Case) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, old := range d.cases {
		if old.Conversation == c.Conversation {
			return ticket(i), nil
		}
	}
	d.cases = append(d.cases, c)
	return ticket(len(d.cases) - 1), nil
}

func ticket(i int) string { return fmt.Sprintf("T-%d", i+1) }

// Note implements [escalation.Desk].
func (d *caseDesk) Note(_ context.Context, _, key, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes[key] = text
	return nil
}
