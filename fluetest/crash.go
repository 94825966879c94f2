package fluetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/store/memstore"
)

// Crash plays the scenario undisturbed, then once for each write and mode with the
// death of the process there, then with samples of two deaths. It fails the test if
// there is a failure, unless the scenario says otherwise, and logs the report if
// there is none.
//
// It must not be called within a bubble of testing/synctest.
func Crash(t *testing.T, scenario Scenario) *Report {
	t.Helper()
	k := newKit(t, scenario)
	if k.learn() {
		k.everywhere()
	}
	return k.conclude()
}

// Replay plays the scenario undisturbed and then once with the deaths, which are
// written as in the report: "3:after", or "3:after,1:before" for two. It logs the
// story of the run, and otherwise is like [Crash].
func Replay(t *testing.T, scenario Scenario, deaths string) *Report {
	t.Helper()
	planned, err := parsePath(deaths)
	if err != nil {
		t.Fatalf("fluetest: Replay: %v", err)
	}
	k := newKit(t, scenario)
	if k.learn() && len(planned) > 0 {
		k.play(planned)
	}
	rep := k.conclude()
	last := rep.Runs[len(rep.Runs)-1]
	if n := len(last.At); n < len(planned) {
		t.Logf("death %s did not come to pass: the process made only %s", planned[n], count(last.Writes[n], "write"))
	}
	t.Logf("the story of this run:\n%s", strings.Join(last.Story, "\n"))
	return rep
}

// A kit plays a scenario many times.
type kit struct {
	t         *testing.T
	scenario  Scenario
	mind      *mind
	providers []string
	base      *baseline
	runs      []*run
}

func newKit(t *testing.T, scenario Scenario) *kit {
	t.Helper()
	if scenario.Agent == nil || len(scenario.Messages)+len(scenario.Steps) == 0 {
		t.Fatal("fluetest: a scenario needs an Agent and at least one message or step")
	}
	if scenario.Modes == nil {
		scenario.Modes = allModes
	}
	if scenario.Pairs == 0 {
		scenario.Pairs = 20
	}
	return &kit{t: t, scenario: scenario, mind: &mind{reply: scenario.Model, answers: make(map[[32]byte]string)}}
}

// learn plays the scenario undisturbed. It reports false if that does not work.
func (k *kit) learn() bool {
	r := k.run(nil)
	k.base = r.learn()
	r.judge(k.base)
	k.runs = []*run{r}
	return r.ended
}

// run plays the scenario once.
func (k *kit) run(deaths []Death) *run {
	k.t.Helper()
	for {
		r := k.newRun(deaths)
		if r.stuck = k.stuck(r.play); r.stuck && !r.outlives() {
			r.find(finding{kind: Outlived, text: "a goroutine that the agent has begun never ends", advice: adviceOutlived})
		}
		if r.missing == "" || slices.Contains(k.providers, r.missing) {
			return r
		}
		// Nobody but the agent knows which models it names. Now we do.
		k.providers = append(k.providers, r.missing)
	}
}

func (k *kit) newRun(deaths []Death) *run {
	steps := k.scenario.steps()
	r := &run{
		scenario: &k.scenario, steps: steps, mind: k.mind, deaths: deaths, providers: k.providers,
		outside: newOutside(), calls: &calls{tools: make(map[string]string)}, store: memstore.New(),
		causes: make(map[string]error), replies: make([]*flue.Reply, len(steps)), left: make([]bool, len(steps)),
	}
	for i := range steps {
		r.parts = append(r.parts, &part{n: i, initial: k.scenario.InitialData})
	}
	return r
}

// stuck calls f where nothing really waits. It reports whether f has left a
// goroutine behind that never ends.
func (k *kit) stuck(f func()) (stuck bool) {
	k.t.Helper()
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if stuck = strings.Contains(fmt.Sprint(p), "deadlock"); !stuck {
			panic(p)
		}
	}()
	synctest.Test(k.t, func(*testing.T) { f() })
	return false
}

// play plays the scenario with deaths, and judges it.
func (k *kit) play(deaths []Death) *run {
	r := k.run(deaths)
	r.judge(k.base)
	k.runs = append(k.runs, r)
	return r
}

// everywhere plays all single deaths and a sample of double ones.
func (k *kit) everywhere() {
	var died []*run
	for n := 1; ; n++ {
		came := false
		for _, mode := range k.scenario.Modes {
			r := k.play([]Death{{n, mode}})
			if r.deathsDied() == 1 {
				came = true
				died = append(died, r)
			}
			if r.stuck { // more runs would only leave more goroutines behind
				return
			}
		}
		if !came { // there is no n-th write
			break
		}
	}
	k.pairs(died)
}

