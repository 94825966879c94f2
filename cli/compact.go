package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

func (p *program) compactCommand() *cobra.Command {
	k := compaction{program: p}
	c := &cobra.Command{
		Use:   "compact [flags] agent id",
		Short: "Have the older part of a conversation summarized for the model",
		Long: `Have the older part of a conversation summarized for the model now, whatever its
size, or undo the latest such summary with --undo. People see the conversation as
before.

The model that the agent names writes the summary. If a response is under way it
is done before its next model call. On PostgreSQL servers go on, and the one that
owns the conversation does it. A file is for one program: stop the server that has
it open, or let that call Instance.Compact.

A conversation that is too long for its model is summarized again before the next
turn, so change the agent's settings before you undo.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("give the name of an agent and the id of a conversation; inspect lists them")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return k.run(c, store.Address{Agent: args[0], ID: args[1]})
		},
	}
	c.Flags().StringVar(&k.instructions, "instructions", "", "`what` is asked of the summary beside the usual")
	c.Flags().BoolVar(&k.undo, "undo", false, "show the model again what the latest summary stands for")
	return c
}

// A compaction is one use of the command compact.
type compaction struct {
	*program
	instructions string
	undo         bool
}

func (k *compaction) run(c *cobra.Command, addr store.Address) error {
	ctx := c.Context()
	if k.undo && k.instructions != "" {
		return errors.New("--undo writes no summary: leave --instructions out")
	}
	if err := k.setup(c); err != nil {
		return err
	}
	m, err := newModels(&k.app, os.Environ())
	if err != nil {
		return err
	}
	st, err := k.open(ctx)
	if err != nil {
		return err
	}
	defer k.closing("the conversations", st.Close)
	if _, err := st.Instance(ctx, addr); errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("there is no conversation %s of an agent %s; inspect lists those that there are", addr.ID, addr.Agent)
	}
	if err := k.real(ctx, st, m, addr); err != nil {
		return err
	}
	rt, err := k.openRuntime(ctx, st, m, k.runLog(c, addr), nil, flue.HTTPLimits{}, flue.Limits{}, []store.Address{addr})
	if err != nil {
		return err
	}
	defer k.closing("the agents", func() error { return closeRuntime(ctx, rt, runPatience) })
	return k.ask(ctx, rt.Instance(addr.Agent, addr.ID))
}

// real refuses a conversation whose model has no key here, if the demo would stand in
// for it: a script shall not sum a conversation up, nor answer what waits in it.
func (k *compaction) real(ctx context.Context, st keeper, m *models, addr store.Address) error {
	used := ""
	for b, err := range store.Batches(ctx, st, addr, -1) {
		if err != nil {
			return fmt.Errorf("looking for the model of the conversation: %w", err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			continue // who works on it says what is wrong with it
		}
		for _, r := range batch.Records {
			if t, ok := r.(*journal.TurnStarted); ok {
				used = t.Provider + "/" + t.Model
			}
		}
	}
	if variable, ok := m.scripted(used); ok {
		return fmt.Errorf("the model of the conversation is %s, and there is no key for it: set %s", used, variable)
	}
	return nil
}

// open opens conversations that are there. A file is for this program alone.
func (k *compaction) open(ctx context.Context) (keeper, error) {
	if k.place.memory || k.place.shared() {
		return k.openExisting(ctx, false)
	}
	if err := k.exists(); err != nil {
		return nil, err
	}
	st, err := sqlite.Open(ctx, k.place.file, sqlite.Options{})
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("opening the conversations: %w. If that is a server, stop it first, or let it call Instance.Compact", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the conversations: %w", err)
	}
	return st, nil
}

// ask has it done and says what came of it.
func (k *compaction) ask(ctx context.Context, in *flue.Instance) error {
	if k.undo {
		undone, err := in.UndoCompaction(ctx)
		if errors.Is(err, flue.ErrNothingToCompact) {
			return errors.New("there is no summary in effect that could be undone")
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(k.out, "Compaction %s is undone: the model is shown again what its summary stood for.\n", undone.ID)
		return err
	}
	made, err := in.Compact(ctx, flue.CompactOptions{Instructions: k.instructions})
	if errors.Is(err, flue.ErrNothingToCompact) {
		return errors.New("there is nothing to summarize: the conversation is short")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: what was asked is stored, and whoever works on the conversation next may still do it", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(k.out, "Compaction %s is made, by %s: about %s tokens have become %s. Undo it with --undo.\n",
		made.ID, made.Model, thousands(made.TokensBefore), thousands(made.TokensAfter))
	return err
}
