package fold

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/flue-go/flue/journal"
)

// A RuleError reports a record that breaks a rule of the journal: a fault in
// the owner that wrote it, or a damaged journal. The state is unchanged.
type RuleError struct {
	Kind   journal.Kind
	Phase  Phase
	Reason string
	Newer  bool // a newer version has written the record, and it must not be passed over
	Undoes bool // it undoes what has been applied: the journal must be folded again, from its start
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
// of the journal and of the queue. What is about all that waits takes as long as
// there is of it: an abort, and the settlement of what joined. It either applies
// the record or returns a [*RuleError] and changes nothing.
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
	case *journal.Step:
		return s.step(r)
	case *journal.Data:
		return s.data(r)
	case *journal.Metadata:
		return s.metadata(r)
	case *journal.Resources:
		return s.resources(r)
	case *journal.TurnStarted:
		return s.turnStarted(r)
	case *journal.TurnDelta:
		return s.turnDelta(r)
	case *journal.TurnDone:
		return s.turnDone(r)
	case *journal.Fallback:
		return s.fallback(r)
	case *journal.Called:
		return s.called(r)
	case *journal.Outcome:
		return s.outcome(r)
	case *journal.ToolBatch:
		return s.toolBatch(r)
	case *journal.Settled:
		return s.settled(r)
	case *journal.Repair:
		return s.repair(r)
	case *journal.Compacted:
		return s.compacted(r)
	case *journal.Uncompacted:
		return s.uncompacted(r)
	case *journal.Summarizing:
		return s.summarizing(r)
	case *journal.Unsummarized:
		return s.unsummarized(r)
	case *journal.Unknown:
		if r.Optional {
			return nil
		}
		return &RuleError{Kind: r.Kind(), Phase: s.Phase, Newer: true, Reason: "written by a newer version, and not optional; upgrade this program"}
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
	sub := &Submission{Admitted: *r}
	s.Queue = append(s.Queue, sub)
	s.open[sub.Submission] = sub
	return nil
}

// find returns the unsettled submission with the id, or nil.
func (s *State) find(id string) *Submission {
	if s.open == nil {
		s.open = make(byID)
		for _, list := range [][]*Submission{{s.Active}, s.Joined, s.Queue} {
			for _, sub := range list {
				if sub != nil {
					s.open[sub.Submission] = sub
				}
			}
		}
	}
	return s.open[id]
}

// shift takes the head out of the queue, which is not moved up for that: it may
// be long.
func (s *State) shift() *Submission {
	head := s.Queue[0]
	s.Queue[0] = nil // so that it is not held in memory
	s.Queue = s.Queue[1:]
	return head
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
		s.Active = s.shift()
		s.Active.Deadline, s.Active.MaxAttempts = r.Deadline, r.MaxAttempts
		s.Response = Response{}
		s.Phase = Input
	} else if s.Active.Submission != r.Submission {
		return s.refuse(r, "submission %s is active, not %s", s.Active.Submission, r.Submission)
	}
	s.Active.Attempts++
	s.Active.Fruitless++
	s.Active.Began = r.Began
	return nil
}

// achieved notes that the attempt under way has come further than those before
// it.
func (s *State) achieved() { s.Active.Fruitless = 0 }

func (s *State) release(r *journal.Release) error {
	if s.Active == nil || s.Active.Submission != r.Submission {
		return s.refuse(r, "submission %s is not active", r.Submission)
	}
	if s.Active.Attempts == 0 {
		return s.refuse(r, "no attempt is under way")
	}
	s.Active.Attempts--
	s.Active.Fruitless = max(s.Active.Fruitless-1, 0)
	return nil
}

