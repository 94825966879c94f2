package journal

// Compacted replaces the older part of the model's context by a summary. The
// conversation stays as it was: only what the model is shown of it changes.
type Compacted struct {
	ID         string           `json:"id"`
	Submission string           `json:"sub,omitzero"` // for which it was made, or that asked for it
	Reason     CompactionReason `json:"why"`

	// Summary stands for all that is left out, an earlier summary included. It
	// is Dropped if no model could be had to write one; then it says so.
	Summary string `json:"summary"`
	Dropped bool   `json:"dropped,omitzero"`

	// First is the first item of the context that stays, as does all that
	// follows it, and Keep are items before it that stay too. An item is named
	// by the id of its entry or of its turn; the outcomes of a turn's calls and
	// the notices behind it go with the turn.
	First string   `json:"first"`
	Keep  []string `json:"keep,omitempty"`

	// Resources are the new baseline: what the system prompt is built from now.
	Resources *Resources `json:"resources,omitempty"`

	// Before and After are the tokens of the next request without and with the
	// compaction, as far as they can be told.
	Before int `json:"before,omitzero"`
	After  int `json:"after,omitzero"`

	// The model that wrote the summary, and what that took, failed calls
	// included.
	Provider string `json:"provider,omitzero"`
	Model    string `json:"model,omitzero"`
	Usage    Usage  `json:"usage,omitzero"`
	Guess    Usage  `json:"guess,omitzero"` // as in TurnDone
	Calls    int    `json:"calls,omitzero"` // model calls that were made
	Cost     *int64 `json:"cost,omitempty"` // as in TurnDone, of them all
	AtMost   int64  `json:"atMost,omitzero"`
}

// Summarizing says that a summary is about to be asked for, of what a Compacted is
// to replace. It ends with that, or with an Unsummarized. If neither follows, its
// process has died over it.
type Summarizing struct {
	Submission string           `json:"sub,omitzero"` // as in Compacted
	Reason     CompactionReason `json:"why"`

	// The model that is asked first, and what it counts if nobody says how it has
	// ended: that the model has read all of it once, by the engine's estimate.
	Provider string `json:"provider,omitzero"`
	Model    string `json:"model,omitzero"`
	Guess    Usage  `json:"guess,omitzero"`
	Cost     *int64 `json:"cost,omitempty"` // as in TurnDone
	AtMost   int64  `json:"atMost,omitzero"`
}

// Unsummarized says that no summary came of a Summarizing, and what that took all
// the same. The context stays as it was.
type Unsummarized struct {
	Submission string           `json:"sub,omitzero"` // as in Compacted
	Reason     CompactionReason `json:"why"`

	// Error is that of the model that was asked last. It is nil if the summary was
	// cut: by an abort, a deadline, a process that closed or died.
	Error *TurnError `json:"error,omitempty"`

	// Next is before when no other summary is asked for because the context is large,
	// in Unix milliseconds by the store's clock. A cut has none.
	Next int64 `json:"next,omitzero"`

	// The model that was asked last, and what the calls took together, as in
	// Compacted.
	Provider string `json:"provider,omitzero"`
	Model    string `json:"model,omitzero"`
	Usage    Usage  `json:"usage,omitzero"`
	Guess    Usage  `json:"guess,omitzero"`
	Calls    int    `json:"calls,omitzero"`
	Cost     *int64 `json:"cost,omitempty"`
	AtMost   int64  `json:"atMost,omitzero"`
}

// CompactionReason says why a context was compacted.
type CompactionReason string

// The reasons for a compaction.
const (
	CompactionThreshold CompactionReason = "threshold" // the context had come near to the model's window
	CompactionOverflow  CompactionReason = "overflow"  // the model refused a request as too large
	CompactionManual    CompactionReason = "manual"    // somebody asked for it
)

// Uncompacted undoes the latest compaction that is in effect: the model is shown
// again what the summary stood for. Whoever has applied the compaction must
// compute the state anew, from the start of the journal.
type Uncompacted struct {
	ID         string `json:"id"` // of the compaction
	Submission string `json:"sub,omitzero"`
}

// ClassOverflow is the class of a [TurnError] whose request was larger than the
// model's context window.
const ClassOverflow = "overflow"

// ClassInvalid is the class of a [TurnError] whose request was refused as it is.
const ClassInvalid = "invalid"

// Kind returns the record's kind.
func (*Compacted) Kind() Kind    { return KindCompacted }
func (*Uncompacted) Kind() Kind  { return KindUncompacted }
func (*Summarizing) Kind() Kind  { return KindSummarizing }
func (*Unsummarized) Kind() Kind { return KindUnsummarized }
