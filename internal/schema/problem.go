package schema

import (
	"fmt"
	"strings"
)

const (
	// MaxProblems is how many problems a ValidationError lists.
	MaxProblems = 10

	maxMessage = 600 // bytes of a message
)

// A Problem is one thing that is wrong with a document.
type Problem struct {
	Path    string // where, such as orders[2].id; empty for the document itself
	Message string // what was expected
	Got     string // what came instead, shortened; empty when nothing came
}

// String says all of it in one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(p.Path)
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	if p.Got != "" {
		b.WriteString(", got ")
		b.WriteString(p.Got)
	}
	return b.String()
}

// A ValidationError says what is wrong with a document that is valid JSON. Its
// text is meant for whoever wrote the document, be it a model or a client, and
// is bounded in size; it quotes parts of the document.
type ValidationError struct {
	Problems []Problem // at most MaxProblems
	More     int       // problems that are not listed
}

// Error lists the problems, one a line.
func (e *ValidationError) Error() string {
	if len(e.Problems) == 1 && e.More == 0 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems:", len(e.Problems)+e.More)
	for _, p := range e.Problems {
		b.WriteString("\n- ")
		b.WriteString(p.String())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n- and %d more", e.More)
	}
	return b.String()
}

// add adds problems, of each place only if none is known of it, and as long as
// there is room.
func (e *ValidationError) add(problems []Problem, more int) {
	known := map[string]bool{}
	for _, p := range e.Problems {
		known[p.Path] = true
	}
	for _, p := range problems {
		switch {
		case known[p.Path]:
		case len(e.Problems) < MaxProblems:
			e.Problems = append(e.Problems, p)
		default:
			more++
		}
	}
	if e.More == 0 { // else what is not listed may be the same
		e.More = more
	}
}

// report collects problems. A nil one ignores them, and its places are nil,
// so that a check which only asks yes or no allocates nothing.
type report struct {
	*budget  // of the check that reports
	problems []Problem
	total    int
	seen     map[Problem]bool
}

// problemCost is what it costs to put a problem into words, next to a step of
// a check. Alternatives that are tried and not reported pay it as well.
const problemCost = 1000

func (r *report) member(at *place, key string) *place {
	if r == nil {
		return nil
	}
	return at.member(key)
}

func (r *report) element(at *place, i int) *place {
	if r == nil {
		return nil
	}
	return at.element(i)
}

func (r *report) add(at *place, got *value, format string, args ...any) {
	switch {
	case r == nil:
	case len(r.problems) >= MaxProblems:
		r.total++
	case r.spend(problemCost):
		r.put(Problem{Path: at.String(), Message: clip(fmt.Sprintf(format, args...), maxMessage), Got: showGot(got)})
	}
}

func (r *report) put(p Problem) {
	if len(r.problems) >= MaxProblems {
		r.total++
		return
	}
	if r.seen[p] {
		return // two parts of the schema may object to the same thing
	}
	if r.seen == nil {
		r.seen = map[Problem]bool{}
	}
	r.seen[p] = true
	r.total++
	r.problems = append(r.problems, p)
}

func (r *report) merge(other *report) {
	for _, p := range other.problems {
		r.put(p)
	}
	r.total += other.total - len(other.problems)
}

func (r *report) err() error {
	return &ValidationError{Problems: r.problems, More: r.total - len(r.problems)}
}

// problem returns a ValidationError with a single problem.
func problem(path, message, got string) *ValidationError {
	return &ValidationError{Problems: []Problem{{Path: path, Message: clip(message, maxMessage), Got: got}}}
}
