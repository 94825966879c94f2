package fold

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/flue-go/flue/journal"
)

// A RuleError reports a record that breaks a rule of the journal: a fault in
// the owner that wrote it, or a damaged journal. The state is unchanged.
type RuleError struct {
	Kind   journal.Kind
	Phase  Phase
	Reason string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("a %s record in phase %s: %s", e.Kind, e.Phase, e.Reason)
}

func (s *State) refuse(r journal.Record, format string, args ...any) error {
	return &RuleError{Kind: r.Kind(), Phase: s.Phase, Reason: fmt.Sprintf(format, args...)}
}

// want refuses r unless the state is in one of the phases.
func (s *State) want(r journal.Record, phases ...Phase) error {
	if slices.Contains(phases, s.Phase) {
		return nil
	}
	return s.refuse(r, "not expected here")
}

// Apply folds one record into the state, in constant time whatever the length
// of the journal. It either applies the record or returns a [*RuleError] and
// changes nothing.
func (s *State) Apply(r journal.Record) error {
	if _, born := r.(*journal.Born); !born && s.Phase == Unborn {
		return s.refuse(r, "the journal must begin with a birth")
	}
	switch r := r.(type) {
	case *journal.Born:
		return s.born(r)
	case *journal.Admitted:
		return s.admitted(r)
	case *journal.Abort:
		s.abort()
		return nil
	case *journal.Attempt:
		return s.attempt(r)
	case *journal.Release:
		return s.release(r)
	case *journal.Entry:
		return s.entry(r)
	case *journal.Seam:
		return s.seam(r)
	case *journal.State:
		return s.setVar(r)
	case *journal.TurnStarted:
		return s.turnStarted(r)
	case *journal.TurnDelta:
		return s.turnDelta(r)
	case *journal.TurnDone:
		return s.turnDone(r)
	case *journal.Outcome:
		return s.outcome(r)
	case *journal.ToolBatch:
		return s.toolBatch(r)
	case *journal.Settled:
		return s.settled(r)
	case *journal.Unknown:
		if r.Optional {
			return nil
		}
		return s.refuse(r, "written by a newer version, and not optional; upgrade this program")
	}
	return s.refuse(r, "unknown type %T", r)
}

func (s *State) born(r *journal.Born) error {
	if err := s.want(r, Unborn); err != nil {
		return err
	}
	s.Born, s.Phase, s.Head = r, Idle, -1
	s.Vars = make(map[string]json.RawMessage)
	return nil
}

func (s *State) admitted(r *journal.Admitted) error {
	if s.find(r.Submission) != nil {
		return s.refuse(r, "submission %s was admitted before", r.Submission)
	}
	s.Queue = append(s.Queue, &Submission{Admitted: *r})
	return nil
}

// find returns the unsettled submission with the id, or nil.
func (s *State) find(id string) *Submission {
	if s.Active != nil && s.Active.Submission == id {
		return s.Active
	}
	for _, list := range [][]*Submission{s.Joined, s.Queue} {
		for _, sub := range list {
			if sub.Submission == id {
				return sub
			}
		}
	}
	return nil
}

func (s *State) abort() {
	if s.Active != nil {
		s.Active.Aborted = true
	}
	for _, sub := range s.Joined {
		sub.Aborted = true
	}
	for _, sub := range s.Queue {
		sub.Aborted = true
	}
}

func (s *State) attempt(r *journal.Attempt) error {
	if s.Active == nil {
		if len(s.Queue) == 0 || s.Queue[0].Submission != r.Submission {
			return s.refuse(r, "submission %s is not at the head of the queue", r.Submission)
		}
		s.Active = s.Queue[0]
		s.Queue = slices.Delete(s.Queue, 0, 1)
		s.Active.Deadline, s.Active.MaxAttempts = r.Deadline, r.MaxAttempts
		s.Response = Response{}
		s.Phase = Input
	} else if s.Active.Submission != r.Submission {
		return s.refuse(r, "submission %s is active, not %s", s.Active.Submission, r.Submission)
	}
	s.Active.Attempts++
	return nil
}

