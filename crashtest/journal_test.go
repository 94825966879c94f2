package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	_ "modernc.org/sqlite" // for its own check of the file

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// An audit holds the database that the server has left to the promise.
type audit struct {
	*complaints
	world *world
	db    keeper
	known map[string]bool // calls that journals have

	batches  int
	calls    int
	failed   int            // calls that were interrupted or stopped
	attempts []int          // of each submission that began
	fell     int            // responses that turned to another model
	between  int            // lives that ended after a model had failed and before another had answered in its place
	phases   map[string]int // how often work was taken up in each phase
	resumed  int            // conversations that have a checkpoint
	merged   int            // batches that stand for several

	also func(*account, store.Page) // if set, looks at each journal, too
}

// A keeper is a store that keeps checkpoints.
type keeper interface {
	store.Store
	store.Checkpointer
}

// checkFile has SQLite check the file, which no process has open.
func (c *complaints) checkFile(ctx context.Context, file string) {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		c.complain("opening %s: %v", file, err)
		return
	}
	var verdict string
	err = db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict)
	if err = errors.Join(err, db.Close()); err != nil || verdict != "ok" {
		c.complain("integrity_check of %s: %q, %v", file, verdict, err)
	}
}

// An account is what one journal says.
type account struct {
	*audit
	of       *conversation
	state    fold.State
	order    []string         // submissions, as admitted
	admitted map[string]int64 // where
	shown    []string         // submissions, as they were put to the model
	attempts map[string]int
	settled  map[string][]settlement
	aborts   []int64 // where
	turns    []int64 // where they started
	calls    map[string]bool
	outcomes []*journal.Outcome
	left     map[string]string // the model that a response has left, by the response
	falling  bool              // the latest model call that came to its end has failed
}

type settlement struct {
	offset  int64
	outcome string
}

// conversation checks one journal.
func (a *audit) conversation(ctx context.Context, of *conversation) {
	acc := &account{
		audit: a, of: of, state: fold.State{Head: -1}, admitted: make(map[string]int64), attempts: make(map[string]int),
		settled: make(map[string][]settlement), calls: make(map[string]bool),
		left: make(map[string]string),
	}
	addr := store.Address{Agent: of.agent, ID: of.id}
	page, err := a.whole(ctx, addr)
	if err != nil || len(page.Batches) == 0 || page.Batches[len(page.Batches)-1].Last() != page.Head {
		a.complain("%s: reading the journal: %d batches, head %d, %v", of.path(), len(page.Batches), page.Head, err)
		return
	}
	for _, b := range page.Batches {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			a.complain("%s: batch %d: %v", of.path(), b.Offset, err)
			return
		}
		for _, r := range batch.Records {
			if err := acc.state.Apply(r); err != nil {
				a.complain("%s: batch %d: %v", of.path(), b.Offset, err)
				return
			}
			acc.record(b.Offset, r)
		}
		acc.state.Advance(b.Offset)
	}
	a.resumes(ctx, of, page, &acc.state)
	a.batches += len(page.Batches)
	if acc.state.Phase != fold.Idle || acc.state.Unsettled() || page.Unsettled != 0 {
		a.complain("%s: the journal ends in phase %s; the index says that %d are unsettled", of.path(), acc.state.Phase, page.Unsettled)
	}
	for _, n := range acc.attempts {
		a.attempts = append(a.attempts, n)
	}
	acc.submissions(ctx, addr)
	acc.effects()
	acc.vars()
	if a.also != nil {
		a.also(acc, page)
	}
}

// whole reads a journal from its beginning to its end.
func (a *audit) whole(ctx context.Context, addr store.Address) (store.Page, error) {
	page, err := a.db.Read(ctx, addr, -1, 0)
	for err == nil && len(page.Batches) > 0 && page.Batches[len(page.Batches)-1].Last() < page.Head {
		var more store.Page
		if more, err = a.db.Read(ctx, addr, page.Batches[len(page.Batches)-1].Last(), 0); len(more.Batches) == 0 {
			break
		}
		page.Instance, page.Batches = more.Instance, append(page.Batches, more.Batches...)
	}
	return page, err
}

func (a *account) record(offset int64, r journal.Record) {
	switch r := r.(type) {
	case *journal.Admitted:
		a.order = append(a.order, r.Submission)
		a.admitted[r.Submission] = offset
	case *journal.Abort:
		a.aborts = append(a.aborts, offset)
	case *journal.Attempt:
		a.attempts[r.Submission] = r.Ordinal
		if phase, ok := strings.CutPrefix(r.Reason, "recovered in phase "); ok {
			a.phases[phase]++
			if a.falling {
				a.between++
			}
		}
	case *journal.Entry:
		if r.Purpose == journal.Input {
			a.shown = append(a.shown, r.Submission)
		}
	case *journal.TurnStarted:
		a.turns = append(a.turns, offset)
		if a.left[r.Response] == r.Provider+"/"+r.Model {
			a.complain("%s: turn %s went back to %s, which its response had left", a.of.path(), r.Turn, a.left[r.Response])
		}
	case *journal.Fallback:
		a.fell++
		a.left[r.Response] = r.From
	case *journal.TurnDone:
		if r.Stop == journal.StopError && (r.Provider != "shaky" || r.Error.Class != "overload") {
			a.complain("%s: turn %s failed: %+v", a.of.path(), r.Turn, r.Error)
		}
		if r.Stop != journal.StopAborted {
			a.falling = r.Stop == journal.StopError
		}
		for _, b := range r.Blocks {
			if b.Kind == journal.ToolCall {
				a.calls[b.Call] = true
			}
		}
	case *journal.Outcome:
		a.outcomes = append(a.outcomes, r)
	case *journal.Settled:
		a.falling = false
		a.settled[r.Submission] = append(a.settled[r.Submission], settlement{offset, r.Outcome})
	}
}

