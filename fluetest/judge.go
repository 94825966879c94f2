package fluetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
)

// A Kind says what sort of failure a [Failure] is.
type Kind string

// The kinds of failure.
const (
	// Unplayable means that no runtime opens with the agent, such as for its name.
	Unplayable Kind = "does not open"
	// Nondeterministic means that the script has answered one conversation in two
	// ways, so that nothing can be said of what was lost in these runs.
	Nondeterministic Kind = "the script is not a function"
	// Twice means that an effect has happened more often than the agent may leave
	// it to a crash.
	Twice Kind = "happened twice"
	// LostSilently means that an effect is missing, or a tool was not run, and the
	// model was not told of anything.
	LostSilently Kind = "lost silently"
	// Unanswered means that a message has no answer which had one undisturbed.
	Unanswered Kind = "unanswered"
	// Misanswered means that a message has another answer than undisturbed, though
	// the model was told of no interruption and the tools have said the same.
	Misanswered Kind = "answered differently"
	// Unfinished means that a message was not settled, settled twice, or did not
	// complete.
	Unfinished Kind = "unfinished"
	// Malformed means that a request to the model was one that providers refuse.
	Malformed Kind = "malformed request"
	// Outlived means that code of the agent ran on after its context had ended.
	Outlived Kind = "outlived its call"
	// Impure means that the agent function did something outside.
	Impure Kind = "the agent function acts"
	// Stuck means that a message which came after everything was not answered.
	Stuck Kind = "stuck"
	// Unchecked means that Scenario.Check did not like what has come of a run.
	Unchecked Kind = "check failed"
)

const (
	adviceEngine     = "this is for the runtime to get right, not for the agent: please report it"
	adviceUnfinished = "look at the story of the replay: what fails, and does it fail because a new process has begun?"
	adviceUnanswered = "the replay shows what the model was told before: it, or the script, has then ended without a word"
	adviceMisanswer  = "what does the model go by that a new process does not have? Keep it in the persistent state, not in memory"
	adviceStep       = "do it in a step of flue.Do, and pass flue.CallKey and the step's name on as an idempotency key: the code outside of steps runs again"
	adviceDo         = "the process can die between the end of a step and its record: pass flue.CallKey and the step's name on as an idempotency key (EffectWithKey), or use flue.DoOnce"
	adviceHook       = "all hooks of a message run again when the process dies before they have landed: do it in a step of AgentStart.Step, with an idempotency key"
	adviceFinish     = "finish hooks run again when the process dies before they have landed: pass on an idempotency key that is made of the instance and what the effect is about"
	adviceOrdinary   = "a call of an ordinary tool is run once, so its function does it more than once"
	adviceKey        = "its idempotency key is another one when the call runs again: derive it from flue.CallKey or from the arguments, never from time or chance"
	adviceAgain      = "the model was told that the outcome of a call is unknown, and has called again. Give the effect a key that is made of what it is about, such as the order, or make the tool durable"
	adviceLost       = "the model was told, and did not call again. If it must happen, make the tool durable"
	adviceOnce       = "a step of flue.DoOnce is not run again: the tool gets ErrOutcomeUnknown and finds out what has happened"
	adviceSilent     = "nobody was told that it is missing. Is there a note in the state, or in memory, that is written before it is done?"
	adviceOutlived   = "pass the context on to what the code waits for, and return when it ends. A call that was aborted or timed out goes on otherwise, while the model is told that it was stopped"
	adviceRender     = "the agent function is called any number of times: declare there, and act in tools and hooks"
)

// A finding is something that was found in one run.
type finding struct {
	kind   Kind // empty if it is no failure
	list   listName
	text   string
	advice string
}

// A listName says on which list a finding goes that is no failure.
type listName uint8

const (
	listRepeated listName = iota + 1
	listLost
	listTold
)

