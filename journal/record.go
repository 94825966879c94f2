package journal

import (
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Intake records may be appended by any process.

// Born is the first record of every journal.
type Born struct {
	Agent       string         `json:"agent"`
	ID          string         `json:"id"`
	UID         string         `json:"uid"`
	Incarnation string         `json:"incarnation"`
	InitialData jsontext.Value `json:"initialData,omitzero"` // as the creator sent it, after validation
}

// Admitted accepts a submission. It is not yet part of the conversation: the
// Entry that the owner writes when it turns to the submission is.
type Admitted struct {
	Submission string  `json:"sub"`
	Message    Message `json:"msg"`
	// Origin says how the message came: "direct" over HTTP, "dispatch" from
	// code of this program.
	Origin      string `json:"origin,omitzero"`
	Traceparent string `json:"traceparent,omitzero"` // W3C trace context of the sender
}

// Abort asks that every submission unsettled at its offset be settled as
// aborted, unless its response has already closed.
type Abort struct{}

// Owner records are written by the instance's owner under its epoch.

// Attempt begins a try at running a submission. The first one makes the
// submission active and stamps its budget, which no later one changes.
type Attempt struct {
	Submission  string `json:"sub"`
	Ordinal     int    `json:"n"` // counts from 1
	Node        string `json:"node,omitzero"`
	Reason      string `json:"why,omitzero"`
	Deadline    int64  `json:"deadline,omitzero"` // Unix milliseconds; only in the first
	MaxAttempts int    `json:"max,omitzero"`      // only in the first
	Began       int64  `json:"at,omitzero"`       // Unix milliseconds by the store's clock; old records have none
}

// Release ends an attempt that was stopped on purpose, so that taking the
// submission up again is not counted against its budget.
type Release struct {
	Submission string `json:"sub"`
	Node       string `json:"node,omitzero"`
}

// Entry adds a message to the conversation: a submission's own when the owner
// turns to it, or one of the runtime's signals.
type Entry struct {
	ID         string  `json:"id"`
	Submission string  `json:"sub"`
	Purpose    Purpose `json:"purpose"`
	Turn       string  `json:"turn,omitzero"` // the latest turn, when the message joined a live response
	Message    Message `json:"msg"`
	Ending     string  `json:"ending,omitzero"` // outcome told by an Advisory that ends a submission
}

// Purpose says what an entry is for.
type Purpose string

// The purposes of an entry.
const (
	Input     Purpose = "input"     // the message of a submission
	Appended  Purpose = "appended"  // a signal that the agent's own code added to the response
	Narration Purpose = "narration" // the runtime's word on a change of what the agent declares
	Advisory  Purpose = "advisory"  // the runtime's word on how a submission ended, for people and for the model
	Notice    Purpose = "notice"    // the runtime's word to the model, hidden from people
)

// Seam marks that a step between turns has been made. What the agent's hooks
// wrote there lands in the same batch.
type Seam struct {
	Name       SeamName `json:"name"`
	Submission string   `json:"sub"`

	// Response and Settings are set by the seam with which a response starts.
	Response string    `json:"resp,omitzero"`
	Settings *Settings `json:"settings,omitempty"`

	WorkMS int64 `json:"work,omitzero"` // as in TurnDone; not of a start
}

// Settings are what holds for the whole of a response, however its renders
// change.
type Settings struct {
	Model      string      `json:"model"`               // provider/model
	Fallbacks  []string    `json:"fallbacks,omitempty"` // the models to go on with when it fails, in order
	Thinking   string      `json:"thinking,omitzero"`
	Compaction *Compaction `json:"compaction,omitempty"`
	Budget     *Budget     `json:"budget,omitempty"`
}

// Compaction says when a conversation is summarized. Zero fields mean the
// defaults.
type Compaction struct {
	Off              bool   `json:"off,omitzero"`
	ReserveTokens    int    `json:"reserve,omitzero"`
	KeepRecentTokens int    `json:"keep,omitzero"`
	Model            string `json:"model,omitzero"`
}

// SeamName names a seam.
type SeamName string

// The seams.
const (
	SeamStart  SeamName = "start"  // a submission has begun or joined
	SeamCycle  SeamName = "cycle"  // the finish hooks have run and sent the model back to work
	SeamFinish SeamName = "finish" // the finish hooks have run, and messages that came meanwhile go first
	SeamClosed SeamName = "closed" // the response is complete; only settling is left
)

// State is the new value of one name of the instance's persistent state.
type State struct {
	Name  string         `json:"name"`
	Value jsontext.Value `json:"value"`

	// Kept is the attachment that holds the whole of a long result, of which the
	// value has the head and the tail.
	Kept *Attachment `json:"kept,omitempty"`
}

// Step is what is durable of one step of running code: that it has a value, or
// only that it was begun.
type Step struct {
	Scope string         `json:"scope"` // of the code that runs it; see CallScope and StartScope
	Name  string         `json:"name"`
	Value jsontext.Value `json:"value,omitzero"` // absent when the step was only begun
}

// CallScope is the scope of the steps of a tool call.
func CallScope(call string) string { return "call:" + call }

// StartScope is the scope of the steps of the callbacks that run when a
// submission begins.
func StartScope(submission string) string { return "start:" + submission }

// Data is the new value of a named part that the response shows to clients. The
// model never sees it.
type Data struct {
	Response   string         `json:"resp"`
	Submission string         `json:"sub"`
	Opens      bool           `json:"opens,omitzero"` // the response has no turn yet, so that its message begins here
	Name       string         `json:"name"`
	Value      jsontext.Value `json:"value"`
}

// Metadata is merged into the metadata of the response's message, which clients
// see and the model does not.
type Metadata struct {
	Response   string         `json:"resp"`
	Submission string         `json:"sub"`
	Opens      bool           `json:"opens,omitzero"` // as in Data
	Value      jsontext.Value `json:"value"`
}

// Resources is what the model has been told that the agent declares: the tools
// and whatever else it can use, and a digest of its instructions. The first one,
// and each with Baseline, is what the system prompt is built from until the
// next.
type Resources struct {
	Baseline     bool       `json:"baseline,omitzero"`
	Instructions string     `json:"instructions,omitzero"` // digest
	Declared     []Resource `json:"declared,omitempty"`
}

// A Resource is one thing that an agent declares for the model to use.
type Resource struct {
	Kind        ResourceKind `json:"kind"`
	Name        string       `json:"name"`
	Description string       `json:"desc,omitzero"`
	Digest      string       `json:"digest,omitzero"` // of what else the model is shown, such as a schema
	After       string       `json:"after,omitzero"`  // the call whose result brought it in, if one did
}

// ResourceKind is the kind of a [Resource].
type ResourceKind string

// The kinds of resource.
const (
	ResourceSkill    ResourceKind = "skill"
	ResourceTool     ResourceKind = "tool"
	ResourceSubagent ResourceKind = "subagent"
)

// TurnStarted opens a turn: a model call is about to be made.
type TurnStarted struct {
	Turn       string `json:"turn"`
	Response   string `json:"resp"` // id of the response's message; the same in all its turns
	Submission string `json:"sub"`
	Provider   string `json:"provider"`
	Model      string `json:"model"`

	// Retracts is the turn before it, when that has failed and what it had said
	// was shown: the turn is made again, and readers forget what they saw of it.
	Retracts string `json:"retracts,omitzero"`

	// Fitted says that the model was sent less than the context, because all of
	// it would not have fitted.
	Fitted bool `json:"fitted,omitzero"`

	// Images says that the request has images although it is not known whether the
	// model takes any.
	Images bool `json:"images,omitzero"`

	// Size is how many tokens the request has, by the engine's estimate.
	Size int `json:"size,omitzero"`

	// Capped is the limit of the budget by which the answer is shorter than the model
	// could make it, if there is one. An answer that ends there is followed by the
	// last turn.
	Capped *ExhaustedBudget `json:"capped,omitempty"`

	// Budget is the limit that was reached, when the turn is the last one for
	// that: whatever the model says, the response ends with it.
	Budget *ExhaustedBudget `json:"budget,omitempty"`
}

// TurnDelta is a run of streamed text of one block, gathered since the last
// one. It exists so that readers see text while it is written and so that a
// crash keeps it; TurnDone repeats the text whole.
type TurnDelta struct {
	Turn      string    `json:"turn"`
	Response  string    `json:"resp"`
	Block     int       `json:"block"`
	BlockKind BlockKind `json:"kind"`
	Text      string    `json:"text"`
}

// TurnDone closes a turn with everything that the model said.
type TurnDone struct {
	Turn       string     `json:"turn"`
	Response   string     `json:"resp"`
	Submission string     `json:"sub"`
	Stop       Stop       `json:"stop"`
	Blocks     []Block    `json:"blocks,omitempty"`
	Sent       []int      `json:"sent,omitempty"`  // bytes of each block's text that earlier TurnDeltas hold; see Unsent
	Usage      Usage      `json:"usage,omitzero"`  // as the provider says
	Guess      Usage      `json:"guess,omitzero"`  // what was used beside it, by the engine's estimate: the provider has not said, or not all
	Error      *TurnError `json:"error,omitempty"` // with StopError
	Provider   string     `json:"provider"`
	Model      string     `json:"model"`

	// Reason is why the answer ended, in the provider's own word, cut where it is long.
	Reason string `json:"why,omitzero"`

	// Answered is the model that answered, by the provider's word, when that is
	// not the one that was asked for.
	Answered string `json:"answered,omitzero"`

	// Cost is what the call cost in billionths of a US dollar, at the prices that
	// were known then; nil if it is not known.
	Cost *int64 `json:"cost,omitempty"`

	// AtMost estimates the cost, rather too high, when that is not known and the
	// tokens are; in billionths of a US dollar.
	AtMost int64 `json:"atMost,omitzero"`

	// Refused says that a filter has cut the answer, so that its calls may lack
	// arguments: none of them runs, and the response ends with it.
	Refused bool `json:"refused,omitzero"`

	// Mute says that the model has called tools in its last turn, although it may
	// not, and has said nothing: it is asked once more, without tools.
	Mute bool `json:"mute,omitzero"`

	// Named says that no call of the turn runs before a Called record has named
	// it. Without it nothing is known of when they began: the turn was written
	// before there were such records.
	Named bool `json:"named,omitzero"`

	// WorkMS is how long the response was worked on, in milliseconds: since the
	// latest record that says so or, if that is later, since the attempt began.
	WorkMS int64 `json:"work,omitzero"`
}

// Unsent returns the text of block i that no TurnDelta holds. If what was sent
// ends within a character, the whole character is unsent.
func (t *TurnDone) Unsent(i int) string {
	text := t.Blocks[i].Text
	if i >= len(t.Sent) {
		return text
	}
	return text[boundary(text, t.Sent[i]):]
}

// boundary returns n if the n-th byte of text begins a character, or else where
// the character begins that holds it. It keeps n within the text.
func boundary(text string, n int) int {
	n = min(max(n, 0), len(text))
	for back := 1; back < utf8.UTFMax && back <= n; back++ {
		if _, size := utf8.DecodeRuneInString(text[n-back:]); size > back {
			return n - back
		}
	}
	return n
}

// mend returns what to store for r, which is r itself unless that would not be
// read as it was meant.
func mend(r Record) Record {
	t, ok := r.(*TurnDone)
	if !ok || !slices.ContainsFunc(t.Blocks, broken) {
		return r
	}
	m := *t
	m.Blocks, m.Sent = slices.Clone(t.Blocks), slices.Clone(t.Sent)
	for i := range m.Blocks {
		b := &m.Blocks[i]
		if len(b.Opaque) == 0 {
			b.Opaque = nil
		}
		if i < len(m.Sent) { // the bytes that are replaced become longer
			m.Sent[i] = len(valid(b.Text[:boundary(b.Text, m.Sent[i])]))
		}
		b.Text = valid(b.Text)
	}
	return &m
}

func broken(b Block) bool {
	return !utf8.ValidString(b.Text) || (b.Opaque != nil && len(b.Opaque) == 0)
}

// valid returns s with each byte that is not UTF-8 replaced, as Encode does.
func valid(s string) string { return string([]rune(s)) }

// Stop says how a turn ended.
type Stop string

// The ways a turn ends.
const (
	StopEnd      Stop = "stop"
	StopToolUse  Stop = "tool_use"
	StopLength   Stop = "length"
	StopFiltered Stop = "filtered"
	StopError    Stop = "error"   // the call failed; Error says how
	StopAborted  Stop = "aborted" // cut by an abort, a deadline or a crash
)

// A TurnError is a failed model call.
type TurnError struct {
	Class      string `json:"class"`
	Message    string `json:"message"`
	Status     int    `json:"status,omitzero"`
	RetryAfter int64  `json:"retryAfterMs,omitzero"`
	Until      int64  `json:"until,omitzero"` // when that has passed, in Unix milliseconds
}

// Usage counts tokens.
type Usage struct {
	Input      int `json:"in,omitzero"`
	Output     int `json:"out,omitzero"`
	CacheRead  int `json:"cacheRead,omitzero"`
	CacheWrite int `json:"cacheWrite,omitzero"`
	Reasoning  int `json:"reasoning,omitzero"`
}

// Fallback says that the rest of a response is made with another model, because
// the latest turn failed.
type Fallback struct {
	Response   string `json:"resp"`
	Submission string `json:"sub"`
	From       string `json:"from"` // provider/model
	To         string `json:"to"`   // the next of the settings' Fallbacks
	Class      string `json:"class"`
	Reason     string `json:"why"`
}

// Called says that calls of the turn may begin to run. It is durable before they
// do, so a call that none has named has not been run.
type Called struct {
	Turn  string   `json:"turn"`
	Calls []string `json:"calls"`

	// Once are those of the calls that must not run again, although the model was
	// told of a tool whose calls may: by now the program has another.
	Once []string `json:"once,omitempty"`
}

// Outcome is the result of one tool call. It is final: the call never runs
// again.
type Outcome struct {
	Turn       string         `json:"turn"`
	Response   string         `json:"resp"`
	Call       string         `json:"call"`
	Tool       string         `json:"tool"`
	Failed     bool           `json:"failed,omitzero"`
	Content    string         `json:"content"`         // what the model reads
	Output     jsontext.Value `json:"output,omitzero"` // what clients see, when it succeeded
	EndTurn    bool           `json:"endTurn,omitzero"`
	DurationMS *int64         `json:"ms,omitempty"` // absent when the call was interrupted

	// Kept is the attachment that holds the whole result, when Content is only its
	// head and tail.
	Kept *Attachment `json:"kept,omitempty"`

	// Writes is the persistent state that the call wrote. It is kept here so
	// that a crash cannot part a call's result from its writes, and becomes
	// visible with the batch.
	Writes []VarWrite `json:"writes,omitempty"`
}

// A VarWrite is a value that a call wrote. Seq orders the writes of a batch.
type VarWrite struct {
	Seq   int            `json:"n"`
	Name  string         `json:"name"`
	Value jsontext.Value `json:"value"`
}

// ToolBatch commits the outcomes of a turn's calls, all at once and in call
// order, together with the state that they wrote.
type ToolBatch struct {
	Turn   string `json:"turn"`
	WorkMS int64  `json:"work,omitzero"` // as in TurnDone
}

// Settled ends a submission.
type Settled struct {
	Submission string         `json:"sub"`
	Outcome    string         `json:"outcome"`
	Error      jsontext.Value `json:"error,omitzero"`  // safe to show to clients
	AnsweredBy string         `json:"answer,omitzero"` // the submission whose response answered it

	// Budget is the limit that ended the response, when one did.
	Budget *ExhaustedBudget `json:"budget,omitempty"`
}

// The outcomes of a submission.
const (
	Completed = "completed"
	Failed    = "failed"
	Aborted   = "aborted"
)

// Repair lets a journal go on that could not be continued. Nothing of it is
// taken away: the batches from From to To are passed over by whoever computes
// the state, now and for ever, and stay where they are. All that was under way
// has ended.
type Repair struct {
	From   int64  `json:"from"` // the batch that could not be read or broke a rule
	To     int64  `json:"to"`   // the last one that is passed over; before this record's own
	Reason string `json:"why,omitzero"`

	// Open are the submissions that had no settlement, in the order of their
	// admission. The records that settle them follow in the same batch.
	Open []string `json:"open,omitempty"`

	// Messages and Calls are the agent's messages and tool calls that clients
	// were told of and that were never ended. Nothing more will come of them.
	Messages []string `json:"messages,omitempty"`
	Calls    []string `json:"calls,omitempty"`
}

// Kind returns the record's kind.
func (*Born) Kind() Kind        { return KindBorn }
func (*Admitted) Kind() Kind    { return KindAdmitted }
func (*Abort) Kind() Kind       { return KindAbort }
func (*Attempt) Kind() Kind     { return KindAttempt }
func (*Release) Kind() Kind     { return KindRelease }
func (*Entry) Kind() Kind       { return KindEntry }
func (*Seam) Kind() Kind        { return KindSeam }
func (*State) Kind() Kind       { return KindState }
func (*Step) Kind() Kind        { return KindStep }
func (*Data) Kind() Kind        { return KindData }
func (*Metadata) Kind() Kind    { return KindMetadata }
func (*Fallback) Kind() Kind    { return KindFallback }
func (*Resources) Kind() Kind   { return KindResources }
func (*TurnStarted) Kind() Kind { return KindTurnStarted }
func (*TurnDelta) Kind() Kind   { return KindTurnDelta }
func (*TurnDone) Kind() Kind    { return KindTurnDone }
func (*Called) Kind() Kind      { return KindCalled }
func (*Outcome) Kind() Kind     { return KindOutcome }
func (*ToolBatch) Kind() Kind   { return KindToolBatch }
func (*Settled) Kind() Kind     { return KindSettled }
func (*Repair) Kind() Kind      { return KindRepair }

// Total is the number of tokens.
func (u Usage) Total() int { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output,
		CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite,
		Reasoning: u.Reasoning + v.Reasoning,
	}
}