func (s *State) entry(r *journal.Entry) error {
	switch r.Purpose {
	case journal.Input:
		if err := s.begin(r); err != nil {
			return err
		}
		s.Delivery = &r.Message
	case journal.Appended:
		if err := s.want(r, Model, Finish); err != nil {
			return err
		}
		s.Delivery = &r.Message
		s.Response.continued = s.Phase == Finish
	case journal.Notice, journal.Advisory, journal.Narration:
		// The runtime's own words need only a conversation at rest.
		if !s.Resting() {
			return s.refuse(r, "the conversation is not at rest")
		}
		if cut := s.Response.Cut; cut != nil && r.Message.Type == journal.SignalInterrupted {
			s.show(Item{Turn: cut})
		}
	default:
		return s.refuse(r, "unknown purpose %q", r.Purpose)
	}
	s.Response.Cut = nil
	s.show(Item{Entry: r})
	return nil
}

// itemSize is what an item of the context holds beside its text.
const itemSize = 400

// begin puts a submission's own message in front of the model: that of the
// active one, or of the queue's head, which joins.
func (s *State) begin(r *journal.Entry) error {
	if s.Active == nil {
		return s.refuse(r, "no submission is active")
	}
	if sub := s.find(r.Submission); sub != nil && sub.Command() {
		return s.refuse(r, "submission %s is a command", r.Submission)
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
		s.Joined = append(s.Joined, s.shift())
	}
	s.Phase = Model
	return nil
}

func (s *State) seam(r *journal.Seam) error {
	switch r.Name {
	case journal.SeamStart:
		return s.started(r)
	case journal.SeamCycle, journal.SeamFinish, journal.SeamClosed:
	default:
		return s.refuse(r, "unknown seam %q", r.Name)
	}
	if err := s.want(r, Finish); err != nil {
		return err
	}
	if r.Submission != s.Active.Submission {
		return s.refuse(r, "submission %s is active, not %s", s.Active.Submission, r.Submission)
	}
	if continued := s.Response.continued && s.Response.Concluding == nil; continued != (r.Name == journal.SeamCycle) {
		return s.refuse(r, "whether the finish hooks have appended a signal is %v", continued)
	}
	s.worked(r.WorkMS)
	switch r.Name {
	case journal.SeamCycle:
		s.Response.Cycles++
		s.Response.continued = false
		s.Phase = Model
	case journal.SeamClosed:
		s.Phase = Closed
	}
	return nil
}

// started ends the start of a submission's work, whose message has just been
// added.
func (s *State) started(r *journal.Seam) error {
	if err := s.want(r, Model); err != nil {
		return err
	}
	if r.Response != "" {
		if s.Response.ID != "" && s.Response.ID != r.Response {
			return s.refuse(r, "the response is %s, not %s", s.Response.ID, r.Response)
		}
		s.Response.ID = r.Response
	}
	if r.Settings != nil {
		s.Response.Settings = r.Settings
	}
	s.endSteps(journal.StartScope(r.Submission))
	return nil
}

// step records a step of running code. A step has at most one value, and none
// is begun twice.
func (s *State) step(r *journal.Step) error {
	if s.Active == nil {
		return s.refuse(r, "no submission is active")
	}
	steps := s.Steps[r.Scope]
	if old := steps[r.Name]; old != nil && (len(old.Value) > 0 || len(r.Value) == 0) {
		return s.refuse(r, "step %q of %s was recorded before", r.Name, r.Scope)
	}
	if err := s.wantScope(r); err != nil {
		return err
	}
	if steps == nil {
		if s.Steps == nil {
			s.Steps = make(map[string]map[string]*journal.Step)
		}
		steps = make(map[string]*journal.Step)
		s.Steps[r.Scope] = steps
	}
	steps[r.Name] = r
	if len(r.Value) > 0 {
		s.achieved()
	}
	return nil
}

