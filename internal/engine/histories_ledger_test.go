package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// An account is what a journal says of one submission.
type account struct {
	id, body                   string
	admitted, entered, settled int // places among all records; 0 is nowhere
	admittedAt                 int64
	settledAt                  int64
	at                         time.Time // of the settlement
	outcome, answeredBy        string
	deadline                   time.Time
	advisories, attempts       int
	command                    bool
}

// A ledger goes over a journal and notes what later checks need.
type ledger struct {
	*trial
	addr store.Address
	page page
	pos  int
	st   *fold.State

	accounts []*account
	byID     map[string]*account
	vars     map[string]json.RawMessage
	calls    map[string]*callAccount
	open     []string // calls that have no batch yet
	ended    bool     // the latest batch has ended the turn
	turns    map[string]*turnAccount
	steps    map[string]int
	aborts   []int // places
	abortAt  []time.Time
	resumed  []resumption
	inputs   []int // places of what must be answered
	answers  []int // places of whole answers
	answered time.Time
	closes   []closing
	errors   int               // failed turns in a row
	unrun    map[string]string // a call that was told as not run, by the submission
	attempt  int64
	epoch    int64
}

type callAccount struct {
	outcome   *journal.Outcome
	named     bool
	committed bool
}

type turnAccount struct{ sent map[int]string }

// A resumption is a turn that begins.
type resumption struct {
	at     time.Time
	active []string
}

type closing struct {
	pos  int
	at   time.Time
	last time.Time // when the latest turn ended
	host string
	sums int
}

// check goes over an instance's journal.
func (r *trial) check(addr store.Address) {
	l := &ledger{
		trial: r, addr: addr, st: &fold.State{Head: -1}, byID: make(map[string]*account), vars: make(map[string]json.RawMessage),
		calls: make(map[string]*callAccount), turns: make(map[string]*turnAccount), steps: make(map[string]int),
	}
	for _, p := range r.read(addr) {
		l.page = p
		l.batch()
	}
	l.settlements()
	l.order()
	l.completions()
	l.endings()
	l.state()
	snapshot := shown(nil, nil)
	if snap, err := r.e.Snapshot(context.Background(), addr); err == nil {
		snapshot = shown(snap.Messages, snap.Settlements)
	} else if !errors.Is(err, store.ErrNotFound) {
		panic(err)
	}
	told := r.told(addr)
	// One that comes late sees the same as those who were there.
	late := &follower{addr: addr, trial: r, next: -1, late: r.Merge > 0}
	for late.behind(r.e) && late.read(context.Background()) {
		continue
	}
	late.seen(told, snapshot)
	for _, f := range r.followers {
		if f.addr == addr {
			f.seen(told, snapshot)
		}
	}
}

func (l *ledger) batch() {
	var appended, entered, started, marks []string
	intake, sums := false, 0
	for _, rec := range l.page.Records {
		l.pos++
		switch rec := rec.(type) {
		case *journal.Born, *journal.Admitted, *journal.Abort:
			intake = true
		case *journal.Entry:
			if rec.Purpose == journal.Appended {
				appended = append(appended, rec.Message.Type)
				if len(entered) > 0 && rec.Message.Type != "review" {
					marks = append(marks, rec.Message.Type+":"+l.byID[entered[len(entered)-1]].body)
				}
			}
			if rec.Purpose == journal.Input {
				entered = append(entered, rec.Submission)
			}
		case *journal.Metadata:
			sums++
		case *journal.Seam:
			if rec.Name == journal.SeamStart {
				started = append(started, rec.Submission)
			}
			if rec.Name == journal.SeamClosed {
				l.closes = append(l.closes, closing{l.pos, l.page.At, l.answered, rec.Submission, sums})
				sums = 0
			}
		}
		l.record(rec)
		if err := l.st.Apply(rec); err != nil {
			l.breaks("15: every journal folds", "offset %d of %s: %v", l.page.offset, l.addr, err)
		}
	}
	l.st.Advance(l.page.offset)
	if sums > 0 {
		l.breaks("74: metadata lands with the seam that attaches it", "%d without it at offset %d", sums, l.page.offset)
	}
	if !slices.Equal(entered, started) {
		l.breaks("78: a message and its start are one", "entered %q, started %q", entered, started)
	}
	for _, name := range marks {
		if l.vars[name] == nil {
			l.breaks("68: what a hook wrote lands with its seam", "%s is missing at offset %d", name, l.page.offset)
		}
	}
	for i, typ := range appended {
		if typ == "first" && (i+1 == len(appended) || appended[i+1] != "second") || typ == "second" && (i == 0 || appended[i-1] != "first") {
			l.breaks("71: signals of a start land in the order of declaration", "%q", appended)
		}
	}
	switch {
	case intake != (l.page.epoch == 0):
		l.breaks("9: intake needs no owner, all else has one", "offset %d: epoch %d", l.page.offset, l.page.epoch)
	case !intake && l.page.epoch < l.epoch:
		l.breaks("20: no write of an old owner lands", "offset %d: epoch %d after %d", l.page.offset, l.page.epoch, l.epoch)
	case !intake:
		l.epoch = l.page.epoch
	}
}

