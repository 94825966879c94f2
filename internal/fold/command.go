package fold

import "github.com/flue-go/flue/journal"

// Command reports whether the submission asks the runtime for something, not the
// agent. Its message does not become part of the conversation, and it has no
// response: it is settled when what it asks for is done. It takes its turn like
// any other, or is done between two turns of a live response.
func (s *Submission) Command() bool {
	return s.Message.Kind == journal.Signal && s.Message.Type == journal.SignalCompaction
}

// Command returns the command at the head of the queue, or nil.
func (s *State) Command() *Submission {
	if len(s.Queue) == 0 || s.Queue[0].Aborted || !s.Queue[0].Command() {
		return nil
	}
	return s.Queue[0]
}
