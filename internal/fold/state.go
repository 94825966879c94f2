// Package fold computes an instance's state from its records, in constant time
// a record.
//
// The state's [Phase] says which act comes next, at every point where a batch
// can end. The live loop and recovery are therefore the same program: whoever
// owns the instance does what the phase calls for. [State.Apply] is also the
// judge of what may be written: it refuses a record that breaks a rule, and
// the owner applies each record before it appends it.
//
// The package is pure: no time, no randomness, no input or output.
package fold

import (
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/journal"
)

// Phase says which act comes next.
type Phase uint8

// The phases, with the act that each calls for.
const (
	Unborn    Phase = iota // nothing is known of the instance yet
	Idle                   // begin the submission at the head of the queue, if there is one
	Input                  // run the start hooks and add the active submission's message to the conversation
	Model                  // let the queue's head join, or start a turn
	Streaming              // finish the turn; a new owner closes it as aborted
	Tools                  // finish the calls; a new owner runs durable ones again and marks the others
	Finish                 // let the queue's head join, or run the finish hooks and close the response
	Closed                 // settle the active submission and all that joined it
)

var phaseNames = [...]string{"unborn", "idle", "input", "model", "streaming", "tools", "finish", "closed"}

func (p Phase) String() string {
	if int(p) >= len(phaseNames) {
		return "phase " + strconv.Itoa(int(p))
	}
	return phaseNames[p]
}

// A State is everything that a journal says about its instance. The zero value
// is the state before the first record.
type State struct {
	Born  *journal.Born
	Phase Phase
	Head  int64 // offset of the newest batch that was applied; see Advance

	// Queue holds the submissions that have not begun, in the order of their
	// admission.
	Queue []*Submission

	// Active is the submission whose response is under way, and Joined are
	// those that joined it. Both are empty when the phase is Idle.
	Active *Submission
	Joined []*Submission

	// Response describes the response under way.
	Response Response

	// Context is the conversation as the model sees it.
	Context []Item

	// Vars is the instance's persistent state.
	Vars map[string]json.RawMessage

	// Steps are the durable steps of work that has not ended, by scope and
	// name.
	Steps map[string]map[string]*journal.Step

	// Baseline is what the system prompt was built from, and Told what the
	// model was told last. Both are nil until the first turn.
	Baseline, Told *journal.Resources

	// Delivery is the message that is in front of the model.
	Delivery *journal.Message

	// Usage is the sum over all turns.
	Usage journal.Usage

	// Passed are the ranges of batches that were passed over; see [State.PassOver].
	Passed []Span

	// Size is roughly how many bytes the context and the persistent state hold.
	Size int
}

// A Submission is an accepted message that is not settled.
type Submission struct {
	journal.Admitted
	Aborted bool // an abort covers it

	// Attempts counts the tries that were not given up on purpose, and
	// Fruitless those since something was last achieved: a turn was completed, a
	// call came to its end, a step got its value. MaxAttempts bounds the latter.
	// Zero means that no bound or no deadline was set.
	Attempts    int
	Fruitless   int
	MaxAttempts int
	Deadline    int64 // Unix milliseconds
}

// A Response is what the agent does between waking and settling.
type Response struct {
	ID       string            // of its message; empty until it starts
	Settings *journal.Settings // nil until it starts
	Turn     string            // the latest turn; empty before the first
	Turns    int               // completed turns
	Failures int               // failed turns in a row that may be retried
	Cycles   int               // how often its finish hooks have sent the model back to work
	Usage    journal.Usage

	// Ran are the tool calls of all its committed batches, Metadata what hooks
	// have attached to its message, both in order.
	Ran      []Ran
	Metadata []json.RawMessage

	// Unlocker is the call of the batch just committed that is taken to have
	// changed what the agent declares, or empty.
	Unlocker string

	// Repeated is the call of the latest batch that has failed most often in a
	// row with the same arguments.
	Repeated Repeated

	repeats   map[call]int
	continued bool // the finish hooks have appended a signal, and the seam is still to come

	LastError *journal.TurnError // of the latest turn, when it failed

	// Partial is the text streamed so far in an open turn, by block.
	Partial []journal.Block
	growing *strings.Builder // the text of its last block, so that a long answer is not copied with each delta
	// Cut is the latest turn when it was aborted. What it said reaches the
	// model only if a notice follows that tells the model so.
	Cut *journal.TurnDone
	// CallIDs holds the ids of all calls of the response, to keep them unique.
	CallIDs map[string]bool
	// Calls are the tool calls of the latest turn while the phase is Tools,
	// and Outcomes those that have ended.
	Calls    []journal.Block
	Outcomes map[string]*journal.Outcome
	// Truncated means that the turn was cut by the output limit, so that its
	// calls must not run.
	Truncated bool
}

// A Ran is one tool call of a response, as its hooks see it.
type Ran struct {
	Tool   string
	Failed bool
}

// A call identifies calls that ask for the same.
type call [sha256.Size]byte

// identical returns what a call has in common with all that ask for the same.
func identical(b journal.Block) call {
	return sha256.Sum256([]byte(b.Name + "\x00" + string(journal.Canonical(jsontext.Value(b.Arguments)))))
}

// Repeated counts failures of one call.
type Repeated struct {
	Tool  string
	Times int
}

// Failed returns how often in a row a call with the tool and the arguments of b
// has failed in the committed batches of this response.
func (r *Response) Failed(b journal.Block) int { return r.repeats[identical(b)] }

// Started reports whether the response has come to its first turn.
func (r *Response) Started() bool { return r.Turn != "" }

// An Item is one message of the model's context. Exactly one field is set.
type Item struct {
	Entry    *journal.Entry
	Turn     *journal.TurnDone
	Outcomes []*journal.Outcome // of one batch, in call order
}

// Advance records that the batch at offset has been applied. Batches must be
// taken in order; the owner may apply its own batch before intake that was
// appended just ahead of it, because the two kinds of record commute.
func (s *State) Advance(offset int64) { s.Head = offset }

// Unsettled reports whether there is anything to do.
func (s *State) Unsettled() bool { return s.Active != nil || len(s.Queue) > 0 }

// Joinable returns the submission that may join the response, or nil. Only the
// head of the queue may join, and an aborted one never does.
func (s *State) Joinable() *Submission {
	if len(s.Queue) == 0 || s.Queue[0].Aborted {
		return nil
	}
	return s.Queue[0]
}

// Resting reports whether the conversation is at rest: no turn is open and no
// batch of calls is uncommitted.
func (s *State) Resting() bool { return s.Phase != Streaming && s.Phase != Tools }