// wantScope refuses r unless its code may be running now: an open call, or the
// start of the submission that is next.
func (s *State) wantScope(r *journal.Step) error {
	if call, ok := strings.CutPrefix(r.Scope, journal.CallScope("")); ok {
		if err := s.wantOpenCall(r, call); err != nil {
			return err
		}
		return s.wantCalled(r, call)
	}
	if err := s.want(r, Input, Model, Finish); err != nil {
		return err
	}
	next := s.Active
	if s.Phase != Input {
		if next = nil; len(s.Queue) > 0 {
			next = s.Queue[0]
		}
	}
	if next == nil || r.Scope != journal.StartScope(next.Submission) {
		return s.refuse(r, "scope %s is not that of a submission that starts", r.Scope)
	}
	return nil
}

func (s *State) endSteps(scope string) { delete(s.Steps, scope) }

// endAllSteps drops the steps of the response that has ended. Those of the
// queue's head stay: it was about to join, and its start is run again when it
// begins by itself.
func (s *State) endAllSteps() {
	for scope := range s.Steps {
		if len(s.Queue) == 0 || scope != journal.StartScope(s.Queue[0].Submission) {
			s.endSteps(scope)
		}
	}
}

// wantOpenCall refuses r unless the latest turn made the call and it has no
// outcome.
func (s *State) wantOpenCall(r journal.Record, call string) error {
	if err := s.want(r, Tools); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Response.Calls, func(c journal.Block) bool { return c.Call == call }) {
		return s.refuse(r, "the turn made no call %q", call)
	}
	if s.Response.Outcomes[call] != nil {
		return s.refuse(r, "call %q has an outcome already", call)
	}
	return nil
}

// shown refuses r unless it belongs to the response, which it may open.
func (s *State) shown(r journal.Record, response string, opens bool) error {
	switch {
	case s.Active == nil:
		return s.refuse(r, "no submission is active")
	case opens && s.Response.Started(), !opens && !s.Response.Started():
		return s.refuse(r, "it says that the response has a turn or not, and is wrong")
	case s.Response.ID == "":
		s.Response.ID = response
	case s.Response.ID != response:
		return s.refuse(r, "the response is %s, not %s", s.Response.ID, response)
	}
	return nil
}

func (s *State) data(r *journal.Data) error { return s.shown(r, r.Response, r.Opens) }

func (s *State) metadata(r *journal.Metadata) error {
	if err := s.shown(r, r.Response, r.Opens); err != nil {
		return err
	}
	s.Response.Metadata = append(s.Response.Metadata, json.RawMessage(r.Value))
	return nil
}

func (s *State) resources(r *journal.Resources) error {
	if !s.Resting() {
		return s.refuse(r, "the conversation is not at rest")
	}
	if s.Baseline == nil || r.Baseline {
		s.Baseline = r
	}
	s.Told = r
	return nil
}

func (s *State) setVar(r *journal.State) error {
	s.write(r.Name, json.RawMessage(r.Value))
	s.Kept = s.Kept || r.Kept != nil
	return nil
}

// write gives a name of the persistent state a new value.
func (s *State) write(name string, value json.RawMessage) {
	old, known := s.Vars[name]
	if !known {
		s.Size += itemSize
	}
	s.Size += len(value) - len(old)
	s.Vars[name] = value
}

func (s *State) turnStarted(r *journal.TurnStarted) error {
	if err := s.want(r, Model); err != nil {
		return err
	}
	if s.Response.ID != "" && s.Response.ID != r.Response {
		return s.refuse(r, "the response is %s, not %s", s.Response.ID, r.Response)
	}
	if r.Retracts != "" && r.Retracts != s.Response.Retract {
		return s.refuse(r, "turn %q cannot be retracted", r.Retracts)
	}
	s.Response.ID, s.Response.Turn, s.Response.Unlocker, s.Response.Fitted, s.Response.Size = r.Response, r.Turn, "", r.Fitted, r.Size
	s.Response.Partial, s.Response.growing, s.Response.Cut, s.Response.Retract = nil, nil, nil, ""
	s.Response.Concluding, s.Response.Capped, s.Response.Images = r.Budget, r.Capped, r.Images
	s.Phase = Streaming
	return nil
}