// A baseline is what the scenario does undisturbed.
type baseline struct {
	replies  []*flue.Reply
	left     []bool
	words    []word
	course   string
	groups   map[group][]effect
	totals   map[string]int
	perGroup map[where]int // the most effects of one call
	attempts map[where]int // the same with those that a key has absorbed
	answers  bool
}

// A where is an effect and the code that makes it.
type where struct {
	what string
	at   place
}

// A group are effects of the same kind that one call, or all runs of a hook, have
// made.
type group struct {
	where
	call string
}

// learn makes a baseline of the undisturbed run.
func (r *run) learn() *baseline {
	b := &baseline{
		replies: r.replies, left: r.left, words: r.told(), course: r.course(), groups: grouped(r.outside.all()),
		totals: totals(r.outside.all()), perGroup: make(map[where]int), attempts: make(map[where]int), answers: r.answers,
	}
	for g, effects := range b.groups {
		b.perGroup[g.where] = max(b.perGroup[g.where], happened(effects))
		b.attempts[g.where] = max(b.attempts[g.where], len(effects))
	}
	return b
}

func grouped(effects []effect) map[group][]effect {
	out := make(map[group][]effect)
	for _, e := range effects {
		g := group{where{e.what, e.at}, e.call}
		out[g] = append(out[g], e)
	}
	return out
}

// totals says how often each effect has happened, whoever made it.
func totals(effects []effect) map[string]int {
	out := make(map[string]int)
	for _, e := range effects {
		if !e.absorbed {
			out[e.what]++
		}
	}
	return out
}

func happened(effects []effect) int {
	n := 0
	for _, e := range effects {
		if !e.absorbed {
			n++
		}
	}
	return n
}

// deathsDied is how many of the planned deaths came to pass.
func (r *run) deathsDied() int {
	n := 0
	for _, l := range r.lives {
		if l.death != "" {
			n++
		}
	}
	return n
}

// judge holds a run to what was promised.
func (r *run) judge(b *baseline) {
	r.judgePurity()
	if !r.ended {
		return
	}
	interrupted := r.judgeWords(b)
	r.judgeAnswers(b, interrupted)
	r.judgeJournal(interrupted)
	repeated := r.judgeRepeats(b, interrupted)
	r.judgeTotals(b, interrupted, repeated)
	if b.answers && !r.answers {
		r.find(finding{kind: Stuck, text: "a message that is sent after everything is not answered", advice: adviceUnfinished})
	}
	r.check()
}

// judgePurity looks for effects of the agent function.
func (r *run) judgePurity() {
	for _, e := range r.outside.all() {
		if e.at.unit == inRender {
			r.find(finding{kind: Impure, text: fmt.Sprintf("%q in the agent function", e.what), advice: adviceRender})
		}
	}
}

// judgeWords reports what the model was told that it is not told undisturbed, and
// whether that was anything.
func (r *run) judgeWords(b *baseline) bool {
	interrupted := false
	for _, w := range r.told() {
		if slices.Contains(b.words, w) {
			continue
		}
		interrupted = true
		r.find(finding{list: listTold, text: w.String()})
	}
	return interrupted
}

// judgeAnswers looks for answers that are missing, and for those that are wrong.
func (r *run) judgeAnswers(b *baseline, interrupted bool) {
	same := !interrupted && r.course() == b.course
	for i, reply := range r.replies {
		before := b.replies[i]
		if before == nil || before.Text == "" || r.left[i] {
			continue
		}
		switch {
		case reply == nil || reply.Text == "":
			r.find(finding{kind: Unanswered, text: r.steps[i].name + " is settled without an answer", advice: adviceUnanswered})
		case same && reply.Text != before.Text:
			text := fmt.Sprintf("%s is answered %q, and undisturbed %q", r.steps[i].name, clip(reply.Text, 60), clip(before.Text, 60))
			r.find(finding{kind: Misanswered, text: text, advice: adviceMisanswer})
		}
	}
}

