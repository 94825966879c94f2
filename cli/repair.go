package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue/store"
)

func (p *program) repairCommand() *cobra.Command {
	r := repair{program: p}
	c := &cobra.Command{
		Use:   "repair [flags] agent id",
		Short: "Let a damaged conversation go on",
		Long: `Let a damaged conversation go on.

It says what is wrong with a conversation that cannot be continued, and what a
repair would do; with --yes it does that. No other program may have the file
open; on PostgreSQL servers go on, and the conversation is taken from the one that
owns it. A conversation that is in order is left alone.

A repair changes and deletes nothing. It appends a record that passes over what
is damaged: a single batch, if the rest is in order without it, or everything
from the damage on. The agent then knows only what lies before; people still see
what can be read. Unfinished messages end as failed, calls that wait for approval are
withdrawn, and the conversation takes the next message. A backup in which the damaged batch can be read may lose less.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("give the name of an agent and the id of a conversation; inspect lists them")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.locate(c); err != nil {
				return err
			}
			return r.run(c.Context(), store.Address{Agent: args[0], ID: args[1]})
		},
	}
	c.Flags().BoolVar(&r.yes, "yes", false, "do it; otherwise it only says what it would do")
	return c
}

// A repair is one use of the command repair.
type repair struct {
	*program
	yes bool
}

func (r *repair) run(ctx context.Context, addr store.Address) error {
	st, err := r.openExisting(ctx, false)
	if err != nil {
		return err
	}
	defer r.closing("the conversations", st.Close)
	if file, ok := st.(interface{ Check(context.Context) error }); ok {
		// What is written to a file of which parts are in disorder may be lost, or
		// make it worse.
		if err := file.Check(ctx); err != nil {
			return fmt.Errorf("%w: the file itself is damaged (%w). Restore it from a backup, or save what can be read with the command .recover of the sqlite3 shell", errNotMendable, err)
		}
	}
	m, err := diagnose(ctx, st, addr, time.Now())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("there is no conversation %s of an agent %s; inspect lists those that there are", addr.ID, addr.Agent)
	case err != nil:
		return fmt.Errorf("conversation %s of %s: %w", addr.ID, addr.Agent, err)
	case m == nil:
		_, err := fmt.Fprintln(r.out, "The journal of this conversation is in order: there is nothing to repair.")
		return err
	}
	m.describe(r.out)
	if r.place.shared() {
		fmt.Fprintln(r.out, "If a process owns the conversation, it is taken from it: work on it that is under way there ends, and what it has done is not recorded.")
	}
	if !r.yes {
		_, err := fmt.Fprintln(r.out, "\nNothing has been changed. Give --yes to do it.")
		return err
	}
	offset, err := mend(ctx, st, m)
	if err != nil {
		return fmt.Errorf("repairing conversation %s of %s: %w", addr.ID, addr.Agent, err)
	}
	_, err = fmt.Fprintf(r.out, "\nIt is done, in batch %d. The conversation can go on.\n", offset)
	return err
}

// describe says what is wrong and what is to be done.
func (m *mending) describe(w io.Writer) {
	say := func(format string, args ...any) { fmt.Fprintln(w, line(fmt.Sprintf(format, args...))) }
	say("The journal of %s has batches 0 to %d and cannot be continued at batch %d:", m.addr, m.head, m.span.From)
	say("  %s", m.damage)
	say("A repair appends one batch and changes nothing else:")
	if m.span.From == m.span.To {
		say("- batch %d is passed over%s", m.span.From, either(m.alone(), "; all that follows is in order without it", ""))
	} else {
		say("- batches %d to %d are passed over: what follows the damage does not stand without it", m.span.From, m.span.To)
	}
	if m.unread > 0 {
		say("- the content of %s that cannot be read is lost: what it was nobody knows", plural(m.unread, "batch", "batches"))
	}
	if m.messages+m.turns+m.results+m.writes > 0 {
		say("- the agent forgets what can be read of the rest: %s, %s of the model, %s of calls, %s to its state, from after %s until %s; people still see it",
			plural(m.messages, "message"), plural(m.turns, "answer"), plural(m.results, "result"), plural(m.writes, "write"), stamp(m.before), stamp(m.until))
	}
	for _, a := range m.held {
		say("- call %s of %s, which waits for approval as far as can be told, is withdrawn", a.ID, a.Tool)
	}
	for _, sub := range m.open {
		say("- message %s, accepted %s, ends as failed", sub.ID, stamp(sub.AcceptedAt))
	}
	if !m.alone() {
		say("A backup in which batch %d can be read has what is lost here.", m.span.From)
	}
}
