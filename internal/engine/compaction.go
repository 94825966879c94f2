package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// relieve compacts the context before a turn if it has come near to the model's
// window, or if the model has refused it as too large. It reports true if the
// turn must be begun anew: the context was compacted, or the attempt has ended.
//
// What it decides is a function of the journal, so a crash changes nothing: before
// the compaction is recorded it is made again, after that it never is.
func (d *driver) relieve(settings journal.Settings, m Model) (again bool, err error) {
	b := budgetOf(settings.Compaction, m.Info)
	resp := &d.state.Response
	switch {
	case d.without == d.behind():
		return false, nil
	case resp.Overflows > 0:
		if resp.Relieved || resp.Unrelieved || d.state.Unsummarized.Overflows >= maxUrgent && d.awaitsSummary() {
			return false, nil
		}
		return d.relieved(d.compact(compaction{reason: journal.CompactionOverflow, submission: d.state.Active.Submission, settings: settings, budget: b}))
	case b.off:
		return false, nil
	case b.window == 0:
		d.e.warnOnce("the context window of a model is not known: conversations with it are only summarized once it has refused them as too large", "model", settings.Model)
		return false, nil
	case d.state.Fresh || d.tokens() <= b.limit() || d.awaitsSummary():
		return false, nil
	case b.limit()-d.fixed() < b.window/8:
		d.e.warnOnce("instructions and tools leave no room for a conversation: it is not summarized before the model refuses it", "model", settings.Model, "agent", d.slot.addr.Agent)
		return false, nil
	}
	return d.relieved(d.compact(compaction{reason: journal.CompactionThreshold, submission: d.state.Active.Submission, settings: settings, budget: b}))
}

// behind is what the next turn comes after.
func (d *driver) behind() string { return d.state.Active.Submission + " " + d.state.Response.Turn }

// relieved is what a turn makes of a compaction. It is begun anew after one that
// has failed, too, since what that took may have used up a budget. It then goes on
// without.
func (d *driver) relieved(r compactionResult, err error) (again bool, _ error) {
	if r == compactionFailed {
		d.without = d.behind()
		return true, nil
	}
	return r != compactionNone, err
}

// maxWarned bounds the warnings that are remembered: an agent may take the name of
// its model from whoever talks to it.
const maxWarned = 1000

// warnOnce logs a warning, once for the life of the engine.
func (e *Engine) warnOnce(text string, args ...any) {
	if e.warnings.Load() >= maxWarned {
		return
	}
	if _, known := e.warned.LoadOrStore(fmt.Sprint(text, args), true); !known {
		e.warnings.Add(1)
		e.cfg.Log.Warn(text, args...)
	}
}

// A compaction is one that is to be made.
type compaction struct {
	reason       journal.CompactionReason
	submission   string // for which, or that asks for it
	instructions string // what is asked of the summary, beside the author's
	settings     journal.Settings
	budget       budget

	before  int // tokens of the next request without it
	room    int // tokens for the conversation after it
	summary int // the most that the summary may have
}

// A compactionResult is what has come of making one.
type compactionResult uint8

const (
	compactionNone   compactionResult = iota // there is nothing to compact
	compactionMade                           // it is staged
	compactionFailed                         // no summary could be had for the error, which is staged, and the conversation can go on without
	compactionCut                            // the attempt has ended
)

// compact makes a compaction and stages it.
func (d *driver) compact(c compaction) (compactionResult, error) {
	c.before = d.tokens()
	d.size(&c)
	cut, ok := d.choose(c)
	if !ok {
		return compactionNone, nil
	}
	texts := transcript(cut.replace)
	if err := d.stage(d.summarizing(c, texts)); err != nil {
		return compactionNone, err
	}
	d.emit(Event{Type: EventCompactionStarted, Submission: c.submission, Reason: string(c.reason), TokensBefore: c.before, MessagesBefore: len(d.state.Context)})
	// What led to it is told before the time that it takes, and that it may cost
	// something is known to whoever comes next.
	if err := d.commit(); err != nil {
		return compactionNone, err
	}
	began := time.Now()
	s, err := d.summarize(c, texts)
	if err != nil {
		return compactionCut, err
	}
	told := Event{
		Type: EventCompacted, Submission: c.submission, Reason: string(c.reason), TokensBefore: c.before, MessagesBefore: len(d.state.Context),
		Took: time.Since(began), Error: s.failure,
	}
	s.tell(&told)
	switch {
	case s.cut:
		told.Error = cmp.Or(d.ended(), errClosing)
		d.emit(told)
		return compactionCut, d.stage(s.record(c))
	case s.failure != nil && (!d.mustDrop(c) || d.mayPass(s)):
		failed, err := d.unsummarized(c, s)
		if err != nil {
			return compactionNone, err
		}
		told.Error = failed
		d.emit(told)
		return compactionFailed, failed
	}
	if s.failure != nil {
		told.Error = d.dropping(c, s)
	}
	d.tellStandIn(s)
	r := d.compacted(c, cut, s)
	r.Before, r.After = c.before, d.fixed()+cut.kept+messageTokens+textTokens(summaryText(r))
	if err := d.stage(r); err != nil {
		return compactionNone, err
	}
	told.TokensAfter, told.MessagesAfter = r.After, len(d.state.Context)
	d.emit(told)
	return compactionMade, nil
}

