package postgres

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// marker stands in the table meta of a schema that is ours.
const marker = "flue"

// A format is what a schema says of itself.
type format struct {
	schema  string
	exists  bool // the schema
	version int  // 0 if it holds nothing
}

// usable returns an error unless this program can use the schema as it is.
func (f format) usable() error {
	const how = "create it or bring it up to date with the migrate command (postgres.Migrate), or set Options.Migrate"
	switch {
	case f.version == 0:
		return fmt.Errorf("%w: schema %q holds no tables; %s", store.ErrFormat, f.schema, how)
	case f.version < formatVersion:
		return fmt.Errorf("%w: schema %q has format %d, and this program needs %d; %s", store.ErrFormat, f.schema, f.version, formatVersion, how)
	case f.version > formatVersion:
		return f.newer()
	}
	return nil
}

func (f format) newer() error {
	return fmt.Errorf("%w: schema %q has format %d, of a newer version of this program, which knows %d; use that version", store.ErrFormat, f.schema, f.version, formatVersion)
}

// A querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// readFormat finds out what a schema is. It fails with store.ErrFormat if it
// holds something else than a store.
func readFormat(ctx context.Context, q querier, schema string) (format, error) {
	f := format{schema: schema}
	var tables, meta int
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1::text),
			count(*), count(*) FILTER (WHERE c.relname = 'meta' AND c.relkind = 'r')
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::text`, schema).
		Scan(&f.exists, &tables, &meta)
	if err != nil {
		return f, answer(err)
	}
	foreign := fmt.Errorf("%w: schema %q holds tables of something else; name another one in Options.Schema", store.ErrFormat, schema)
	switch {
	case tables == 0:
		return f, nil
	case meta == 0:
		return f, foreign
	}
	var application, version string
	err = q.QueryRow(ctx, in(schema, `SELECT max(value) FILTER (WHERE key = 'application'), max(value) FILTER (WHERE key = 'format') FROM @.meta`)).
		Scan(&application, &version)
	switch {
	case otherwise(err):
		return f, foreign
	case err != nil:
		return f, answer(err)
	}
	f.version, err = strconv.Atoi(version)
	if err != nil || application != marker || f.version < 1 {
		return f, foreign
	}
	return f, nil
}

// otherwise reports whether a look at the table meta has failed because it is made
// otherwise: it has other columns, or no such rows.
func otherwise(err error) bool {
	var unlike pgx.ScanArgError
	if errors.As(err, &unlike) {
		return true
	}
	c := code(err)
	return strings.HasPrefix(c, "42") && c != "42501" && c != codePrepared
}

// Format returns the format of a schema: 0 if there is nothing in it, and that of
// this program as known. It fails with store.ErrFormat if the schema holds
// something else.
func Format(ctx context.Context, url string, o Options) (version, known int, err error) {
	err = once(ctx, url, &o, func(c *pgx.Conn) error {
		f, err := findFormat(ctx, c, o)
		version = f.version
		return err
	})
	return version, formatVersion, err
}

// Migrate creates the tables of a store, or brings those of an older format to
// the present one, and returns the format before and after it. Each step is done
// whole or not at all. Several processes may do it at the same time.
//
// It fails with store.ErrFormat, and changes nothing, if the schema is of a newer
// format or holds something else. Options.Timeout does not bound it, because a
// large table may take its time; the context does.
func Migrate(ctx context.Context, url string, o Options) (from, to int, err error) {
	err = once(ctx, url, &o, func(c *pgx.Conn) error {
		if _, err := dialectOf(c).check(ctx, c, o); err != nil {
			return err
		}
		from, err = migrate(ctx, c, o)
		return err
	})
	if err != nil {
		return from, from, err
	}
	return from, formatVersion, nil
}

// once runs fn with a connection of its own.
func once(ctx context.Context, url string, o *Options, fn func(*pgx.Conn) error) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	cfg, err := config(url, *o)
	if err != nil {
		return err
	}
	c, err := connect(ctx, cfg.ConnConfig)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	return fn(c)
}

// migrate takes a schema through all steps that it lacks.
func migrate(ctx context.Context, c *pgx.Conn, o Options) (from int, err error) {
	for first := true; ; first = false {
		f, err := findFormat(ctx, c, o)
		if err != nil {
			return f.version, err
		}
		if first {
			from = f.version
		}
		switch {
		case f.version > formatVersion:
			return from, f.newer()
		case f.version == formatVersion:
			if err := add(ctx, c, o.Schema); err != nil { // it is slower without
				o.Log.Warn("the tables are of the right format, but lack an addition, which the next migration makes", "error", err)
			}
			return from, nil
		}
		if err := insist(ctx, func() error { return step(ctx, c, o.Schema) }); err != nil {
			return from, fmt.Errorf("bring schema %q from format %d to %d: %w", o.Schema, f.version, f.version+1, err)
		}
	}
}

// How often a change is tried that others are in the way of, and how long it waits
// before it is tried again.
const (
	insistTries = 8
	insistFirst = 50 * time.Millisecond
	insistMost  = time.Second
)

// insist tries a change again that others were in the way of.
func insist(ctx context.Context, change func() error) error {
	wait := insistFirst
	for tries := 1; ; tries++ {
		err := change()
		switch code(err) {
		case codeSerialization, codeDeadlock, codeLockTimeout:
		default:
			return err
		}
		if tries == insistTries {
			return fmt.Errorf("others were in the way %d times: %w", tries, err)
		}
		select {
		case <-time.After(wait/2 + mathrand.N(wait)):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, insistMost)
	}
}

// add makes the additions that are missing.
func add(ctx context.Context, c *pgx.Conn, schema string) error {
	for _, a := range additions {
		missing, err := a.missing(ctx, c, schema)
		if err == nil && missing {
			err = insist(ctx, func() error { return a.make(ctx, c, schema) })
		}
		if err != nil {
			return fmt.Errorf("%s of schema %q: %w", a.index, schema, err)
		}
	}
	return nil
}

func (a addition) missing(ctx context.Context, q querier, schema string) (bool, error) {
	var there bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1::text AND c.relname = $2::text)`, schema, a.index).Scan(&there)
	return there == a.drop, err
}

