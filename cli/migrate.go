package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
	"github.com/flue-go/flue/store/sqlite"
)

func (p *program) migrateCommand() *cobra.Command {
	m := migration{program: p}
	c := &cobra.Command{
		Use:   "migrate [flags]",
		Short: "Bring the database to the format of this version",
		Long: `Bring the database to the format of this version.

It makes the tables in a PostgreSQL database that has none, and changes those of
an older version. Run it before the first program of the new version starts; it
is safe to run several at the same time, and to run it again. Only it needs the
right to create tables.

A file of SQLite is brought to the format of this version whenever a program
opens it, so nobody needs this command for one.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.locate(c); err != nil {
				return err
			}
			return m.run(c.Context())
		},
	}
	c.Flags().BoolVar(&m.check, "check", false, "change nothing, and fail if there is something to change")
	return c
}

// A migration is one use of the command migrate.
type migration struct {
	*program
	check bool
}

// errMigrationNeeded is what migrate --check fails with.
var errMigrationNeeded = errors.New("a migration is needed")

func (m *migration) run(ctx context.Context) error {
	format, apply := m.formatOfFile, m.migrateFile
	switch {
	case m.place.memory:
		return fmt.Errorf("--db %s keeps nothing that has a format: name a file or a database", inMemory)
	case m.place.shared():
		format, apply = m.formatOfDatabase, m.migrateDatabase
	}
	from, to, err := format(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("looking at %s: %w", m.place, err)
	case from > to:
		return fmt.Errorf("%w: %s has format %d, of a newer version of this program, which knows %d: use that version", store.ErrFormat, m.place, from, to)
	case from == to:
		if m.place.shared() && !m.check { // it may lack what came to the format later
			if _, _, err := apply(ctx); err != nil {
				return fmt.Errorf("migrating %s: %w", m.place, err)
			}
		}
		_, err := fmt.Fprintf(m.out, "%s has format %d, which is that of this version.\n", m.place, to)
		return err
	case m.check:
		return fmt.Errorf("%w: %s has %s, and this version needs format %d", errMigrationNeeded, m.place, formatName(from), to)
	}
	if from, to, err = apply(ctx); err != nil {
		return fmt.Errorf("migrating %s: %w", m.place, err)
	}
	_, err = fmt.Fprintf(m.out, "%s: from %s to format %d.\n", m.place, formatName(from), to)
	return err
}

func formatName(n int) string {
	if n == 0 {
		return "no tables"
	}
	return fmt.Sprint("format ", n)
}

func (m *migration) formatOfDatabase(ctx context.Context) (version, known int, err error) {
	return postgres.Format(ctx, m.place.url, m.place.options(slog.New(m.logging.handler(m.err))))
}

func (m *migration) migrateDatabase(ctx context.Context) (from, to int, err error) {
	return postgres.Migrate(ctx, m.place.url, m.place.options(slog.New(m.logging.handler(m.err))))
}

func (m *migration) formatOfFile(ctx context.Context) (version, known int, err error) {
	if err := m.exists(); err != nil {
		return 0, 0, err
	}
	return sqlite.Format(ctx, m.place.file)
}

func (m *migration) migrateFile(ctx context.Context) (from, to int, err error) {
	from, to, err = sqlite.Format(ctx, m.place.file)
	if err != nil {
		return from, to, err
	}
	st, err := sqlite.Open(ctx, m.place.file, sqlite.Options{})
	if errors.Is(err, store.ErrLocked) {
		return from, to, fmt.Errorf("%w: stop the program that has it", err)
	}
	if err != nil {
		return from, to, err
	}
	return from, to, st.Close()
}