func (s *State) release(r *journal.Release) error {
	if s.Active == nil || s.Active.Submission != r.Submission {
		return s.refuse(r, "submission %s is not active", r.Submission)
	}
	s.Active.Attempts--
	return nil
}

func (s *State) entry(r *journal.Entry) error {
	switch r.Purpose {
	case journal.Input:
		if err := s.begin(r); err != nil {
			return err
		}
		s.Delivery = &r.Message
	case journal.Notice, journal.Advisory:
		// The runtime's own words need only a conversation at rest.
		if !s.Resting() {
			return s.refuse(r, "the conversation is not at rest")
		}
		if cut := s.Response.Cut; cut != nil && r.Message.Type == journal.SignalInterrupted {
			s.Context = append(s.Context, Item{Turn: cut})
		}
	default:
		return s.refuse(r, "unknown purpose %q", r.Purpose)
	}
	s.Response.Cut = nil
	s.Context = append(s.Context, Item{Entry: r})
	s.Size += itemSize + len(r.Message.Body)
	return nil
}

// itemSize is what an item of the context holds beside its text.
const itemSize = 256

// begin puts a submission's own message in front of the model: that of the
// active one, or of the queue's head, which joins.
func (s *State) begin(r *journal.Entry) error {
	if s.Active == nil {
		return s.refuse(r, "no submission is active")
	}
	if r.Submission == s.Active.Submission {
		if err := s.want(r, Input); err != nil {
			return err
		}
	} else {
		if err := s.want(r, Model, Finish); err != nil {
			return err
		}
		if len(s.Queue) == 0 || s.Queue[0].Submission != r.Submission {
			return s.refuse(r, "submission %s is not at the head of the queue", r.Submission)
		}
		s.Joined = append(s.Joined, s.Queue[0])
		s.Queue = slices.Delete(s.Queue, 0, 1)
	}
	s.Phase = Model
	return nil
}

func (s *State) seam(r *journal.Seam) error {
	switch r.Name {
	case journal.SeamStart:
		return s.want(r, Model)
	case journal.SeamClosed:
		if err := s.want(r, Finish); err != nil {
			return err
		}
		s.Phase = Closed
		return nil
	}
	return s.refuse(r, "unknown seam %q", r.Name)
}

func (s *State) setVar(r *journal.State) error {
	s.Vars[r.Name] = json.RawMessage(r.Value)
	return nil
}

func (s *State) turnStarted(r *journal.TurnStarted) error {
	if err := s.want(r, Model); err != nil {
		return err
	}
	if s.Response.ID != "" && s.Response.ID != r.Response {
		return s.refuse(r, "the response is %s, not %s", s.Response.ID, r.Response)
	}
	s.Response.ID, s.Response.Turn = r.Response, r.Turn
	s.Response.Partial, s.Response.Cut = nil, nil
	s.Phase = Streaming
	return nil
}

func (s *State) turnDelta(r *journal.TurnDelta) error {
	if err := s.want(r, Streaming); err != nil {
		return err
	}
	p := &s.Response.Partial
	switch n := len(*p); {
	case r.Block == n-1 && (*p)[n-1].Kind == r.BlockKind:
		(*p)[n-1].Text += r.Text
	case r.Block >= n:
		for len(*p) < r.Block { // blocks that stream no text, such as calls
			*p = append(*p, journal.Block{})
		}
		*p = append(*p, journal.Block{Kind: r.BlockKind, Text: r.Text})
	default:
		return s.refuse(r, "block %d after block %d", r.Block, n-1)
	}
	return nil
}