func (l *ledger) record(rec journal.Record) {
	switch rec := rec.(type) {
	case *journal.Admitted:
		if l.byID[rec.Submission] != nil {
			l.breaks("2: a message is admitted once", "%s", rec.Submission)
		}
		a := &account{id: rec.Submission, body: rec.Message.Body, admitted: l.pos, admittedAt: l.page.offset, command: rec.Message.Type == journal.SignalCompaction}
		l.accounts, l.byID[a.id] = append(l.accounts, a), a
	case *journal.Abort:
		l.aborts, l.abortAt = append(l.aborts, l.pos), append(l.abortAt, l.page.At)
	case *journal.Attempt:
		a := l.byID[rec.Submission]
		if a.attempts++; a.attempts == 1 {
			a.deadline = time.UnixMilli(rec.Deadline)
		} else if rec.Deadline != 0 || rec.MaxAttempts != 0 {
			l.breaks("40: the budget is stamped once", "%+v", rec)
		}
		l.attempt = l.page.epoch
	case *journal.Entry:
		l.entry(rec)
	case *journal.State:
		l.vars[rec.Name] = json.RawMessage(rec.Value)
	case *journal.Step:
		key := rec.Scope + " " + rec.Name
		if len(rec.Value) > 0 {
			if l.steps[key]++; l.steps[key] > 1 {
				l.breaks("61: a step has at most one value", "%s", key)
			}
		}
	case *journal.TurnStarted:
		l.turn(rec)
	case *journal.TurnDelta:
		l.turns[rec.Turn].sent[rec.Block] += rec.Text
	case *journal.TurnDone:
		l.turnDone(rec)
	case *journal.Outcome:
		c := l.calls[rec.Call]
		if c == nil || c.outcome != nil {
			l.breaks("53: every call has one outcome", "%s", rec.Call)
			return
		}
		c.outcome = rec
		l.outcome(rec, c)
	case *journal.Called:
		for _, call := range rec.Calls {
			if c := l.calls[call]; c == nil || c.named || c.outcome != nil {
				l.breaks("52: a call is named once, before it ends", "%s", call)
			} else {
				c.named = true
			}
		}
	case *journal.ToolBatch:
		l.commit()
	case *journal.Settled:
		a := l.byID[rec.Submission]
		if a == nil || a.settled != 0 {
			l.breaks("27: every message settles once", "%s again: %s", rec.Submission, rec.Outcome)
			return
		}
		if rec.AnsweredBy == rec.Submission {
			l.errors = 0
		}
		if call := l.unrun[rec.Submission]; call != "" && rec.Outcome == journal.Completed {
			l.breaks("59: a call that waits is run unless its response is ended", "%s was not", call)
		}
		a.settled, a.settledAt, a.at, a.outcome, a.answeredBy = l.pos, l.page.offset, l.page.At, rec.Outcome, rec.AnsweredBy
	}
}

// outcome checks that what is told of an interrupted call is so.
func (l *ledger) outcome(rec *journal.Outcome, c *callAccount) {
	l.mu.Lock()
	runs := len(l.ran[rec.Call])
	l.mu.Unlock()
	switch {
	case !c.named && runs > 0:
		l.breaks("52: a call that has run was named", "%s ran %d times", rec.Call, runs)
	case !c.named && strings.HasPrefix(rec.Content, wordsUnknown):
		l.breaks("55: a call that has not begun is not told as unknown", "%s: %s", rec.Call, rec.Content)
	case strings.HasPrefix(rec.Content, wordsNotRun) && (c.named || runs > 0):
		l.breaks("55: a call that may have begun is not told as not run", "%s ran %d times", rec.Call, runs)
	case strings.HasPrefix(rec.Content, wordsNotRun):
		if l.unrun == nil {
			l.unrun = make(map[string]string)
		}
		l.unrun[l.st.Active.Submission] = rec.Call
	}
}