func (s *State) turnDelta(r *journal.TurnDelta) error {
	if err := s.want(r, Streaming); err != nil {
		return err
	}
	if err := s.wantTurn(r, r.Turn); err != nil {
		return err
	}
	if r.Block < 0 || r.Block >= journal.MaxBlocks {
		return s.refuse(r, "block %d is out of bounds", r.Block)
	}
	resp := &s.Response
	last := len(resp.Partial) - 1
	switch {
	case r.Block > last:
		for len(resp.Partial) < r.Block { // blocks that stream no text, such as calls
			resp.Partial = append(resp.Partial, journal.Block{})
		}
		resp.Partial = append(resp.Partial, journal.Block{Kind: r.BlockKind})
		resp.growing = new(strings.Builder)
	case r.Block < last || r.BlockKind != resp.Partial[last].Kind:
		return s.refuse(r, "%s block %d after %s block %d", r.BlockKind, r.Block, resp.Partial[last].Kind, last)
	}
	resp.growing.WriteString(r.Text)
	resp.Partial[r.Block].Text = resp.growing.String()
	return nil
}

func (s *State) turnDone(r *journal.TurnDone) error {
	if err := s.want(r, Streaming); err != nil {
		return err
	}
	if err := s.wantTurn(r, r.Turn); err != nil {
		return err
	}
	calls := toolCalls(r.Blocks)
	switch r.Stop {
	case journal.StopError, journal.StopAborted:
	case journal.StopEnd, journal.StopToolUse, journal.StopLength, journal.StopFiltered:
		if err := s.wantNewCalls(r, calls); err != nil {
			return err
		}
	default:
		return s.refuse(r, "unknown stop %q", r.Stop)
	}
	resp := &s.Response
	resp.Partial, resp.growing = nil, nil
	resp.LastError = r.Error
	resp.Usage = resp.Usage.Add(r.Usage)
	s.Usage = s.Usage.Add(r.Usage)
	resp.Cost, s.Cost = resp.Cost.Add(r.Cost, r.AtMost), s.Cost.Add(r.Cost, r.AtMost)
	s.turned(r)
	switch r.Stop {
	case journal.StopError:
		resp.Errors++
		if shown(r.Blocks, journal.Text, journal.Reasoning) {
			resp.Retract = r.Turn
		}
		switch {
		case r.Error != nil && r.Error.Class == journal.ClassOverflow:
			resp.Overflows++
		case r.Error != nil && r.Error.Class == journal.ClassInvalid && resp.Images:
			resp.Blind = modelOf(r)
		default:
			resp.Failures++
		}
		s.Phase = Model
		return nil
	case journal.StopAborted:
		resp.Cut = r
		if shown(r.Blocks, journal.Reasoning) && !shown(r.Blocks, journal.Text) { // with text, the model goes on from it
			resp.Retract = r.Turn
		}
		s.Phase = Model
		return nil
	}
	resp.Failures, resp.Overflows, resp.Relieved, resp.Unrelieved = 0, 0, false, false
	resp.Turns++
	resp.Mute = r.Mute
	if resp.Blind == modelOf(r) && !slices.Contains(s.Blind, resp.Blind) && len(s.Blind) < maxBlind {
		s.Blind = append(s.Blind, resp.Blind)
	}
	s.achieved()
	s.show(Item{Turn: r})
	s.count(r.Usage)
	if r.Stop == journal.StopLength && resp.Capped != nil {
		resp.CutBy = resp.Capped
	}
	resp.Calls = calls
	if len(resp.Calls) == 0 {
		if s.Phase = Finish; resp.CutBy != nil && resp.Concluding == nil {
			s.Phase = Model
		}
		return nil
	}
	resp.Outcomes = make(map[string]*journal.Outcome, len(resp.Calls))
	if resp.CallIDs == nil {
		resp.CallIDs = make(map[string]bool)
	}
	for _, c := range resp.Calls {
		resp.CallIDs[c.Call] = true
	}
	resp.Truncated, resp.Refused = r.Stop == journal.StopLength, r.Refused
	resp.Named = r.Named
	s.Phase = Tools
	return nil
}

