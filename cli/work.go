package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/flue-go/flue/store"
)

// A listedWork is a line of the list of work. A store that one process has at a
// time does not say who owns what.
type listedWork struct {
	Agent     string   `json:"agent"`
	ID        string   `json:"id"`
	Unsettled int      `json:"unsettled"`
	Head      int64    `json:"head"`
	WaitingMS int64    `json:"waitingMs"` // since the oldest unsettled message was accepted
	Owner     *ownedBy `json:"owner,omitzero"`
	Known     bool     `json:"-"` // who owns it, and whether somebody does
}

type ownedBy struct {
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"`
	Live  bool   `json:"live"`
}

// workLimit bounds how much work is listed.
const workLimit = 10_000

// work lists what is unfinished, and with --stuck only what a person should look
// at: work that has waited for longer than that, or whose owner is dead.
func (in *inspection) work(ctx context.Context) error {
	var list []listedWork
	var err error
	if st, ok := in.st.(store.Surveyor); ok {
		list, err = surveyed(ctx, st)
	} else {
		list, err = in.waiting(ctx)
	}
	if err != nil {
		return fmt.Errorf("looking for work: %w", err)
	}
	more := len(list) >= workLimit
	list = slices.DeleteFunc(list, func(w listedWork) bool { return in.agent != "" && w.Agent != in.agent || !in.shown(w) })
	table := tabwriter.NewWriter(in.to, 0, 0, 2, ' ', 0)
	if !in.json {
		fmt.Fprintln(table, "AGENT\tID\tUNSETTLED\tHEAD\tWAITING\tOWNER\tEPOCH")
	}
	for _, w := range list {
		if in.json {
			err = in.encode(w)
		} else {
			owner, epoch := w.owner()
			_, err = fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", line(w.Agent), line(w.ID), w.Unsettled, w.Head, rough(w.waited()), line(owner), epoch)
		}
		if err != nil {
			return err
		}
	}
	if more {
		fmt.Fprintf(in.err, "%s: only the %d conversations whose messages wait for longest were looked at\n", in.app.Name, workLimit)
	}
	return table.Flush()
}

func (w *listedWork) waited() time.Duration { return time.Duration(w.WaitingMS) * time.Millisecond }

// shown reports whether the flags ask for it.
func (in *inspection) shown(w listedWork) bool {
	return in.stuck == 0 || w.waited() > in.stuck || w.Owner != nil && !w.Owner.Live
}

// owner names who owns the work, for a person.
func (w *listedWork) owner() (name, epoch string) {
	switch {
	case w.Owner != nil:
		return w.Owner.Node + either(w.Owner.Live, "", " (dead)"), fmt.Sprint(w.Owner.Epoch)
	case w.Known:
		return "none", "-"
	}
	return "-", "-"
}

// surveyed asks a store that knows who owns what.
func surveyed(ctx context.Context, st store.Surveyor) ([]listedWork, error) {
	work, err := st.Work(ctx, workLimit)
	var out []listedWork
	for _, w := range work {
		l := listedWork{Agent: w.Agent, ID: w.ID, Unsettled: w.Unsettled, Head: w.Head, WaitingMS: w.Waiting.Milliseconds(), Known: true}
		if w.Owner != "" {
			l.Owner = &ownedBy{w.Owner, w.Epoch, w.Live}
		}
		out = append(out, l)
	}
	return out, err
}

// waiting reads the index of a store that knows no owners.
func (in *inspection) waiting(ctx context.Context) ([]listedWork, error) {
	var out []listedWork
	after := store.Address{}
	for {
		rows, err := in.st.Instances(ctx, after, listPage)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			after = row.Address
			if row.Unsettled == 0 {
				continue
			}
			subs, err := in.st.Unsettled(ctx, row.Address)
			if errors.Is(err, store.ErrNotFound) || err == nil && len(subs) == 0 {
				continue
			}
			if err != nil {
				return nil, err
			}
			out = append(out, listedWork{
				Agent: row.Agent, ID: row.ID, Unsettled: row.Unsettled, Head: row.Head, WaitingMS: in.now.Sub(subs[0].AcceptedAt).Milliseconds(),
			})
		}
		if len(rows) < listPage {
			slices.SortFunc(out, func(a, b listedWork) int { return cmp.Compare(b.WaitingMS, a.WaitingMS) })
			return out[:min(len(out), workLimit)], nil
		}
	}
}