func (l *ledger) entry(rec *journal.Entry) {
	if len(l.open) > 0 {
		l.breaks("58: nothing comes between calls and their batch", "%s of %s", rec.Purpose, rec.Submission)
	}
	switch rec.Purpose {
	case journal.Input:
		a := l.byID[rec.Submission]
		if a.entered != 0 {
			l.breaks("77: a message is put to the model once", "%s", a.body)
		}
		a.entered = l.pos
		l.inputs, l.ended = append(l.inputs, l.pos), false
	case journal.Appended:
		l.inputs, l.ended = append(l.inputs, l.pos), false
	case journal.Advisory:
		l.byID[rec.Submission].advisories++
	}
}

func (l *ledger) turn(rec *journal.TurnStarted) {
	if l.ended {
		l.breaks("57: a batch that ends the turn ends it", "turn %s", rec.Turn)
	}
	if l.attempt != l.page.epoch {
		l.breaks("38: an attempt is counted before it has an effect", "a turn of epoch %d, the latest attempt is of %d", l.page.epoch, l.attempt)
	}
	l.turns[rec.Turn] = &turnAccount{sent: make(map[int]string)}
	if shown := contextForm(l.st); !l.forms[l.addr.ID][shown] {
		l.breaks("49: the context that the journal gives is the one that the model saw", "before turn %s of %s:\n%s", rec.Turn, l.addr, shown)
	}
	re := resumption{at: l.page.At, active: []string{l.st.Active.Submission}}
	for _, sub := range l.st.Joined {
		re.active = append(re.active, sub.Submission)
	}
	l.resumed = append(l.resumed, re)
}

func (l *ledger) turnDone(rec *journal.TurnDone) {
	sent := l.turns[rec.Turn].sent
	for i, b := range rec.Blocks {
		if !strings.HasPrefix(b.Text, sent[i]) || i < len(rec.Sent) && rec.Sent[i] != len(sent[i]) {
			l.breaks("46: deltas join to the text", "%q, and the text %q (%v)", sent[i], b.Text, rec.Sent)
		}
		delete(sent, i)
	}
	if len(sent) > 0 {
		l.breaks("47: what was said is kept", "%v is missing in %+v", sent, rec)
	}
	switch rec.Stop {
	case journal.StopError:
		if l.errors++; l.errors > 4 {
			l.breaks("50: failures in a row are counted across lives", "%d", l.errors)
		}
		return
	case journal.StopAborted:
		return
	}
	l.errors, l.answers, l.answered = 0, append(l.answers, l.pos), l.page.At
	for _, b := range rec.Blocks {
		if b.Kind == journal.ToolCall {
			if l.calls[b.Call] != nil {
				l.breaks("53: a call is asked for once", "%s", b.Call)
			}
			l.calls[b.Call] = &callAccount{}
			l.open = append(l.open, b.Call)
		}
	}
}

func (l *ledger) commit() {
	var writes []journal.VarWrite
	l.ended = true
	for _, id := range l.open {
		c := l.calls[id]
		if c.outcome == nil {
			l.breaks("53: a batch commits with all of its calls", "%s has no outcome", id)
			return
		}
		c.committed = true
		writes = append(writes, c.outcome.Writes...)
		l.ended = l.ended && c.outcome.EndTurn
	}
	slices.SortStableFunc(writes, func(a, b journal.VarWrite) int { return a.Seq - b.Seq })
	for _, w := range writes {
		l.vars[w.Name] = json.RawMessage(w.Value)
	}
	l.open = nil
}

// settlements checks that every message has one outcome, and that the index says
// the same.
func (l *ledger) settlements() {
	if l.st.Unsettled() || l.st.Phase > fold.Idle {
		l.breaks("34: a conversation comes to rest", "%s is in phase %s", l.addr, l.st.Phase)
	}
	for _, m := range l.sent {
		if m.addr != l.addr || m.receipt == nil {
			continue
		}
		if a := l.byID[m.id]; a == nil || a.admittedAt != m.receipt.Offset || a.body != m.body {
			l.breaks("1: what is acknowledged is there", "%s: %+v", m.body, a)
		}
	}
	for _, a := range l.accounts {
		if a.settled == 0 {
			l.breaks("27: every message settles", "%s", a.body)
		}
		got, err := l.e.Submission(context.Background(), l.addr, a.id)
		if err != nil || got.Outcome != a.outcome || got.SettledAt != a.settledAt || got.Offset != a.admittedAt {
			l.breaks("29: the index is what the journal says", "%s: %+v, %v, and the journal %+v", a.body, got, err, a)
		}
	}
}

