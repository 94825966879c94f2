package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

func (p *program) inspectCommand() *cobra.Command {
	in := inspection{program: p}
	c := &cobra.Command{
		Use:   "inspect [flags] [agent id | work | nodes]",
		Short: "Show the conversations that are kept, one of them, or who works on what",
		Long: `Show the conversations that are kept, one of them, or who works on what.

Without arguments it lists the conversations. With the name of an agent and the
id of a conversation it shows what that one is doing and what waits in it, or
with --records its journal, one record a line.

"inspect work" lists the conversations with unfinished messages, those first
that wait for longest, and who works on them; with --stuck only those that have
waited for longer than that, or whose owner is dead. "inspect nodes" lists the
processes that share the database.

It only reads, and works beside servers. What people and models have said is not
shown unless --bodies asks for it.

A conversation whose journal cannot be continued is marked as damaged, with the
place and the reason; see the command repair.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 2 || len(args) == 1 && args[0] != viewWork && args[0] != viewNodes {
				return errors.New("give the name of an agent and the id of a conversation, or work, or nodes, or nothing")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.locate(c); err != nil {
				return err
			}
			return in.run(c.Context(), args)
		},
	}
	flags := c.Flags()
	flags.StringVar(&in.agent, "agent", "", "list only conversations of the agent of this `name`")
	flags.DurationVar(&in.stuck, "stuck", 0, "with work: list only what has waited for longer than this `time`, or has a dead owner")
	flags.BoolVar(&in.unsettled, "unsettled", false, "list only conversations with unfinished messages")
	flags.BoolVar(&in.check, "check", false, "read the journal of every conversation that is listed, which finds all that are damaged")
	flags.BoolVar(&in.records, "records", false, "print the journal of one conversation, one record a line")
	flags.BoolVar(&in.bodies, "bodies", false, "with --records: print the content of the records too, which may be private")
	flags.BoolVar(&in.json, "json", false, "print JSON: one object for each conversation or record")
	return c
}

// An inspection is one use of the command inspect.
type inspection struct {
	*program
	agent     string
	unsettled bool
	check     bool
	records   bool
	bodies    bool
	json      bool
	stuck     time.Duration

	st  keeper
	to  *bufio.Writer
	now time.Time
}

// What inspect shows beside conversations. Each is the only argument, so that it
// cannot be the name of an agent.
const (
	viewWork  = "work"
	viewNodes = "nodes"
)

func (in *inspection) run(ctx context.Context, args []string) (err error) {
	view := ""
	if len(args) == 1 {
		view = args[0]
	}
	if err := in.validate(args, view); err != nil {
		return err
	}
	if in.st, err = in.openExisting(ctx, true); err != nil {
		return err
	}
	defer in.closing("the conversations", in.st.Close)
	in.now, in.to = time.Now(), bufio.NewWriter(in.out)
	switch {
	case view == viewWork:
		err = in.work(ctx)
	case view == viewNodes:
		err = in.nodes(ctx)
	case len(args) == 0:
		err = in.list(ctx)
	default:
		err = in.show(ctx, store.Address{Agent: args[0], ID: args[1]})
	}
	return errors.Join(err, in.to.Flush())
}

// validate checks the flags against each other and against what is to be shown.
func (in *inspection) validate(args []string, view string) error {
	switch {
	case in.bodies && !in.records:
		return errors.New("--bodies goes with --records")
	case in.records && len(args) != 2:
		return errors.New("--records needs an agent and an id: it prints the journal of one conversation")
	case len(args) == 2 && (in.agent != "" || in.unsettled || in.check):
		return errors.New("--agent, --unsettled and --check choose what is listed: leave them out for one conversation")
	case view != "" && (in.unsettled || in.check), view == viewNodes && in.agent != "":
		return fmt.Errorf("--unsettled and --check choose which conversations are listed, and --agent which work: leave them out for %s", view)
	case in.stuck != 0 && view != viewWork:
		return errors.New("--stuck goes with work: inspect work --stuck 10m")
	case in.stuck < 0:
		return fmt.Errorf("--stuck %s: give a time that is not negative", in.stuck)
	}
	return nil
}

// show prints one conversation.
func (in *inspection) show(ctx context.Context, addr store.Address) error {
	if _, err := in.st.Instance(ctx, addr); errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("there is no conversation %s of an agent %s; see inspect without arguments for those that there are", addr.ID, addr.Agent)
	}
	if in.records {
		return in.print(ctx, addr)
	}
	s, err := in.summarize(ctx, addr)
	if err != nil {
		return err
	}
	if in.json {
		return in.encode(s)
	}
	s.write(in.to, in.now)
	return nil
}

// encode prints a JSON object and a newline.
func (in *inspection) encode(v any) error {
	enc := json.NewEncoder(in.to)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// A listed is a line of the list of conversations.
type listed struct {
	Agent        string    `json:"agent"`
	ID           string    `json:"id"`
	UID          string    `json:"uid"`
	Phase        string    `json:"phase"`
	Unsettled    int       `json:"unsettled"`
	Head         int64     `json:"head"`
	LastActivity time.Time `json:"lastActivity,omitzero"`
	Damage       *damaged  `json:"damage,omitzero"`
}

// phaseDamaged is what stands for the phase of a damaged conversation.
const phaseDamaged = "damaged"

// listPage is how many conversations are listed at a time.
const listPage = 200

func (in *inspection) list(ctx context.Context) error {
	table := tabwriter.NewWriter(in.to, 0, 0, 2, ' ', 0)
	if !in.json {
		fmt.Fprintln(table, "AGENT\tID\tPHASE\tUNSETTLED\tHEAD\tLAST ACTIVITY")
	}
	after := store.Address{Agent: in.agent}
	for {
		rows, err := in.st.Instances(ctx, after, listPage)
		if err != nil {
			return fmt.Errorf("listing the conversations: %w", err)
		}
		for _, row := range rows {
			if in.agent != "" && row.Agent != in.agent {
				return table.Flush()
			}
			if err := in.listOne(ctx, table, row); err != nil {
				return err
			}
			after = row.Address
		}
		if err := errors.Join(table.Flush(), in.to.Flush()); err != nil || len(rows) < listPage {
			return err
		}
	}
}

func (in *inspection) listOne(ctx context.Context, table *tabwriter.Writer, row store.Instance) error {
	if in.unsettled && row.Unsettled == 0 && row.Head >= 0 {
		return nil
	}
	l, err := in.row(ctx, row)
	if err != nil {
		return err
	}
	if in.json {
		return in.encode(l)
	}
	active := "-"
	if !l.LastActivity.IsZero() {
		active = stamp(l.LastActivity) + " (" + ago(l.LastActivity, in.now) + ")"
	}
	_, err = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%s\n", line(l.Agent), line(l.ID), l.Phase, l.Unsettled, l.Head, active)
	return err
}

// row looks at a conversation as far as the list shows it. One without work is
// idle, unless it is damaged, which takes reading it to know.
func (in *inspection) row(ctx context.Context, row store.Instance) (listed, error) {
	l := listed{Agent: row.Agent, ID: row.ID, UID: row.UID, Phase: fold.Idle.String(), Unsettled: row.Unsettled, Head: row.Head}
	l.LastActivity = in.written(ctx, row.Address, row.Head)
	if row.Unsettled == 0 && !in.check && row.Head >= 0 {
		return l, nil
	}
	st, err := replay(ctx, in.st, row.Address)
	if l.Damage, err = asDamage(err); err != nil {
		return l, err
	}
	if l.Phase = st.Phase.String(); l.Damage != nil {
		l.Phase = phaseDamaged
	}
	return l, nil
}

// written returns when a batch was written, or the zero time if it does not say.
func (in *inspection) written(ctx context.Context, addr store.Address, offset int64) time.Time {
	page, err := in.st.Read(ctx, addr, offset-1, 1)
	if err != nil || len(page.Batches) == 0 {
		return time.Time{}
	}
	b, err := journal.Decode(page.Batches[0].Payload)
	if err != nil {
		return time.Time{}
	}
	return b.At
}

// words joins what is not empty.
func words(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " ")
}
