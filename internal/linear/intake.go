package linear

import (
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// What is asked of an instance.
const (
	Admit = "admit" // a message
	Abort = "abort" // all that is unsettled
	Read  = "read"  // the outcome of a message
)

// Why something was refused.
const (
	Conflict  = "conflict"  // another message has the id
	Condition = "condition" // the instance is not as it must be
	Absent    = "absent"    // there is no such message
)

// A Request is what a client asks of an instance.
type Request struct {
	Instance  string
	Kind      string // Admit, Abort or Read
	ID        string // of the message
	Identity  string // of what an admission says
	Condition store.Condition
	Held      bool // messages to the instance settle as aborted and in no other way; those to others never do
	Final     bool // of a read: nothing is under way any more
}

// An Answer is what it is told.
type Answer struct {
	Unknown            bool // it was told nothing, and the admission or abort has happened
	OK                 bool
	Refused            string // Conflict, Condition or Absent
	Place              int64  // of the message, among all of the instance
	UID                string // of the instance
	Untold             bool   // a condition does not hold, and the uid of the instance was not told
	Created, Duplicate bool
	Outcome            string // of a message that is read; empty if it is not settled
}

// An accepted message, as the model of an instance knows it.
type accepted struct {
	id, identity  string
	place         int64
	created       bool
	covered, over bool // by an abort; settled, as somebody has seen
}

// An intake is an instance as its clients can know it. It is never changed.
type intake struct {
	uid  string
	subs []accepted
}

// Intake says what an instance may answer: messages get places in one order, a
// message that is sent again gets the same one, conditions hold at the moment of
// the admission, and an abort covers what is before it in that order. Operations
// have a Request and an Answer.
func Intake() Model {
	return Model{"admission, conditional create and abort", porcupine.Model{
		Partition: partition(func(op porcupine.Operation) string { return op.Input.(Request).Instance }),
		Init:      func() any { return intake{} },
		Step: func(state, input, output any) (bool, any) {
			st, in, out := state.(intake), input.(Request), output.(Answer)
			switch in.Kind {
			case Admit:
				return st.admit(in, out)
			case Abort:
				return st.abort(out)
			}
			return st.read(in, out)
		},
		Equal: func(a, b any) bool {
			x, y := a.(intake), b.(intake)
			return x.uid == y.uid && slices.Equal(x.subs, y.subs)
		},
	}}
}

func (st intake) find(id string) int {
	return slices.IndexFunc(st.subs, func(a accepted) bool { return a.id == id })
}

func (st intake) admit(in Request, out Answer) (bool, intake) {
	i := st.find(in.ID)
	holds := !(in.Condition.Create && st.uid != "" || in.Condition.UID != "" && in.Condition.UID != st.uid)
	switch {
	case out.Refused == Conflict:
		return i >= 0 && st.subs[i].identity != in.Identity, st
	case out.Refused == Condition:
		return i < 0 && !holds && (out.Untold || out.UID == st.uid), st
	case i >= 0:
		old := st.subs[i]
		return old.identity == in.Identity && old.place == out.Place && out.UID == st.uid && (out.Unknown || out.Duplicate && out.Created == old.created), st
	case !holds, out.Duplicate, st.uid != "" && st.uid != out.UID, len(st.subs) > 0 && st.subs[len(st.subs)-1].place >= out.Place:
		return false, st
	case !out.Unknown && out.Created != (st.uid == ""):
		return false, st
	}
	n := accepted{id: in.ID, identity: in.Identity, place: out.Place, created: st.uid == ""}
	return true, intake{out.UID, append(slices.Clip(st.subs), n)}
}

func (st intake) abort(out Answer) (bool, intake) {
	open := slices.ContainsFunc(st.subs, func(a accepted) bool { return !a.over })
	left := slices.ContainsFunc(st.subs, func(a accepted) bool { return !a.covered })
	subs := slices.Clone(st.subs)
	for i := range subs {
		subs[i].covered = true
		subs[i].over = subs[i].over || !out.OK && !out.Unknown
	}
	switch {
	case out.Unknown:
		return true, intake{st.uid, subs}
	case out.OK:
		return open, intake{st.uid, subs}
	}
	return !left, intake{st.uid, subs}
}

func (st intake) read(in Request, out Answer) (bool, intake) {
	i := st.find(in.ID)
	if i < 0 || out.Refused == Absent {
		return i < 0 && out.Refused == Absent, st
	}
	a := st.subs[i]
	switch out.Outcome {
	case "":
		return !a.over && (!in.Final || in.Held && !a.covered), st
	case journal.Aborted:
		if !in.Held || !a.covered {
			return false, st
		}
	case journal.Completed:
		if in.Held {
			return false, st
		}
	default:
		return false, st
	}
	subs := slices.Clone(st.subs)
	subs[i].over = true
	return true, intake{st.uid, subs}
}

// Settlement says what may be read of one message: that it is not there, then
// that it is open, then its outcome, which does not change. Operations have a
// Request and an Answer.
func Settlement() Model {
	return Model{"settlement", porcupine.Model{
		Partition: partition(func(op porcupine.Operation) string {
			in, out := op.Input.(Request), op.Output.(Answer)
			if in.Kind == Abort || in.Kind == Admit && out.Refused == Condition {
				return ""
			}
			return in.Instance + " " + in.ID
		}),
		Init: func() any { return Absent },
		Step: func(state, input, output any) (bool, any) {
			st, in, out := state.(string), input.(Request), output.(Answer)
			switch {
			case in.Kind == Admit && out.Refused == Conflict:
				return st != Absent, st
			case in.Kind == Admit:
				if st == Absent {
					st = ""
				}
				return true, st
			case out.Refused == Absent:
				return st == Absent, st
			case out.Outcome == "":
				return st == "", st
			}
			return st == "" || st == out.Outcome, out.Outcome
		},
	}}
}
