package engine

import (
	"errors"
	"fmt"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// The attributes of a message that asks for a compaction, or to undo one.
const (
	CommandDo           = "do"           // CommandCompact or CommandUndo
	CommandInstructions = "instructions" // what is asked of the summary
	CommandCompaction   = "compaction"   // the id of the one to undo

	CommandCompact = "compact"
	CommandUndo    = "undo"
)

// command does what a submission asks the runtime for, and settles it. It is done
// where the conversation is at rest: in its turn, or between two turns of a live
// response. What it does lands in one batch with its settlement, so it is done
// once.
func (d *driver) command(sub *fold.Submission) error {
	if err := d.ensureAttempt(); err != nil || d.attempt == nil {
		return err
	}
	id := sub.Submission
	done, err := d.obey(sub)
	var end *ending
	switch {
	case errors.As(err, &end):
		d.e.cfg.Log.Error("a command failed", "instance", d.slot.addr.String(), "submission", id, "error", end.Error())
		return d.settleCommand(id, journal.Failed, end)
	case err != nil || !done:
		return err
	}
	return d.settleCommand(id, journal.Completed, nil)
}

func (d *driver) settleCommand(id, outcome string, end *ending) error {
	d.current = false
	if d.state.Active.Submission == id {
		return d.settle(outcome, end)
	}
	return d.settleAlone(id, outcome, end)
}

// obey does what a command asks for. It reports false if the attempt has ended.
func (d *driver) obey(sub *fold.Submission) (done bool, err error) {
	switch do := sub.Message.Attributes[CommandDo]; do {
	case CommandCompact:
		return d.compactNow(sub)
	case CommandUndo:
		return true, d.uncompact(sub)
	default:
		return false, operationFailed(d.operation(), fmt.Sprintf("this version of the program cannot %q", do))
	}
}

// compactNow compacts the context because somebody asks for it.
func (d *driver) compactNow(sub *fold.Submission) (done bool, err error) {
	if d.state.Delivery == nil { // nothing was said yet
		return true, nil
	}
	if err := d.render(d.attempt, *d.state.Delivery); err != nil || d.plan == nil {
		return false, err
	}
	settings, m, err := d.model()
	if err != nil {
		return false, operationFailed(d.operation(), err.Error())
	}
	c := compaction{
		reason: journal.CompactionManual, submission: sub.Submission, instructions: sub.Message.Attributes[CommandInstructions],
		settings: settings, budget: budgetOf(settings.Compaction, m.Info),
	}
	var failed *SummaryError
	switch r, err := d.compact(c); {
	case errors.As(err, &failed):
		return false, operationFailed(d.operation(), "nothing was compacted, because no summary could be had: "+failed.Err.Error())
	case err != nil:
		return false, err
	default:
		return r != compactionCut, nil
	}
}

// uncompact undoes the compaction that the command names, if it is the latest in
// effect. What was left out is read from the journal.
func (d *driver) uncompact(sub *fold.Submission) error {
	id := sub.Message.Attributes[CommandCompaction]
	if latest := d.state.Compaction(); latest == nil || latest.ID != id {
		return nil
	}
	if err := d.commit(); err != nil {
		return err
	}
	st, err := fold.ReplayWithout(d.e.batches(d.storeContext(), d.slot.addr, &d.backlog, new(search)), id)
	var damage *fold.DamageError
	switch {
	case errors.As(err, &damage): // found now, and no fault of the command
		return operationFailed(d.operation(), "the journal cannot be read from its start: "+damage.Error())
	case err != nil:
		return fmt.Errorf("reading the journal of %s: %w", d.slot.addr, err)
	}
	d.state = st
	d.forget()
	return d.stage(&journal.Uncompacted{ID: id, Submission: sub.Submission})
}