// order checks that messages begin and settle in the order of their admission.
func (l *ledger) order() {
	entered, settled := 0, int64(0)
	for _, a := range l.accounts {
		if a.command { // it may be done while a message before it is being answered
			continue
		}
		if a.entered != 0 && a.entered < entered {
			l.breaks("31: messages begin in the order of admission", "%s", a.body)
		}
		if a.settledAt < settled {
			l.breaks("30: messages settle in the order of admission", "%s", a.body)
		}
		entered, settled = max(entered, a.entered), a.settledAt
		if a.answeredBy == a.id {
			continue
		}
		host := l.byID[a.answeredBy]
		if host == nil || host.answeredBy != host.id || host.outcome != a.outcome || host.settledAt != a.settledAt || host.settled < a.settled {
			l.breaks("79: what joined settles with its host, before it", "%+v joined %+v", a, host)
		} else if a.entered < host.entered || a.entered > host.settled {
			l.breaks("37: a message is answered by the response that took it", "%+v joined %+v", a, host)
		}
	}
}

// between reports whether a place of the list is after from and before to.
func between(list []int, from, to int) bool {
	return slices.ContainsFunc(list, func(p int) bool { return p > from && p < to })
}

// completions checks what completed implies.
func (l *ledger) completions() {
	for _, a := range l.accounts {
		if a.outcome != journal.Completed || a.command {
			continue
		}
		last := 0
		for _, p := range l.inputs {
			if p < a.settled {
				last = p
			}
		}
		if a.entered == 0 || last < a.entered || !between(l.answers, last, a.settled) {
			l.breaks("32: what is completed has an answer after its last message", "%s: entered %d, last input %d, settled %d, answers %v", a.body, a.entered, last, a.settled, l.answers)
		}
		if a.answeredBy != a.id {
			continue
		}
		i := slices.IndexFunc(l.closes, func(c closing) bool { return c.host == a.id && c.pos < a.settled })
		if i < 0 {
			l.breaks("33: what is completed was closed", "%s", a.body)
			continue
		}
		c := l.closes[i]
		if !l.finishing(c.last, c.at) {
			continue
		}
		if c.sums != 1 {
			l.breaks("33: the hooks of a response's end have run once", "%s has the metadata of %d", a.body, c.sums)
		}
		if !slices.ContainsFunc(l.finished[l.addr.ID], func(t time.Time) bool {
			return !t.Before(c.last.Truncate(time.Millisecond)) && !t.After(c.at.Add(time.Millisecond))
		}) {
			l.breaks("33: the finish hooks have run after the last answer", "%s answered %s closed %s, runs %v", a.body, c.last, c.at, l.finished[l.addr.ID])
		}
	}
}

// finishing reports whether every release between two times had finish hooks.
func (l *ledger) finishing(from, to time.Time) bool {
	for i, life := range l.lives {
		ends := to.Add(time.Hour)
		if i+1 < len(l.lives) {
			ends = l.lives[i+1].from
		}
		if ends.Before(from) || life.from.After(to.Add(time.Millisecond)) { // a batch says only in which it was made
			continue
		}
		if !life.release.Finish {
			return false
		}
	}
	return true
}