// submissions checks that what was accepted, and nothing else, was put to the
// model in order and settled once, as the index says too.
func (a *account) submissions(ctx context.Context, addr store.Address) {
	if len(a.admitted) != len(a.of.sends) || len(a.aborts) < a.of.aborted {
		a.complain("%s: %d messages were sent and %d aborts acknowledged; the journal has %d and %d",
			a.of.path(), len(a.of.sends), a.of.aborted, len(a.admitted), len(a.aborts))
	}
	for _, s := range a.of.sends {
		id := s.admitted.SubmissionID
		at, ends := a.admitted[id], a.settled[id]
		if len(ends) != 1 || at == 0 {
			a.complain("%s: %s was admitted at %d and has the settlements %+v, want one", a.of.path(), s.token, at, ends)
			continue
		}
		row, err := a.db.Submission(ctx, addr, id)
		if err != nil || row.Outcome != ends[0].outcome || row.SettledAt != ends[0].offset || row.Offset != at {
			a.complain("%s: %s: the index has %+v, %v; the journal %d, %+v", a.of.path(), s.token, row, err, at, ends[0])
		}
		a.aborted(s, at, ends[0])
	}
	aside := func(id string) bool {
		ends := a.settled[id]
		return !slices.Contains(a.shown, id) && len(ends) > 0 && ends[0].outcome == journal.Aborted
	}
	if want := slices.DeleteFunc(slices.Clone(a.order), aside); !slices.Equal(a.shown, want) {
		a.complain("%s: admitted were %q, put to the model %q", a.of.path(), a.order, a.shown)
	}
}

// aborted checks that a submission was aborted only if an abort covers it, and
// that work on one that an abort covers did not go on: the owner may have
// begun one turn before it learned of the abort.
func (a *account) aborted(s *sending, admitted int64, end settlement) {
	i := slices.IndexFunc(a.aborts, func(o int64) bool { return o > admitted && o < end.offset })
	if i < 0 {
		if end.outcome == journal.Aborted {
			a.complain("%s: %s was aborted by nobody", a.of.path(), s.token)
		}
		return
	}
	after := 0
	for _, o := range a.turns {
		if o > a.aborts[i] && o < end.offset {
			after++
		}
	}
	if after > 1 {
		a.complain("%s: %s: %d turns began after it was aborted", a.of.path(), s.token, after)
	}
}

// effects compares the outcomes of calls with what the calls did.
func (a *account) effects() {
	if len(a.outcomes) != len(a.calls) {
		a.complain("%s: %d calls have %d outcomes", a.of.path(), len(a.calls), len(a.outcomes))
	}
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	for _, o := range a.outcomes {
		a.known[o.Call] = true
		a.audit.calls++
		e := a.world.effects[o.Call]
		if e == nil {
			e = &effect{}
		}
		switch {
		case o.Failed:
			a.failed++
		case o.Tool == "pack":
			if o.Content != okText(o.Call) || !a.world.steps.finished(o.Call) {
				a.complain("%s: call %s has the outcome %q, its steps are done: %v", a.of.path(), o.Call, o.Content, a.world.steps.finished(o.Call))
			}
		case len(e.begun) != 1 || len(e.finished) != 1 || o.Content != okText(o.Call):
			a.complain("%s: call %s has the outcome %q and the effect %+v", a.of.path(), o.Call, o.Content, *e)
		}
	}
}

// vars compares the state that calls wrote with the calls that succeeded.
func (a *account) vars() {
	var charges []string
	if raw := a.state.Vars["charges"]; raw != nil {
		if err := json.Unmarshal(raw, &charges); err != nil {
			a.complain("%s: the state is %s: %v", a.of.path(), raw, err)
		}
	}
	var want []string
	for _, o := range a.outcomes {
		if o.Tool == "charge" && !o.Failed {
			want = append(want, o.Call)
		}
	}
	slices.Sort(want)
	if slices.Sort(charges); !slices.Equal(charges, want) {
		a.complain("%s: the state has the charges %q, those that succeeded are %q", a.of.path(), charges, want)
	}
}

// strays reports effects of calls that no journal has.
func (a *audit) strays() {
	a.world.steps.strays(a.known)
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	for call, e := range a.world.effects {
		if !a.known[call] {
			a.complain("call %s had the effect %+v, and no journal has it", call, *e)
		}
	}
}