// maxBlind bounds the models that are remembered to take no images.
const maxBlind = 32

func modelOf(r *journal.TurnDone) string { return r.Provider + "/" + r.Model }

// SeesNothing reports whether a model, as provider/model, has refused images.
func (s *State) SeesNothing(model string) bool {
	return s.Response.Blind == model || slices.Contains(s.Blind, model)
}

// fallback turns to the next model of the response, which begins with no
// failure to its name.
func (s *State) fallback(r *journal.Fallback) error {
	if err := s.want(r, Model); err != nil {
		return err
	}
	resp := &s.Response
	switch {
	case resp.ID != r.Response:
		return s.refuse(r, "the response is %s, not %s", resp.ID, r.Response)
	case resp.Failures == 0:
		return s.refuse(r, "the latest turn has not failed")
	case r.To == "" || r.To != resp.Next():
		return s.refuse(r, "the next model is %q, not %q", resp.Next(), r.To)
	}
	resp.Fallback++
	resp.Failures, resp.LastError = 0, nil
	return nil
}

// shown reports whether readers saw something of one of the kinds.
func shown(blocks []journal.Block, kinds ...journal.BlockKind) bool {
	return slices.ContainsFunc(blocks, func(b journal.Block) bool { return b.Text != "" && slices.Contains(kinds, b.Kind) })
}

// wantTurn refuses r unless it belongs to the latest turn.
func (s *State) wantTurn(r journal.Record, turn string) error {
	if turn != s.Response.Turn {
		return s.refuse(r, "turn %s is open, not %s", s.Response.Turn, turn)
	}
	return nil
}

// wantNewCalls refuses r unless each call has an id that no other call of the
// response has: an outcome names its call by the id alone.
func (s *State) wantNewCalls(r journal.Record, calls []journal.Block) error {
	for i, c := range calls {
		again := slices.ContainsFunc(calls[:i], func(o journal.Block) bool { return o.Call == c.Call })
		if c.Call == "" || again || s.Response.CallIDs[c.Call] {
			return s.refuse(r, "call id %q is empty or was used before in the response", c.Call)
		}
	}
	return nil
}

// blocksSize is roughly how many bytes the blocks hold.
func blocksSize(blocks []journal.Block) int {
	size := 0
	for _, b := range blocks {
		size += itemSize + len(b.Text) + len(b.Arguments) + len(b.Opaque)
	}
	return size
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
	if err := s.wantOpenCall(r, r.Call); err != nil {
		return err
	}
	if err := s.wantTurn(r, r.Turn); err != nil {
		return err
	}
	if ran := r.DurationMS != nil || !r.Failed || len(r.Writes) > 0; ran {
		if err := s.wantCalled(r, r.Call); err != nil {
			return err
		}
	}
	s.Response.Outcomes[r.Call] = r
	s.Kept = s.Kept || r.Kept != nil
	if r.DurationMS != nil { // it has ended by itself
		s.achieved()
	}
	s.endSteps(journal.CallScope(r.Call))
	return nil
}