func (s *State) turnDone(r *journal.TurnDone) error {
	if err := s.want(r, Streaming); err != nil {
		return err
	}
	if r.Turn != s.Response.Turn {
		return s.refuse(r, "turn %s is open, not %s", s.Response.Turn, r.Turn)
	}
	resp := &s.Response
	resp.Partial = nil
	resp.LastError = r.Error
	resp.Usage = resp.Usage.Add(r.Usage)
	s.Usage = s.Usage.Add(r.Usage)
	switch r.Stop {
	case journal.StopError:
		resp.Failures++
		s.Phase = Model
		return nil
	case journal.StopAborted:
		resp.Cut = r
		s.Phase = Model
		return nil
	}
	resp.Failures = 0
	resp.Turns++
	s.Context = append(s.Context, Item{Turn: r})
	for _, b := range r.Blocks {
		s.Size += itemSize + len(b.Text) + len(b.Arguments) + len(b.Opaque)
	}
	resp.Calls = toolCalls(r.Blocks)
	if len(resp.Calls) == 0 {
		s.Phase = Finish
		return nil
	}
	resp.Outcomes = make(map[string]*journal.Outcome, len(resp.Calls))
	if resp.CallIDs == nil {
		resp.CallIDs = make(map[string]bool)
	}
	for _, c := range resp.Calls {
		resp.CallIDs[c.Call] = true
	}
	resp.Truncated = r.Stop == journal.StopLength
	s.Phase = Tools
	return nil
}

// toolCalls returns the calls among the blocks. Whether calls run is decided
// by what the model said, not by the reason it gave for stopping.
func toolCalls(blocks []journal.Block) []journal.Block {
	var calls []journal.Block
	for _, b := range blocks {
		if b.Kind == journal.ToolCall {
			calls = append(calls, b)
		}
	}
	return calls
}

func (s *State) outcome(r *journal.Outcome) error {
	if err := s.want(r, Tools); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Response.Calls, func(c journal.Block) bool { return c.Call == r.Call }) {
		return s.refuse(r, "the turn made no call %q", r.Call)
	}
	if s.Response.Outcomes[r.Call] != nil {
		return s.refuse(r, "call %q has an outcome already", r.Call)
	}
	s.Response.Outcomes[r.Call] = r
	return nil
}

func (s *State) toolBatch(r *journal.ToolBatch) error {
	if err := s.want(r, Tools); err != nil {
		return err
	}
	resp := &s.Response
	outcomes := make([]*journal.Outcome, len(resp.Calls))
	end := true
	for i, c := range resp.Calls {
		o := resp.Outcomes[c.Call]
		if o == nil {
			return s.refuse(r, "call %q has no outcome", c.Call)
		}
		outcomes[i] = o
		end = end && o.EndTurn && !o.Failed
	}
	s.Context = append(s.Context, Item{Outcomes: outcomes})
	for _, o := range outcomes {
		s.Size += itemSize + len(o.Content) + len(o.Output)
	}
	s.commitWrites(outcomes)
	resp.Calls, resp.Outcomes, resp.Truncated = nil, nil, false
	if s.Phase = Model; end {
		s.Phase = Finish
	}
	return nil
}

// commitWrites makes the state that the batch's calls wrote visible, in the
// order in which they wrote it.
func (s *State) commitWrites(outcomes []*journal.Outcome) {
	var writes []journal.VarWrite
	for _, o := range outcomes {
		writes = append(writes, o.Writes...)
	}
	slices.SortFunc(writes, func(a, b journal.VarWrite) int { return a.Seq - b.Seq })
	for _, w := range writes {
		s.Vars[w.Name] = json.RawMessage(w.Value)
	}
}

func (s *State) settled(r *journal.Settled) error {
	if r.Outcome == journal.Completed && s.Phase != Closed {
		return s.refuse(r, "completed before its response was closed")
	}
	if !s.Resting() {
		return s.refuse(r, "the conversation is not at rest")
	}
	switch {
	case s.Active != nil && s.Active.Submission == r.Submission:
		if len(s.Joined) > 0 {
			return s.refuse(r, "submissions that joined it must settle first")
		}
		s.Active, s.Response, s.Phase = nil, Response{}, Idle
		return nil
	case r.Outcome == journal.Completed: // only what joined can complete with it
		i := slices.IndexFunc(s.Joined, func(x *Submission) bool { return x.Submission == r.Submission })
		if i < 0 {
			return s.refuse(r, "submission %s did not join the response", r.Submission)
		}
		s.Joined = slices.Delete(s.Joined, i, i+1)
		return nil
	}
	for _, list := range []*[]*Submission{&s.Joined, &s.Queue} {
		if i := slices.IndexFunc(*list, func(x *Submission) bool { return x.Submission == r.Submission }); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return nil
		}
	}
	return s.refuse(r, "submission %s is not open", r.Submission)
}