// course is what has led to the answers, whatever was interrupted on the way: which
// messages the model has had before which turn, and what the tools have said, which may
// depend on time or chance. Where two runs have the same, they have the same answers.
func (r *run) course() string {
	var b strings.Builder
	place := make(map[string]int)
	for _, rec := range r.records {
		switch rec := rec.(type) {
		case *journal.Admitted:
			place[rec.Submission] = len(place)
		case *journal.Entry:
			if rec.Purpose == journal.Input {
				fmt.Fprintf(&b, "message %d\n", place[rec.Submission])
			}
		case *journal.TurnDone:
			if rec.Stop != journal.StopAborted {
				b.WriteString("turn\n")
			}
		case *journal.Settled:
			fmt.Fprintf(&b, "%d by %d\n", place[rec.Submission], place[rec.AnsweredBy])
		case *journal.Outcome:
			fmt.Fprintf(&b, "%s: %q\n", rec.Tool, rec.Content)
		}
	}
	return b.String()
}

// judgeJournal holds the settlements and the calls to what was promised.
func (r *run) judgeJournal(interrupted bool) {
	ends := make(map[string][]string)
	for _, rec := range r.records {
		if s, ok := rec.(*journal.Settled); ok {
			ends[s.Submission] = append(ends[s.Submission], s.Outcome)
		}
	}
	for _, rec := range r.records {
		a, ok := rec.(*journal.Admitted)
		if !ok {
			continue
		}
		switch end := ends[a.Submission]; {
		case len(end) != 1:
			r.find(finding{kind: Unfinished, text: fmt.Sprintf("%s is settled %d times", quoted(a.Message), len(end)), advice: adviceEngine})
		case end[0] != journal.Completed:
			text := quoted(a.Message) + " " + end[0]
			if cause := r.causes[a.Submission]; cause != nil {
				text += ": " + cause.Error()
			}
			r.find(finding{kind: Unfinished, text: text, advice: adviceUnfinished})
		}
	}
	if interrupted {
		return
	}
	for tool, t := range r.toolRuns() {
		if t.NotRun > 0 {
			r.find(finding{kind: LostSilently, text: fmt.Sprintf("%s of %s not run", count(t.NotRun, "call"), tool), advice: adviceEngine})
		}
	}
}

// judgeRepeats looks for effects that one call or hook has made too often. It
// returns those that it has spoken of.
func (r *run) judgeRepeats(b *baseline, interrupted bool) map[string]bool {
	spoken := make(map[string]bool)
	groups := grouped(r.outside.all())
	for _, g := range slices.SortedFunc(maps.Keys(groups), byText) {
		if g.at.unit == inRender {
			spoken[g.what] = true
			continue
		}
		f, ok := r.repeats(b, g, groups[g], interrupted)
		if ok {
			spoken[g.what] = true
			r.find(f)
		}
	}
	return spoken
}

func byText(x, y group) int {
	return cmp.Or(cmp.Compare(x.what, y.what), cmp.Compare(x.at.String(), y.at.String()), cmp.Compare(x.call, y.call))
}

// repeats judges the effects of one group.
func (r *run) repeats(b *baseline, g group, effects []effect, interrupted bool) (finding, bool) {
	deaths := r.deathsDied()
	usual, usualAttempts := max(b.perGroup[g.where], 1), max(b.attempts[g.where], 1)
	n, attempts := happened(effects), len(effects)
	f := finding{kind: Twice, text: fmt.Sprintf("%q in %s", g.what, g.at)}
	switch {
	case n <= usual && attempts <= usualAttempts*(1+deaths):
		return finding{}, false
	case n <= usual:
		f.text += fmt.Sprintf(" was tried %d times", attempts)
		f.advice = adviceOrdinary
	case slices.ContainsFunc(effects, func(e effect) bool { return e.key != "" }):
		f.advice = adviceKey
	case g.at.unit == inOrdinary && g.call != "":
		f.advice = adviceOrdinary
	case g.at.step == doOnceStep:
		f.advice = adviceOnce
	case g.at.mayRepeat() && n <= usual*(1+deaths):
		f.kind, f.list, f.advice = "", listRepeated, adviceDo
	case g.at.step == doStep:
		f.advice = adviceDo
	case g.at.unit == inDurable:
		f.advice = adviceStep
	case g.at.hook == "UseAgentStart":
		f.advice = adviceHook
	case g.at.unit == inHook:
		f.advice = adviceFinish
		if interrupted { // the response has taken another way, perhaps with more rounds
			f.kind, f.list = "", listRepeated
		}
	default:
		f.kind, f.list, f.advice = "", listRepeated, adviceAgain
	}
	return f, true
}