// endings checks the outcomes that are not completed.
func (l *ledger) endings() {
	batches, flaky, faults, fails := 0, 0, 0, l.Attempts < 10 || l.uses('s')
	for _, m := range l.sent {
		if say := l.say[m.body]; m.addr == l.addr {
			batches += len(say.Batches)
			flaky += say.Flaky
			fails = fails || say.End == "fatal" || say.End == "hang"
		}
	}
	for _, s := range l.Steps {
		if slices.Contains([]string{"crash", "fail", "restart", "close", "release"}, s.Kind) {
			faults++
		}
	}
	fails = fails || batches >= 8 || flaky > 3 || faults > 8
	for _, a := range l.accounts {
		if a.command {
			if a.advisories > 0 || a.entered > 0 {
				l.breaks("a command is no part of the conversation", "%+v", a)
			}
			continue
		}
		want := 0
		switch a.outcome {
		case journal.Failed:
			if want = a.advisories; want > 1 || !fails {
				l.breaks("35: a message fails for a reason", "%+v", a)
			}
		case journal.Aborted:
			want = 1
			if !between(l.aborts, a.admitted, a.settled) {
				l.breaks("81: an abort covers what was sent before it", "%s was aborted", a.body)
			}
		}
		if a.advisories != want {
			l.breaks("34: what has ended is told once", "%s, %s, is told %d times", a.body, a.outcome, a.advisories)
		}
		slack := 10*time.Second + l.lapses()
		if l.uses('s') { // then closing takes time, too
			slack += time.Duration(len(l.lives)) * 15 * time.Second
		}
		if a.outcome != journal.Completed && a.entered != 0 && a.at.After(l.hostOf(a).deadline.Add(slack)) {
			l.breaks("84: an attempt settles by its deadline and a grace", "%s at %s, the deadline was %s", a.body, a.at, a.deadline)
		}
	}
	for _, ab := range l.trial.aborts {
		if ab.addr == l.addr {
			l.covered(ab)
		}
	}
}

// lapses is for how long at most nothing could be written because the lease had
// lapsed.
func (h history) lapses() (sum time.Duration) {
	for _, s := range h.Steps {
		if s.Kind == "lapse" {
			sum += s.Wait + 10*time.Second
		}
	}
	return sum
}

func (l *ledger) hostOf(a *account) *account { return l.byID[a.answeredBy] }

// covered checks that an acknowledged abort has ended all that was unsettled.
func (l *ledger) covered(ab acknowledged) {
	i := slices.IndexFunc(l.abortAt, func(t time.Time) bool { return !t.Before(ab.at.Truncate(time.Millisecond)) })
	if i < 0 {
		l.breaks("83: an abort that is acknowledged is there", "%s", ab.at)
		return
	}
	pos := l.aborts[i]
	soon := 5*time.Second + l.lapses()
	for _, s := range l.Steps {
		if s.Kind == "fail" { // then the driver waits before it tries again
			soon += 10 * time.Second
		}
	}
	if l.uses('s') { // and then for what does not stop
		soon += time.Duration(len(l.lives)) * 15 * time.Second
	}
	for _, a := range l.accounts {
		if a.admitted > pos || a.settled < pos || a.command {
			continue
		}
		closed := slices.ContainsFunc(l.closes, func(c closing) bool { return c.host == a.answeredBy })
		if a.outcome == journal.Completed && !closed {
			l.breaks("82: an abort ends what is not closed", "%s is %s", a.body, a.outcome)
		}
		if a.outcome != journal.Completed && a.at.After(l.abortAt[i].Add(soon)) {
			l.breaks("82: an abort ends work soon", "%s has ended at %s", a.body, a.at)
		}
		for _, re := range l.resumed {
			if re.at.After(l.abortAt[i].Add(time.Millisecond)) && slices.Contains(re.active, a.id) {
				l.breaks("82: what was aborted is not resumed", "%s has a turn at %s", a.body, re.at)
			}
		}
	}
}

// state checks the persistent state against what the journal says, told by other
// code than the fold's.
func (l *ledger) state() {
	l.balanced("the journal of "+l.addr.ID, l.vars)
	got, _, err := l.e.Vars(context.Background(), l.addr)
	if errors.Is(err, store.ErrNotFound) && len(l.accounts) == 0 {
		return
	}
	if want := string(mustJSON(l.vars)); err != nil || string(mustJSON(got)) != want || string(mustJSON(l.st.Vars)) != want {
		l.breaks("67: the state is what the journal says", "%s, %v, and by the journal %s", mustJSON(got), err, want)
	}
	for name := range l.vars {
		kind, id, _ := strings.Cut(name, ":")
		if kind != "done" && kind != "late" {
			continue
		}
		if c := l.calls[id]; c == nil || !c.committed || c.outcome.DurationMS == nil {
			l.breaks("67: no write of an interrupted call is there", "%s", name)
		}
	}
	for id, c := range l.calls {
		if !c.committed {
			l.breaks("53: every batch is committed", "%s", id)
		} else if c.outcome.DurationMS != nil && !c.outcome.Failed && l.marked[id] && l.vars["done:"+id] == nil {
			l.breaks("68: what a call wrote commits with it", "%s", id)
		}
	}
}