// pairs plays a sample of double deaths.
func (k *kit) pairs(died []*run) {
	rng := rand.New(rand.NewPCG(1, 2)) // the same sample every time
	for range k.scenario.Pairs {
		if len(died) == 0 {
			return
		}
		first := died[rng.IntN(len(died))]
		writes := first.lives[1].tape.Calls().Total()
		if writes == 0 {
			continue
		}
		second := Death{1 + rng.IntN(writes), k.scenario.Modes[rng.IntN(len(k.scenario.Modes))]}
		if k.play([]Death{first.deaths[0], second}).stuck {
			return
		}
	}
}

// conclude makes the report and fails the test if there is a failure.
func (k *kit) conclude() *Report {
	k.t.Helper()
	rep := k.report()
	switch {
	case len(rep.Failures) > 0 && !k.scenario.ReportOnly:
		k.t.Errorf("%v", rep)
	default:
		k.t.Logf("%v", rep)
	}
	return rep
}

// report gathers what was found in all runs.
func (k *kit) report() *Report {
	rep := &Report{Agent: k.runs[0].agent, Tools: make(map[string]ToolRuns), steps: len(k.runs[0].steps)}
	unsound := false
	for _, r := range k.runs {
		unsound = unsound || slices.ContainsFunc(r.findings, func(f finding) bool { return f.kind == Nondeterministic })
	}
	for _, r := range k.runs {
		run := r.summary()
		rep.Runs = append(rep.Runs, run)
		for _, f := range r.findings {
			rep.add(f, run, unsound)
		}
		if len(run.At) > 0 {
			for tool, t := range r.toolRuns() {
				sum := rep.Tools[tool]
				rep.Tools[tool] = ToolRuns{sum.Calls + t.Calls, sum.Again + t.Again, sum.Unknown + t.Unknown, sum.NotRun + t.NotRun}
			}
		}
	}
	return rep
}

// dependsOnScript reports whether a failure may come of a script that is no
// function of the conversation.
func (k Kind) dependsOnScript() bool {
	return slices.Contains([]Kind{LostSilently, Unanswered, Misanswered, Unfinished, Stuck, Unchecked}, k)
}

func (rep *Report) add(f finding, run Run, unsound bool) {
	found := Finding{What: f.text, Advice: f.advice}
	switch {
	case f.kind != "" && unsound && f.kind.dependsOnScript():
		rep.aside++
	case f.kind != "":
		for i := range rep.Failures {
			if have := &rep.Failures[i]; have.Kind == f.kind && (have.What == f.text || f.kind == Nondeterministic) {
				have.seen(run)
				return
			}
		}
		rep.Failures = append(rep.Failures, Failure{f.kind, found})
		rep.Failures[len(rep.Failures)-1].seen(run)
	case f.list == listRepeated:
		rep.Repeated = seenIn(rep.Repeated, found, run)
	case f.list == listLost:
		rep.Lost = seenIn(rep.Lost, found, run)
	case f.list == listTold:
		rep.Told = seenIn(rep.Told, found, run)
	}
}

func seenIn(list []Finding, f Finding, run Run) []Finding {
	for i := range list {
		if list[i].What == f.What && list[i].Advice == f.Advice {
			list[i].seen(run)
			return list
		}
	}
	f.seen(run)
	return append(list, f)
}

func (f *Finding) seen(run Run) {
	if slices.Contains(f.Deaths, run.Deaths) {
		return
	}
	if len(f.Deaths) == 0 {
		f.At = strings.Join(run.At, ", then ")
	}
	f.Deaths = append(f.Deaths, run.Deaths)
}

// summary is a run as a report keeps it.
func (r *run) summary() Run {
	out := Run{Story: r.story, Failed: slices.ContainsFunc(r.findings, func(f finding) bool { return f.kind != "" })}
	var died []Death
	for _, l := range r.lives {
		if l.probing {
			continue
		}
		out.Writes = append(out.Writes, l.tape.Calls().Total())
		if l.death != "" {
			d := r.deaths[l.n]
			died = append(died, d)
			out.At = append(out.At, fmt.Sprintf("while %s was written: %s", l.death, d.inWords()))
		}
	}
	out.Deaths = path(died)
	return out
}