// judgeTotals compares how often each effect has happened with the undisturbed
// run.
func (r *run) judgeTotals(b *baseline, interrupted bool, spoken map[string]bool) {
	got := totals(r.outside.all())
	for _, what := range slices.Sorted(maps.Keys(got)) {
		if got[what] > b.totals[what] && !spoken[what] {
			text := fmt.Sprintf("%q in %s, by one call more", what, placesOf(r.outside.all(), what))
			r.find(finding{list: listRepeated, text: text, advice: adviceAgain})
		}
	}
	for _, what := range slices.Sorted(maps.Keys(b.totals)) {
		if got[what] >= b.totals[what] {
			continue
		}
		var all []effect
		for _, effects := range b.groups {
			all = append(all, effects...)
		}
		f := finding{list: listLost, text: fmt.Sprintf("%q in %s", what, placesOf(all, what)), advice: adviceLost}
		once := slices.ContainsFunc(all, func(e effect) bool { return e.what == what && e.at.step == doOnceStep })
		switch {
		case once:
			f.advice = adviceOnce
		case !interrupted:
			f.kind, f.advice = LostSilently, adviceSilent
		}
		r.find(f)
	}
}

// placesOf says in which code an effect is made.
func placesOf(effects []effect, what string) string {
	var places []string
	for _, e := range effects {
		if e.what == what && !slices.Contains(places, e.at.String()) {
			places = append(places, e.at.String())
		}
	}
	slices.Sort(places)
	return strings.Join(places, " and ")
}

// check asks the author.
func (r *run) check() {
	if r.scenario.Check == nil {
		return
	}
	o := &Outcome{World: &World{r.lives[len(r.lives)-1], r.outside}, Replies: r.replies, Effects: totals(r.outside.all()), Conversation: r.snapshot, Deaths: r.deaths}
	if err := r.scenario.Check(o); err != nil {
		r.find(finding{kind: Unchecked, text: err.Error()})
	}
}

// toolRuns says for each tool what became of its calls.
func (r *run) toolRuns() map[string]ToolRuns {
	began := make(map[string]int)
	for _, l := range r.lives {
		for call := range l.began {
			began[call]++
		}
	}
	out := make(map[string]ToolRuns)
	outcomes := make(map[string]*journal.Outcome)
	for _, rec := range r.records {
		if o, ok := rec.(*journal.Outcome); ok {
			outcomes[o.Call] = o
		}
	}
	for _, rec := range r.records {
		turn, ok := rec.(*journal.TurnDone)
		if !ok || turn.Stop == journal.StopAborted {
			continue
		}
		for _, b := range turn.Blocks {
			if b.Kind != journal.ToolCall {
				continue
			}
			t := out[b.Name]
			t.Calls++
			switch n := began[b.Call]; {
			case n == 0:
				t.NotRun++
			case n > 1:
				t.Again++
			}
			if o := outcomes[b.Call]; o != nil && o.Failed && o.DurationMS == nil && began[b.Call] > 0 {
				t.Unknown++
			}
			out[b.Name] = t
		}
	}
	return out
}
