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

	// open finds all of them. It is made when it is needed.
	open byID

	// Response describes the response under way.
	Response Response

	// Context is the conversation as the model sees it, and Counted what a
	// provider has counted of it.
	Context []Item
	Counted Counted

	// Fresh says that no turn was completed since the latest compaction.
	Fresh bool

	// Squeezed counts the completed turns in a row whose request held less than the
	// context.
	Squeezed int

	// Summarizing is the summary that is being made, and Unsummarized what is known
	// of those that could not be had.
	Summarizing  *journal.Summarizing
	Unsummarized Unsummarized

	// Blind are the models that have refused a request with images and answered the
	// same one without.
	Blind []string

	// Undone are compactions that were passed over because a record further on
	// undoes them, latest last; see [State.PassCompaction].
	Undone []string

	// Vars is the instance's persistent state.
	Vars map[string]json.RawMessage

	// Steps are the durable steps of work that has not ended, by scope and
	// name.
	Steps map[string]map[string]*journal.Step

	// Baseline is what the system prompt was built from, and Told what the
	// model was told last. Both are nil until the first turn.
	Baseline, Told *journal.Resources

	// Kept reports whether the model has been told of a result that was kept
	// beside the journal.
	Kept bool

	// Delivery is the message that is in front of the model.
	Delivery *journal.Message

	// Usage and Cost are the sums over all turns.
	Usage journal.Usage
	Cost  journal.Expense
	Spent Spent

	// Passed are the ranges of batches that were passed over; see [State.PassOver].
	Passed []Span

	// Size is roughly how many bytes the context and the persistent state hold.
	Size int
}

// byID are submissions by their ids: the queue may be long.
type byID map[string]*Submission

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

	// Began is when the latest attempt did, in Unix milliseconds, or zero if the
	// record does not say.
	Began int64
}

// A Response is what the agent does between waking and settling.
type Response struct {
	ID       string            // of its message; empty until it starts
	Settings *journal.Settings // nil until it starts
	Turn     string            // the latest turn; empty before the first
	Turns    int               // completed turns
	Failures int               // failed turns in a row, of the model that is used now
	Errors   int               // failed turns in all
	Fallback int               // how many of the settings' fallbacks have been turned to
	Cycles   int               // how often its finish hooks have sent the model back to work
	Usage    journal.Usage
	Cost     journal.Expense
	Spent    Spent

	// Concluding is the limit of the budget that was reached, once the turn has
	// begun that is the last one for that.
	Concluding *journal.ExhaustedBudget

	// Images is that of the latest TurnStarted, and Blind the model, as
	// provider/model, that has refused such a request: notes take the place of the
	// images.
	Images bool
	Blind  string

	// Capped is that of the latest TurnStarted, and CutBy the limit that has cut an
	// answer: the next turn is the last one.
	Capped, CutBy *journal.ExhaustedBudget

	// Mute says that the latest completed turn was to conclude and has not; see
	// journal.TurnDone.
	Mute bool

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

	// Retract is the latest turn, when it has come to nothing although readers
	// were shown some of it, which they must forget when it is made again.
	Retract string

	// Overflows counts the turns in a row whose request was too large, and
	// Relieved says that the context was compacted since the first of them, and
	// Unrelieved that no summary could be had for that.
	// Fitted and Size are those of the latest TurnStarted.
	Overflows  int
	Relieved   bool
	Unrelieved bool
	Fitted     bool
	Size       int

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
	// Refused means that a filter has cut the turn: its calls must not run, and the
	// response ends with it.
	Refused bool
	// Named means that no call runs before a record has named it, and Called are
	// those that were; see [Response.MayHaveRun].
	Named  bool
	Called map[string]bool
}

// MayHaveRun reports whether a call of the latest turn may have begun to run. If
// not, it certainly has not.
func (r *Response) MayHaveRun(call string) bool { return !r.Named || r.Called[call] }

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

// Model returns the specifier of the model that the response is made with now.
// It must have settings.
func (r *Response) Model() string {
	if r.Fallback > 0 {
		return r.Settings.Fallbacks[r.Fallback-1]
	}
	return r.Settings.Model
}

// Next returns the specifier of the model to turn to when the present one fails,
// or nothing if there is none.
func (r *Response) Next() string {
	if r.Settings == nil || r.Fallback >= len(r.Settings.Fallbacks) {
		return ""
	}
	return r.Settings.Fallbacks[r.Fallback]
}

// Started reports whether the response has come to its first turn.
func (r *Response) Started() bool { return r.Turn != "" }

// An Item is one message of the model's context. Exactly one field is set.
type Item struct {
	Summary  *journal.Compacted // only the first item
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
// head of the queue may join, and an aborted one or a command never does. When
// the budget is exhausted none does: it gets a response of its own.
func (s *State) Joinable() *Submission {
	if len(s.Queue) == 0 || s.Queue[0].Aborted || s.Queue[0].Command() || s.Exhausted() != nil {
		return nil
	}
	return s.Queue[0]
}

// Resting reports whether the conversation is at rest: no turn is open and no
// batch of calls is uncommitted.
func (s *State) Resting() bool { return s.Phase != Streaming && s.Phase != Tools }
