// Package storetest checks that a store keeps the contract of package store.
//
// An implementation's test calls [Run] with a function that opens an empty
// store, and its benchmark calls [Bench]. Every check states the rule it
// guards; a failing check prints it.
package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/store"
)

// Options say what else a store can be checked for. The zero value, and nil,
// run the checks that every store must pass.
type Options struct {
	// Reopen ends s, by Close or by less polite means, and opens the same data
	// again. Nil skips the checks of persistence.
	Reopen func(t *testing.T, s store.Store) store.Store

	// Exclusive says that opening the store proves every earlier owner dead,
	// so that what they owned can be claimed at once after Reopen.
	Exclusive bool

	// Another opens the same data a second time, as another process would while
	// this one lives. Nil skips the checks of several processes.
	Another func(t *testing.T, s store.Store) store.Store

	// Takeovers is how many takeovers processes are made to have. Zero means a
	// thousand, or fewer with -short.
	Takeovers int

	// Foreign tries to open, as a store, data that is not one or that a newer
	// version wrote, and returns what came of it for each. Nil skips the check
	// of the format stamp.
	Foreign func(t *testing.T) map[string]error

	// RealTime says that leases do not run on this process's clock, so that
	// their checks have to wait. Otherwise they run under simulated time, for
	// which open is called inside the bubble.
	RealTime bool
}

// A check is one rule and the test of it.
type check struct {
	name string
	rule string
	run  func(k *kit)
	// timed checks wait for leases to lapse.
	timed bool
	// persist checks need Options.Reopen.
	persist bool
}

// Run checks the stores that open returns against the contract, each check on
// a fresh one. Stores are closed at the end of their check.
func Run(t *testing.T, open func(t *testing.T) store.Store, opts *Options) {
	if opts == nil {
		opts = new(Options)
	}
	for _, group := range [][]check{admitChecks, attachmentChecks, appendChecks, readChecks, listChecks, ownerChecks, closeChecks, persistChecks, checkpointChecks, pruneChecks, seizeChecks, copyChecks, sharedChecks} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) { runCheck(t, c, open, opts) })
		}
	}
	t.Run("FormatStamp", func(t *testing.T) { checkForeign(t, opts) })
}

func runCheck(t *testing.T, c check, open func(t *testing.T) store.Store, opts *Options) {
	if c.persist && opts.Reopen == nil {
		t.Skip("the store is not persistent: Options.Reopen is nil")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The rule: %s", c.rule)
		}
	})
	body := func(t *testing.T) {
		k := &kit{T: t, Store: open(t), opts: opts, timed: c.timed}
		t.Cleanup(func() {
			if err := k.Store.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		c.run(k)
	}
	if c.timed && !opts.RealTime {
		synctest.Test(t, body)
		return
	}
	body(t)
}

// ttl is how long node leases last: in checks that let them lapse in real time
// short, so that they take little of it.
func (k *kit) ttl() time.Duration {
	if k.timed && k.opts.RealTime {
		return time.Second
	}
	return time.Minute
}

// elapse lets time pass.
func (k *kit) elapse(d time.Duration) { time.Sleep(d) }
