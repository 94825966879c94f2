package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

func (p *program) copyCommand() *cobra.Command {
	k := copying{program: p}
	c := &cobra.Command{
		Use:   "copy [flags] --from place",
		Short: "Copy all conversations into a PostgreSQL database",
		Long: `Copy all conversations into a PostgreSQL database.

It copies what --from names, a file of SQLite or another database, into the one of
--db: conversations whole, with messages that wait and what they were accepted
under, but for checkpoints, which are made again. A conversation that is there
already is left alone, so a copy that was cut short can be run again.

No other program may have the file open, and none may use the other database.
Programs may use the one that is copied to: each conversation appears there at
once, and its unfinished work is taken up. Never start a program on the old place
again: it would do the same work a second time.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.locate(c); err != nil {
				return err
			}
			return k.run(c.Context())
		},
	}
	c.Flags().StringVar(&k.from, "from", "", "`place` to copy from: a file, or the postgres:// URL of another database")
	return c
}

// A copying is one use of the command copy.
type copying struct {
	*program
	from string

	source place
	// What has come of it, in conversations.
	copied, there, failed int
}

// errNotCopied is what copy ends with if there is something that it has not copied.
var errNotCopied = errors.New("not everything was copied")

func (k *copying) run(ctx context.Context) error {
	var err error
	if k.from == "" {
		return errors.New("--from is missing: name the place to copy from")
	}
	if k.source, err = parsePlace(k.from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	k.warn("--from", k.from)
	if !k.place.shared() {
		return fmt.Errorf("conversations are copied to PostgreSQL: give the URL in %s", dbVariable)
	}
	from, err := k.openSource(ctx)
	if err != nil {
		return err
	}
	defer k.closing("what was copied from", from.Close)
	log := slog.New(k.logging.handler(k.err))
	to, err := k.openDatabase(ctx, log, false)
	if err != nil {
		return err
	}
	defer k.closing("the conversations", to.Close)
	if err := k.all(ctx, from, to); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(k.out, "%s copied from %s to %s", plural(k.copied, "conversation"), k.source, k.place); err != nil {
		return err
	}
	if k.there > 0 {
		fmt.Fprintf(k.out, "; %d were there", k.there)
	}
	_, err = fmt.Fprintln(k.out, ". Do not start a program on the old place again.")
	if k.failed > 0 {
		err = fmt.Errorf("%w: %s", errNotCopied, plural(k.failed, "conversation"))
	}
	return err
}

// openSource opens what is copied from. A file is for this program alone, which
// proves that nobody writes to it.
func (k *copying) openSource(ctx context.Context) (store.Exporter, error) {
	other := &program{app: k.app, err: k.err, place: k.source}
	switch {
	case k.source.memory:
		return nil, fmt.Errorf("--from %s: there is nothing in it", inMemory)
	case k.source.shared():
		st, err := other.openFilled(ctx)
		if err != nil {
			return nil, fmt.Errorf("--from: %w", err)
		}
		return st, nil
	}
	if err := other.exists(); err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	st, err := sqlite.Open(ctx, k.source.file, sqlite.Options{})
	if errors.Is(err, store.ErrLocked) {
		err = fmt.Errorf("%w. What another program writes now would be missing", err)
	}
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	return st, nil
}

// all copies every conversation.
func (k *copying) all(ctx context.Context, from store.Exporter, to store.Importer) error {
	after := store.Address{}
	for {
		rows, err := from.Instances(ctx, after, listPage)
		if err != nil {
			return fmt.Errorf("listing the conversations of %s: %w", k.source, err)
		}
		for _, row := range rows {
			after = row.Address
			if err := k.one(ctx, from, to, row); err != nil {
				return err
			}
		}
		if len(rows) < listPage {
			return nil
		}
	}
}

// one copies a conversation. What is wrong with that one alone is told and counted.
func (k *copying) one(ctx context.Context, from store.Exporter, to store.Importer, row store.Instance) error {
	lost, err := store.Copy(ctx, from, to, row.Address)
	var there *store.ConditionError
	switch {
	case err == nil:
		k.copied++
		k.tellLost(row.Address, lost)
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &there) && there.UID == row.UID:
		k.there++
		return nil
	case errors.As(err, &there):
		err = errors.New("there is another conversation of this name")
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrTooLarge):
	default:
		return fmt.Errorf("copying %s: %w", row.Address, err)
	}
	k.failed++
	fmt.Fprintf(k.err, "%s: %s was not copied: %v\n", k.app.Name, row.Address, err)
	return nil
}

// tellLost says what could not be read.
func (k *copying) tellLost(addr store.Address, lost store.Copied) {
	if n := len(lost.LostBatches); n > 0 {
		fmt.Fprintf(k.err, "%s: %s: %s could not be read, beginning with %d, and is damaged in the copy too\n", k.app.Name, addr, plural(n, "batch", "batches"), lost.LostBatches[0])
	}
	if n := len(lost.LostAttachments); n > 0 {
		fmt.Fprintf(k.err, "%s: %s: %s could not be read, and is missing in the copy\n", k.app.Name, addr, plural(n, "attachment"))
	}
}