// gentle is how long an addition waits for the lock of a table. All that comes after it
// and needs the table waits with it, so somebody who reads for long, such as a backup,
// must not keep it waiting.
const gentle = 500 * time.Millisecond

func (a addition) make(ctx context.Context, c *pgx.Conn, schema string) error {
	return change(ctx, c, schema, gentle, func(tx pgx.Tx) ([]string, error) {
		missing, err := a.missing(ctx, tx, schema) // or somebody else has made it meanwhile
		if err != nil || !missing {
			return nil, err
		}
		return []string{a.statement}, nil
	})
}

// step does the next step of a migration, if somebody else has not done all.
func step(ctx context.Context, c *pgx.Conn, schema string) error {
	d := dialectOf(c)
	return change(ctx, c, schema, 0, func(tx pgx.Tx) ([]string, error) {
		f, err := readFormat(ctx, tx, schema)
		if err != nil || f.version >= formatVersion {
			return nil, err
		}
		m := migrations[f.version]
		var statements []string
		if f.version == 0 {
			if !f.exists { // IF NOT EXISTS would need the right to create one all the same
				statements = append(statements, `CREATE SCHEMA @`)
			}
			statements = append(statements, `CREATE TABLE @.meta (key text PRIMARY KEY, value text NOT NULL)`,
				`INSERT INTO @.meta (key, value) VALUES ('application', '`+marker+`'), ('format', '0')`)
		}
		statements = append(statements, m.statements...)
		statements = append(statements, d.only(m.postgres)...)
		return append(statements, fmt.Sprintf(`UPDATE @.meta SET value = '%d' WHERE key = 'format'`, f.version+1)), nil
	})
}

// change runs statements in one transaction, which is the only one that changes the
// schema. Its time has no bound, but its waits for locks of tables may have one.
func change(ctx context.Context, c *pgx.Conn, schema string, lock time.Duration, statements func(tx pgx.Tx) ([]string, error)) error {
	tx, err := c.BeginTx(ctx, dialectOf(c).transaction())
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	for _, timeout := range []string{"statement_timeout", "lock_timeout"} {
		if _, err := tx.Exec(ctx, `SET LOCAL `+timeout+` = 0`); err != nil {
			return err
		}
	}
	if err := dialectOf(c).lockFormat(ctx, tx, schema); err != nil {
		return err
	}
	all, err := statements(tx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, lock.Milliseconds())); err != nil {
		return err
	}
	for _, st := range all {
		if _, err := tx.Exec(ctx, in(schema, st)); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
