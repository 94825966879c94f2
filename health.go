package flue

import (
	"context"
	"strings"
)

// Health says what keeps a runtime from working as it should. The zero value
// stands for a healthy one.
type Health struct {
	// StorePoisoned is why the store takes no more writes: an earlier one went
	// wrong in a way that leaves unknown whether it is durable. Nothing is
	// accepted and nothing goes on until the program is started again, once the
	// cause is gone. It is nil as long as no write was refused for that.
	StorePoisoned error

	// LeaseLapsed says that the process could not renew its lease in the store,
	// so that its work has stopped until it can; see [ErrLeaseLapsed].
	LeaseLapsed bool

	// Draining says that [Runtime.Drain] or [Runtime.Close] was called, and Closing
	// that the latter was.
	Draining, Closing bool

	// Overloaded is why new messages are refused with CodeOverloaded, memory or
	// backlog, and empty if they are not; see [Limits]. Reads and aborts are served.
	Overloaded string

	// Damaged is how many instances were set aside because their journals cannot
	// be continued. The others are not concerned: it needs a person, and is no
	// reason to stop or restart the program.
	Damaged int

	// Working is how many instances are being worked on, and Waiting how many have
	// work and wait until there is a place for them; see [Limits].
	Working, Waiting int
}

// Ready reports whether requests should be sent to the runtime. An overloaded one is
// ready: it refuses new messages by itself, with the time after which to try again,
// and serves all else. If a load balancer took away all replicas that are overloaded,
// which they often are together, nobody could read or abort, and the last one would get
// what all of them cannot bear.
func (h Health) Ready() bool {
	return h.StorePoisoned == nil && !h.LeaseLapsed && !h.Draining && !h.Closing
}

// Accepting reports whether the runtime can take messages and work on them: it is
// ready and not overloaded. It is for who can send new messages elsewhere, and all
// other requests here.
func (h Health) Accepting() bool { return h.Ready() && h.Overloaded == "" }

// Alive reports whether the runtime can become ready by itself. If not, the
// program must be started again.
func (h Health) Alive() bool { return h.StorePoisoned == nil }

// Reasons says in stable words why the runtime is not ready, or does not accept new
// messages: store_poisoned, lease_lapsed, overloaded, draining, closing. There is none if
// it is and does.
func (h Health) Reasons() []string {
	var out []string
	if h.StorePoisoned != nil {
		out = append(out, "store_poisoned")
	}
	if h.LeaseLapsed {
		out = append(out, "lease_lapsed")
	}
	if h.Overloaded != "" {
		out = append(out, "overloaded")
	}
	switch {
	case h.Closing:
		out = append(out, "closing")
	case h.Draining:
		out = append(out, "draining")
	}
	return out
}

// String is ok, or the reasons.
func (h Health) String() string {
	if why := h.Reasons(); len(why) > 0 {
		return strings.Join(why, ", ")
	}
	return "ok"
}

// Health says how the runtime is, by what it has noticed: it asks the store
// nothing and does not wait, so it may be asked often.
func (rt *Runtime) Health(context.Context) Health {
	h := rt.engine.Health()
	return Health{
		StorePoisoned: h.Poisoned, LeaseLapsed: h.Lapsed, Draining: h.Leaving, Closing: h.Closing, Overloaded: h.Overloaded,
		Damaged: h.Damaged, Working: h.Working, Waiting: h.Waiting,
	}
}
