package fold

import (
	"slices"

	"github.com/flue-go/flue/journal"
)

// called lets calls of the latest turn run. Each is named once.
func (s *State) called(r *journal.Called) error {
	if err := s.want(r, Tools); err != nil {
		return err
	}
	if err := s.wantTurn(r, r.Turn); err != nil {
		return err
	}
	resp := &s.Response
	switch {
	case !resp.Named:
		return s.refuse(r, "the turn does not say that its calls are named before they run")
	case resp.Truncated, resp.Refused:
		return s.refuse(r, "the turn was cut, so its calls must not run")
	case len(r.Calls) == 0:
		return s.refuse(r, "it names no call")
	}
	for i, call := range r.Calls {
		if err := s.wantOpenCall(r, call); err != nil {
			return err
		}
		if resp.Called[call] || slices.Contains(r.Calls[:i], call) {
			return s.refuse(r, "call %q was named before", call)
		}
	}
	if resp.Called == nil {
		resp.Called = make(map[string]bool, len(resp.Calls))
	}
	for _, call := range r.Calls {
		resp.Called[call] = true
	}
	for i := range resp.Calls {
		if slices.Contains(r.Once, resp.Calls[i].Call) {
			resp.Calls[i].Again = false
		}
	}
	return nil
}

// wantCalled refuses r, which only a call can have made that has run, if the
// call cannot have.
func (s *State) wantCalled(r journal.Record, call string) error {
	if s.Response.MayHaveRun(call) {
		return nil
	}
	return s.refuse(r, "call %q has not been named, so it has not run", call)
}
