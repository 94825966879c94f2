package fluetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Report says what came of all runs of a scenario. Print it: its String says
// what to do about each finding.
type Report struct {
	// Agent is the name of the agent.
	Agent string

	// Runs are all runs. The first one is undisturbed.
	Runs []Run

	// Failures are what the agent, or the runtime, does wrong.
	Failures []Failure

	// Repeated are the effects that can happen twice although the agent does
	// nothing wrong: whatever does something outside and takes note of it in
	// another place can die in between. Each needs an idempotency key if twice is
	// bad.
	Repeated []Finding

	// Lost are the effects that were not made at a death, and what the agent knew
	// of it.
	Lost []Finding

	// Told is what the model was told because of a death.
	Told []Finding

	// Tools says what became of the calls of each tool, in all runs with a death.
	Tools map[string]ToolRuns

	steps int
	aside int // findings that a script that is no function may have made
}

// A Run is the scenario, played once.
type Run struct {
	// Deaths are where the process died, in the order of its processes, as
	// [Replay] reads them, such as "3:after,1:before". It is empty for the
	// undisturbed run.
	Deaths string

	// At says for each death what was being written.
	At []string

	// Writes is how many writes each process has asked for.
	Writes []int

	// Story is what happened, one line for each fact. Lines that are about the
	// conversation are indented.
	Story []string

	// Failed reports whether there was a failure in this run.
	Failed bool
}

// A Failure is something that the agent does wrong, with all deaths at which it was
// seen.
type Failure struct {
	Kind Kind
	Finding
}

// A Finding is something that deaths lead to.
type Finding struct {
	// What says what was found.
	What string

	// Advice says what to do about it. It may be empty.
	Advice string

	// Deaths are the runs in which it was found, in the form that [Replay] reads.
	// The shortest come first.
	Deaths []string

	// At says what was being written at the first of the deaths, and what became
	// of it.
	At string
}

// ToolRuns counts what became of the calls of a tool.
type ToolRuns struct {
	Calls   int // that the model has made
	Again   int // were begun by more than one process, as those of durable tools are
	Unknown int // were begun and interrupted: the model was told that the outcome is unknown
	NotRun  int // were never begun
}

// Replay returns the line of code that plays the first death of the finding alone.
func (f Finding) Replay() string {
	if len(f.Deaths) == 0 {
		return `fluetest.Replay(t, scenario, "")`
	}
	return fmt.Sprintf("fluetest.Replay(t, scenario, %q)", f.Deaths[0])
}

// String is the whole report, for people.
func (rep *Report) String() string {
	var b strings.Builder
	deaths, pairs := 0, 0
	for _, r := range rep.Runs {
		switch len(r.At) {
		case 0:
		case 1:
			deaths++
		default:
			pairs++
		}
	}
	writes := 0
	if len(rep.Runs) > 0 && len(rep.Runs[0].Writes) > 0 {
		writes = rep.Runs[0].Writes[0]
	}
	fmt.Fprintf(&b, "%s: %s, %s; died once in %s and twice in %s: %s\n",
		rep.Agent, count(rep.steps, "step"), count(writes, "write"), count(deaths, "run"), count(pairs, "run"), verdict(len(rep.Failures)))
	for _, f := range rep.Failures {
		f.write(&b, "FAILURE, "+string(f.Kind), true)
	}
	if rep.aside > 0 {
		fmt.Fprintf(&b, "\n%s put aside: what is missing may be the script's doing. Mend it first.\n", count(rep.aside, "failure"))
	}
	for _, f := range rep.Repeated {
		f.write(&b, "can happen twice", false)
	}
	for _, f := range rep.Lost {
		f.write(&b, "may not happen", false)
	}
	for _, f := range rep.Told {
		f.write(&b, "the model was told", false)
	}
	rep.writeTools(&b)
	return strings.TrimRight(b.String(), "\n")
}

func verdict(failures int) string {
	if failures == 0 {
		return "no failure"
	}
	return count(failures, "failure")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (f Finding) write(b *strings.Builder, title string, replay bool) {
	fmt.Fprintf(b, "\n%s: %s\n", title, f.What)
	switch {
	case len(f.Deaths) == 0:
	case f.Deaths[0] == "":
		b.WriteString("    when  without any death\n")
	default:
		more := ""
		if n := len(f.Deaths) - 1; n > 0 {
			more = fmt.Sprintf(" (and in %s more)", count(n, "run"))
		}
		fmt.Fprintf(b, "    when  %s, %s%s\n", f.Deaths[0], f.At, more)
	}
	if f.Advice != "" {
		fmt.Fprintf(b, "    do    %s\n", f.Advice)
	}
	if replay {
		fmt.Fprintf(b, "    look  %s\n", f.Replay())
	}
}

func (rep *Report) writeTools(b *strings.Builder) {
	if len(rep.Tools) == 0 {
		return
	}
	width := len("tool")
	for name := range rep.Tools {
		width = max(width, len(name))
	}
	fmt.Fprintf(b, "\n%-*s  calls  run again  outcome unknown  not run\n", width, "tool")
	for _, name := range slices.Sorted(maps.Keys(rep.Tools)) {
		t := rep.Tools[name]
		fmt.Fprintf(b, "%-*s  %5d  %9d  %15d  %7d\n", width, name, t.Calls, t.Again, t.Unknown, t.NotRun)
	}
}
