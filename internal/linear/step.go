package linear

import "github.com/anishathalye/porcupine"

// A StepRun is a step that is run, perhaps by an owner that has lost its
// instance.
type StepRun struct {
	Key string // of the call and the step
}

// A StepResult is what came of it.
type StepResult struct {
	Made  string // what its function has returned, if it was called
	Value string // what the step has returned
	Known bool   // it has returned
}

// Step says that a step has one value: the first that is recorded. Operations
// have a StepRun and a StepResult.
func Step() Model {
	return Model{"steps", porcupine.Model{
		Partition: partition(func(op porcupine.Operation) string { return op.Input.(StepRun).Key }),
		Init:      func() any { return "" },
		Step: func(state, _, output any) (bool, any) {
			st, out := state.(string), output.(StepResult)
			switch {
			case !out.Known && st == "":
				return true, out.Made
			case !out.Known:
				return true, st // it was refused, or nobody reads it any more
			case out.Made != "":
				return st == "" && out.Value == out.Made, out.Made
			}
			return st == out.Value, st
		},
	}}
}
