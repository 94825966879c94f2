package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/store"
)

func (p *program) runCommand() *cobra.Command {
	r := run{program: p}
	c := &cobra.Command{
		Use:   "run [flags] [message...]",
		Short: "Send one message to an agent and print the reply",
		Long: `Send one message to an agent and print the reply.

The reply goes to standard output; what the agent does on the way goes to
standard error. The message is the text of -m, or the arguments, or standard
input if it is "-". The conversation is kept: go on with it by giving its --id.

If the program is killed while the agent works, nothing is lost: the next
command takes the work up again. With --id and without a message, run waits for
the unfinished work of that conversation and prints its reply. Ctrl-C aborts the
work of the conversation for good.

The exit code is 0 if the agent replied, 1 if it could not, and 130 if the work
was aborted.`,
		Example: p.examples(),
		RunE: func(c *cobra.Command, args []string) error {
			return r.finish(asDamageError(r.run(c.Context(), c, args)))
		},
	}
	r.declare(c)
	return c
}

// A run is one use of the command run.
type run struct {
	*program
	runFlags

	// What is known by the end.
	submission string
	uid        string
	reply      *flue.Reply
	scripted   bool
	used       used
}

// run sends the message and waits for what comes of it.
func (r *run) run(ctx context.Context, c *cobra.Command, args []string) error {
	if err := r.setup(c); err != nil {
		return err
	}
	fresh := r.id == ""
	if err := r.choose(c); err != nil {
		return err
	}
	message, err := r.read(ctx, args)
	if err != nil {
		return err
	}
	m, err := newModels(&r.app, os.Environ())
	if err != nil {
		return err
	}
	st, err := r.openStore(ctx, r.runLog(c, store.Address{Agent: r.agent, ID: r.id}), false)
	if err != nil {
		return err
	}
	defer r.closing("the conversations", st.Close)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	addr := store.Address{Agent: r.agent, ID: r.id}
	a := newActivity(r.err, addr, m, func(err error) { cancel(&damageError{err}) })
	defer func() {
		a.tellUsed()
		a.close()
		r.scripted, r.used = a.scripted, a.used
	}()
	open, err := unfinished(ctx, st, addr)
	if err != nil {
		return err
	}
	if n := len(open); n > 0 {
		a.say("resume  %s in this conversation", plural(n, "unfinished message"))
		r.submission = open[n-1]
	} else if message == nil {
		if !fresh {
			return fmt.Errorf("conversation %q has no unfinished message to wait for: give a new one with -m, as arguments, or - to read it from standard input", r.id)
		}
		return errors.New("no message: give one with -m, as arguments, or - to read it from standard input")
	}
	var only []store.Address
	if r.place.shared() { // others look after other conversations, with what they have at hand
		only = []store.Address{addr}
	}
	rt, err := r.openRuntime(ctx, st, m, r.runLog(c, addr), a.observe, flue.HTTPLimits{}, flue.Limits{}, only)
	if err != nil {
		return err
	}
	// Other conversations' work that was taken up is left to the next program.
	defer r.closing("the agents", func() error { return closeRuntime(ctx, rt, runPatience) })
	if fresh {
		if err := r.preflight(rt); err != nil {
			return err
		}
		a.say("id      %s (go on with --id %s)", r.id, r.id)
	}
	return r.converse(ctx, rt.Instance(r.agent, r.id), message, a)
}

// preflight fails if a new conversation would only be told that its model cannot
// be asked. Data may decide about the model, and is not looked at here.
func (r *run) preflight(rt *flue.Runtime) error {
	if r.data != "" {
		return nil
	}
	_, err := rt.Preflight(r.agent)
	return err
}

// runPatience is how long work of other conversations may go on when the reply
// is there.
const runPatience = 2 * time.Second

// runLog is the log of a command that works on one conversation: what the person should know beside the activity.
func (p *program) runLog(c *cobra.Command, own store.Address) *slog.Logger {
	l := p.logging
	if !c.Flags().Changed("log-level") {
		l.level = slog.LevelWarn
	}
	return slog.New(&untold{Handler: l.handler(p.err), own: own.String()})
}

// A damageError says that a journal cannot be continued.
type damageError struct{ err error }

func (e *damageError) Error() string {
	return "the conversation cannot go on: " + e.err.Error() + "; see the commands inspect and repair"
}
func (e *damageError) Unwrap() error { return e.err }

// asDamageError tells what the runtime says of a damaged conversation as the
// activity does: which of the two is first is a matter of chance.
func asDamageError(err error) error {
	var refused *flue.Error
	if errors.As(err, &refused) && refused.Code == flue.CodeDamaged {
		return &damageError{errors.Unwrap(refused)}
	}
	return err
}

// converse sends the message, if there is one, and waits for the reply.
func (r *run) converse(ctx context.Context, inst *flue.Instance, message *flue.Message, a *activity) (err error) {
	if message != nil {
		if err := r.send(ctx, inst, *message, a); err != nil {
			return err
		}
	}
	r.reply, err = inst.Read(ctx, r.submission)
	if err != nil && ctx.Err() != nil {
		r.reply, err = r.stop(ctx, inst, a)
	}
	return err
}

// sendPatience bounds the time that accepting a message may take.
const sendPatience = 30 * time.Second

// send delivers the message. It is not cut short by an interrupt, so that it is
// known what there is to abort.
func (r *run) send(ctx context.Context, inst *flue.Instance, message flue.Message, a *activity) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendPatience)
	defer cancel()
	receipt, err := inst.Dispatch(ctx, message, r.options)
	if err != nil {
		return err
	}
	r.submission, r.uid = receipt.Submission, receipt.UID
	if receipt.Duplicate {
		a.say("again   the message was sent before under this key")
	}
	return nil
}

// abortPatience bounds the wait for work to stop that was aborted.
const abortPatience = 30 * time.Second

// stop ends the wait for a reply because ctx has ended. Unless the program was
// told to make room for another, it aborts the work.
func (r *run) stop(ctx context.Context, inst *flue.Instance, a *activity) (*flue.Reply, error) {
	cause := context.Cause(ctx)
	var damage *damageError
	switch {
	case errors.As(cause, &damage):
		return nil, cause
	case errors.Is(cause, errTerminated):
		return nil, fmt.Errorf("%w before there was a reply. The work is kept: wait for it with run --agent %s --id %s", cause, r.agent, r.id)
	}
	a.say("abort   all work of this conversation; interrupt again to leave at once")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
	defer cancel()
	if _, err := inst.Abort(ctx); err != nil {
		return nil, &exitError{code: exitAborted, err: fmt.Errorf("aborting: %w", err)}
	}
	reply, err := inst.Read(ctx, r.submission)
	if err != nil && ctx.Err() != nil {
		err = &exitError{code: exitAborted, err: fmt.Errorf("the work has not stopped in %s; it is aborted when the program is started the next time", abortPatience)}
	}
	return reply, err
}

// closing closes something and says so if that fails. What matters has been
// made durable before.
func (p *program) closing(what string, fn func() error) {
	if err := fn(); err != nil {
		fmt.Fprintf(p.err, "%s: closing %s: %v\n", p.app.Name, what, err)
	}
}

func plural(n int, what string, many ...string) string {
	switch {
	case n == 1:
		return "1 " + what
	case len(many) > 0:
		return fmt.Sprintf("%d %s", n, many[0])
	}
	return fmt.Sprintf("%d %ss", n, what)
}