// size fills in how much room there is.
func (d *driver) size(c *compaction) {
	all, fixed := d.weight+d.fixed(), d.fixed()
	c.room = max(all, defaultReserve)
	if limit := c.budget.limit(); limit > 0 {
		c.room = max(limit-fixed, 0)
	}
	if c.reason == journal.CompactionOverflow { // whatever is known of the window is wrong
		c.room = min(c.room, max(all/2-fixed, d.weight/4))
	}
	c.budget.keep = min(c.budget.keep, c.room/2)
	c.summary = max(min(c.budget.reserve*4/5, c.room/4, mostSummary), leastSummary)
}

// Bounds of a summary, in tokens.
const (
	mostSummary  = 16_000
	leastSummary = 256
)

// mustDrop reports whether the conversation cannot go on without a compaction
// even though no summary can be had.
func (d *driver) mustDrop(c compaction) bool {
	switch c.reason {
	case journal.CompactionManual:
		return false
	case journal.CompactionThreshold: // half of the reserve is left for better times
		return c.before > c.budget.window-c.budget.reserve/2
	}
	return true
}

// A cut says what a compaction leaves of the context, and what it replaces.
type cut struct {
	first   string      // the first item of what stays
	keep    []string    // items before it that stay
	replace []fold.Item // all else, the earlier summary not included
	kept    int         // the weight of what stays
}

// choose decides what stays: the newest groups up to a number of tokens, at least
// one, and of those before them what is being answered, calls that wait, and
// pinned messages, as far as there is room. It reports false if that leaves
// nothing to replace.
func (d *driver) choose(c compaction) (cut, bool) {
	d.extend()
	groups := d.groups()
	n := len(groups) - 1
	if n < 1 {
		return cut{}, false
	}
	var out cut
	out.kept = groups[n].weight
	for n > 0 && out.kept+groups[n-1].weight <= c.budget.keep {
		n--
		out.kept += groups[n].weight
	}
	if n == 0 {
		return cut{}, false
	}
	out.first = d.state.Context[groups[n].from].ID()
	keep := d.kept(groups[:n], c.room/4)
	for i, g := range groups[:n] {
		items := d.state.Context[g.from:g.to]
		switch {
		case items[0].Summary != nil:
		case keep[i]:
			out.keep = append(out.keep, items[0].ID())
			out.kept += g.weight
		default:
			out.replace = append(out.replace, items...)
		}
	}
	return out, len(out.replace) > 0
}

// kept chooses the groups that stay although they are old, the newest first of
// each kind, as long as there is room. It returns their indices. Calls that wait
// always stay: what is decided of them must be about what the model has asked for.
// If they are too large, less of them is sent.
func (d *driver) kept(groups []group, room int) map[int]bool {
	keep := make(map[int]bool)
	for i, g := range groups {
		if d.waits(d.state.Context[g.from]) {
			keep[i] = true
			room -= g.weight
		}
	}
	for _, wanted := range []func(fold.Item) bool{d.beingAnswered, pinned} {
		for i, g := range slices.Backward(groups) {
			if keep[i] || !wanted(d.state.Context[g.from]) {
				continue
			}
			if g.weight > room {
				d.e.cfg.Log.Warn("a message that should stay as it is goes into the summary: there is no room for it", "instance", d.slot.addr.String(), "item", d.state.Context[g.from].ID())
				continue
			}
			keep[i] = true
			room -= g.weight
		}
	}
	return keep
}

func pinned(it fold.Item) bool { return it.Entry != nil && it.Entry.Message.Pinned }

// waits reports whether the item is a turn with a call that waits for somebody.
func (d *driver) waits(it fold.Item) bool {
	return it.Turn != nil && slices.ContainsFunc(it.Turn.Blocks, func(b journal.Block) bool {
		return b.Kind == journal.ToolCall && slices.Contains(d.plan.Waiting, b.Call)
	})
}

// compacted is the record of a compaction.
func (d *driver) compacted(c compaction, cut cut, s *summary) *journal.Compacted {
	r := &journal.Compacted{
		ID: newID("cmp_"), Submission: c.submission, Reason: c.reason, Summary: s.text,
		First: cut.first, Keep: cut.keep, Resources: d.plan.declared(),
		Provider: s.by.Provider, Model: s.by.Model, Usage: s.usage, Guess: s.guess, Calls: s.calls, Cost: s.cost(), AtMost: s.atMost(),
	}
	r.Resources.Baseline = true
	if s.failure != nil {
		r.Summary, r.Dropped = dropped(d.state.Compaction(), len(cut.replace), c.summary), true
		r.Provider, r.Model = "", ""
	}
	return r
}

// dropped is what stands for messages of which no summary could be had.
func dropped(old *journal.Compacted, n, tokens int) string {
	text := fmt.Sprintf("%d earlier messages of this conversation have been left out: they did not fit the context window, and no summary of them could be made. Ask if you need something that was said in them.", n)
	if old != nil {
		text += "\n\nWhat was known of the conversation before them:\n\n" + cutMiddle(old.Summary, tokens, "[%d bytes are left out here.]")
	}
	return text
}
