package flue

import (
	"fmt"
	"time"
)

// An Agent is the definition of an agent: a function with a durable name.
type Agent struct {
	// Name is the agent's durable identity: instances are stored under it, so
	// it must stay the same across releases. It has 1 to 64 letters, digits,
	// "-" and "_" and begins with a letter.
	Name string

	// Render is the agent function. It is called before every model call, from
	// any goroutine, and must be a pure read: the same state gives the same
	// answer. It returns the instruction for the model.
	Render func(r *Render) string

	// InitialData, if set, is what the creator of an instance must send along
	// with the first message. A message that would create an instance without
	// matching data is refused. See [UseInitialData].
	InitialData *Schema

	// Durability bounds the work on one submission.
	Durability Durability

	// ParallelCalls is how many tool calls of one turn run side by side. When the
	// model asks for more at once, the others run in their order, each as soon as
	// one before it has ended. 1 runs them one after another. Default 16.
	ParallelCalls int
}

// Durability bounds the work on one submission. The zero value means the
// defaults.
type Durability struct {
	// MaxAttempts is how many tries in a row a submission gets that are
	// interrupted by crashes before they achieve anything: complete a turn, end
	// a tool call, record a step. Default 10. Each waits a little longer than the
	// one before it. Tries that achieve something are bounded to 100 in all.
	MaxAttempts int
	// Timeout is how long a submission may take from its first attempt to its
	// end, whatever happens meanwhile. Default one hour.
	Timeout time.Duration
}

func (d Durability) withDefaults() Durability {
	if d.MaxAttempts == 0 {
		d.MaxAttempts = 10
	}
	if d.Timeout == 0 {
		d.Timeout = time.Hour
	}
	return d
}

// maxAgentName bounds the name of an agent, in bytes.
const maxAgentName = 64

func (a *Agent) validate() error {
	if !validName(a.Name, maxAgentName) {
		return fmt.Errorf("flue: agent name %q: want 1 to %d letters, digits, '-' and '_', beginning with a letter", a.Name, maxAgentName)
	}
	if a.Render == nil {
		return fmt.Errorf("flue: agent %s has no Render function", a.Name)
	}
	if a.Durability.MaxAttempts < 0 || a.Durability.Timeout < 0 {
		return fmt.Errorf("flue: agent %s: its durability has a negative bound; leave it zero for the default", a.Name)
	}
	if a.ParallelCalls < 0 {
		return fmt.Errorf("flue: agent %s: ParallelCalls is %d; leave it zero for the default, or say 1 for one call after another", a.Name, a.ParallelCalls)
	}
	return nil
}

// validName reports whether s begins with a letter and has at most limit
// letters, digits, hyphens and underscores.
func validName(s string, limit int) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '-' || c == '_'):
		default:
			return false
		}
	}
	return s != "" && len(s) <= limit
}
