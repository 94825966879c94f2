package linear

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// What is done with the ownership of an instance.
const (
	Take    = "take"    // come to own it
	Append  = "append"  // write as its owner
	Release = "release" // give it back
)

// A Hold is what a process does with the ownership of an instance.
type Hold struct {
	Instance string
	Kind     string // Take, Append or Release
	Epoch    int64  // under which it appends or releases
}

// A Held is what came of it. A take that was refused is no part of a history.
type Held struct {
	Unknown bool  // nobody was told
	Fenced  bool  // of an append: it was refused
	Epoch   int64 // that a take has given
}

// A tenure is who owns an instance.
type tenure struct {
	epoch int64
	free  bool // the owner has given it back
}

// Ownership says that the ownership of an instance is a lock, by the test that
// counts: an append is accepted only under the newest epoch that anybody was
// given, and refused only under an older one or one that was given back.
// Operations have a Hold and a Held; see [Takes] for takes that are unknown.
func Ownership() Model {
	return Model{"ownership", porcupine.Model{
		Partition: partition(func(op porcupine.Operation) string { return op.Input.(Hold).Instance }),
		Init:      func() any { return tenure{} },
		Step: func(state, input, output any) (bool, any) {
			st, in, out := state.(tenure), input.(Hold), output.(Held)
			switch in.Kind {
			case Take:
				return out.Epoch > st.epoch, tenure{epoch: out.Epoch}
			case Release:
				if in.Epoch == st.epoch {
					st.free = true
				}
				return true, st
			}
			return st.append(in, out), st
		},
	}}
}

func (st tenure) append(in Hold, out Held) bool {
	switch {
	case out.Unknown:
		return true
	case out.Fenced:
		return in.Epoch < st.epoch || in.Epoch == st.epoch && st.free
	}
	return in.Epoch == st.epoch && !st.free
}

// Takes puts takes with an epoch in the place of those that are unknown. Each take
// raises the epoch by one, so the epochs that nobody is known to have been given
// tell of those that have happened; one more may have happened after all that is
// known. Appends that are unknown are left out: they change nothing.
func Takes(history []porcupine.Operation) []porcupine.Operation {
	type instance struct {
		given   map[int64]bool // epochs of takes that are known
		newest  int64          // that anybody has used
		unknown int64          // when the first unknown take was called; Infinity if there is none
	}
	instances := make(map[string]*instance)
	var known []porcupine.Operation
	for _, op := range history {
		in, out := op.Input.(Hold), op.Output.(Held)
		i := instances[in.Instance]
		if i == nil {
			i = &instance{given: make(map[int64]bool), unknown: Infinity}
			instances[in.Instance] = i
		}
		i.newest = max(i.newest, in.Epoch, out.Epoch)
		switch {
		case in.Kind == Take && out.Unknown:
			i.unknown = min(i.unknown, op.Call)
		case in.Kind == Append && out.Unknown:
		default:
			i.given[out.Epoch] = true
			known = append(known, op)
		}
	}
	for name, i := range instances {
		if i.unknown == Infinity {
			continue
		}
		for e := int64(1); e <= i.newest+1; e++ {
			if !i.given[e] {
				known = append(known, porcupine.Operation{
					Input: Hold{Instance: name, Kind: Take}, Output: Held{Epoch: e}, Call: i.unknown, Return: Infinity,
				})
			}
		}
	}
	slices.SortStableFunc(known, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return known
}