func (s *State) toolBatch(r *journal.ToolBatch) error {
	if err := s.want(r, Tools); err != nil {
		return err
	}
	if err := s.wantTurn(r, r.Turn); err != nil {
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
	resp.ran(outcomes)
	s.ranBatch(r)
	s.show(Item{Outcomes: bare(outcomes)})
	s.commitWrites(outcomes)
	resp.Calls, resp.Outcomes, resp.Truncated, resp.Named, resp.Called = nil, nil, false, false, nil
	if s.Phase = Model; end || resp.Concluding != nil && !resp.Mute || resp.Refused {
		s.Phase = Finish
	}
	return nil
}

// bare returns outcomes as the context holds them. What the model is not shown
// of them may be much larger than what it is: what clients see, and the values that
// the calls wrote, of which the state has the latest.
func bare(outcomes []*journal.Outcome) []*journal.Outcome {
	kept := make([]*journal.Outcome, len(outcomes))
	for i, o := range outcomes {
		c := *o
		c.Output, c.Writes = nil, nil
		kept[i] = &c
	}
	return kept
}

// ran takes note of a batch that is being committed.
func (r *Response) ran(outcomes []*journal.Outcome) {
	r.Unlocker = ""
	wrote := false
	for _, o := range outcomes {
		r.Ran = append(r.Ran, Ran{Tool: o.Tool, Failed: o.Failed})
		if o.Failed {
			continue
		}
		if writes := len(o.Writes) > 0; writes || !wrote {
			r.Unlocker, wrote = o.Call, writes
		}
	}
	r.countFailures(outcomes)
}

// countFailures counts how often the model has asked in vain for the same. Calls
// that it made at once count once: it has not yet read what became of any.
func (r *Response) countFailures(outcomes []*journal.Outcome) {
	r.Repeated = Repeated{}
	failed := make(map[call]bool)
	for i, o := range outcomes {
		key := identical(r.Calls[i])
		if was, seen := failed[key]; !seen || was {
			failed[key] = o.Failed
		}
	}
	if r.repeats == nil {
		r.repeats = make(map[call]int)
	}
	for i, o := range outcomes {
		key := identical(r.Calls[i])
		switch again, first := failed[key]; {
		case !first: // counted
		case !again:
			delete(r.repeats, key)
		default:
			r.repeats[key]++
			if n := r.repeats[key]; n > r.Repeated.Times {
				r.Repeated = Repeated{Tool: o.Tool, Times: n}
			}
		}
		delete(failed, key)
	}
}

// commitWrites makes the state that the batch's calls wrote visible, in the
// order in which they wrote it.
func (s *State) commitWrites(outcomes []*journal.Outcome) {
	var writes []journal.VarWrite
	for _, o := range outcomes {
		writes = append(writes, o.Writes...)
	}
	slices.SortStableFunc(writes, func(a, b journal.VarWrite) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, w := range writes {
		s.write(w.Name, json.RawMessage(w.Value))
	}
}

func (s *State) settled(r *journal.Settled) error {
	switch r.Outcome {
	case journal.Completed, journal.Failed, journal.Aborted:
	default:
		return s.refuse(r, "unknown outcome %q", r.Outcome)
	}
	if !s.Resting() {
		return s.refuse(r, "the conversation is not at rest")
	}
	sub := s.find(r.Submission)
	if sub == nil {
		return s.refuse(r, "submission %s is not open", r.Submission)
	}
	host := sub == s.Active
	joined := slices.Index(s.Joined, sub)
	switch {
	case !host && joined < 0:
		return s.unqueue(sub, r)
	case r.Outcome == journal.Completed && s.Phase != Closed && !(host && s.Active.Command()):
		return s.refuse(r, "completed before its response was closed")
	case r.Outcome != journal.Completed && s.Phase == Closed:
		return s.refuse(r, "%s although its response was closed", r.Outcome)
	case host && len(s.Joined) > 0:
		return s.refuse(r, "submissions that joined it must settle first")
	case host:
		s.Active, s.Response, s.Phase = nil, Response{}, Idle
		s.endAllSteps()
	default:
		s.Joined = slices.Delete(s.Joined, joined, joined+1)
	}
	delete(s.open, r.Submission)
	return nil
}

// unqueue settles a submission that has not begun. It is the head, as a rule.
func (s *State) unqueue(sub *Submission, r *journal.Settled) error {
	if r.Outcome == journal.Completed && !sub.Command() {
		return s.refuse(r, "submission %s did not join the response", r.Submission)
	}
	if i := slices.Index(s.Queue, sub); i == 0 {
		s.shift()
	} else {
		s.Queue = slices.Delete(s.Queue, i, i+1)
	}
	delete(s.open, r.Submission)
	s.endSteps(journal.StartScope(r.Submission))
	return nil
}
