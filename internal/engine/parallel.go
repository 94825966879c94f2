package engine

import (
	"github.com/flue-go/flue/journal"
)

// ParallelCalls is how many calls of a turn run side by side unless a [Budget]
// says otherwise.
const ParallelCalls = 16

func (b Budget) calls() int { return max(orDefault(b.ParallelCalls, ParallelCalls), 1) }

// advance lets go as many of the calls that wait as there is room for, makes
// durable what is staged, and starts them.
func (b *openBatch) advance() error {
	next, err := b.letGo()
	if err != nil {
		return err
	}
	// The message that asks for the calls, and the record that names those that
	// go now, must be durable before they run.
	if err := b.commit(); err != nil {
		return err
	}
	if err := b.holds(); err != nil {
		return err
	}
	for _, c := range next {
		b.start(c)
	}
	return nil
}

// letGo takes the calls from the queue that may run now, and stages a record that
// names them. Whoever finds the journal without it knows that they have not begun.
func (b *openBatch) letGo() (next []journal.Block, err error) {
	if !b.goesOn() {
		return nil, nil
	}
	n := min(b.most-len(b.running), len(b.queue))
	next, b.queue = b.queue[:n], b.queue[n:]
	called := &journal.Called{Turn: b.turn}
	for _, c := range next {
		if !b.state.Response.MayHaveRun(c.Call) {
			called.Calls = append(called.Calls, c.Call)
			if c.Again && !b.again(c) {
				called.Once = append(called.Once, c.Call)
			}
		}
	}
	if len(called.Calls) == 0 { // they are run again, or the turn is older than the record
		return next, nil
	}
	return next, b.stage(called)
}

// goesOn reports whether there are calls to let go, and a reason to.
func (b *openBatch) goesOn() bool {
	return len(b.queue) > 0 && b.ended() == nil && !b.draining()
}

// end commits the batch when nothing runs any more, as far as all calls have
// come to their end.
func (b *openBatch) end() error {
	if err := b.holds(); err != nil {
		return err
	}
	switch {
	case len(b.lost) > 0, len(b.queue) > 0 && b.ended() != nil:
		return b.abandon()
	case len(b.queue) > 0: // the engine closes: the next process runs them
		return b.giveUp(b.state.Active.Submission)
	}
	return b.stage(&journal.ToolBatch{Turn: b.turn, WorkMS: b.worked()})
}
