package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/store"
)

// A dialect is what differs between PostgreSQL and CockroachDB, which speaks the
// same protocol and nearly the same SQL. Everything that only one of them has is
// in this file.
type dialect struct {
	cockroach bool
}

// dialectOf tells by what the server has said of itself when it was connected to.
func dialectOf(c *pgx.Conn) dialect {
	return dialect{cockroach: c.PgConn().ParameterStatus("crdb_version") != ""}
}

// settle sets up a new connection. It is done by statements and not with the
// connection's start, because poolers refuse settings that they do not know there.
//
// Waits are bounded by the server too: a client that has given up must not leave
// something behind that still waits for a lock.
//
// It reports whether synchronous_commit was off, see [Store.batch].
func (d dialect) settle(ctx context.Context, c *pgx.Conn, o Options) (lax bool, err error) {
	set := []string{
		fmt.Sprintf("SET statement_timeout = %d", o.Timeout.Milliseconds()),
		fmt.Sprintf("SET lock_timeout = %d", o.Timeout.Milliseconds()/2),
		fmt.Sprintf("SET idle_in_transaction_session_timeout = %d", 2*o.Timeout.Milliseconds()),
	}
	if d.cockroach {
		// An admission may create an instance, or change the one that is there.
		set = append(set, "SET enable_multiple_modifications_of_table = on")
	} else {
		set = append(set,
			"SET default_transaction_isolation = 'read committed'",
			"SET jit = off", // it takes longer than any statement of ours
			// Every statement looks up a few rows by keys, which one plan does
			// best whatever the values are, and to make a plan takes longer than to
			// use it. It is kept while the tables grow, so it must not be the one
			// that is best for small ones.
			"SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off",
			"SET tcp_keepalives_idle = 15", "SET tcp_keepalives_interval = 5", "SET tcp_keepalives_count = 3",
			// Whoever has turned it off for the database has not meant what is
			// acknowledged to somebody.
			"SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
		)
	}
	results, err := c.PgConn().Exec(ctx, strings.Join(set, "; ")).ReadAll()
	if err != nil {
		return false, fmt.Errorf("set up a connection: %w", err)
	}
	return len(results[len(results)-1].Rows) > 0, nil
}

// check refuses a database that cannot hold a store, and warns of one that may
// lose what was acknowledged. It reports whether commits may be asynchronous there.
// If the session has a setting of its own, as only a pooler can have given it, it is
// not known how others begin.
func (d dialect) check(ctx context.Context, c *pgx.Conn, o Options) (lax bool, err error) {
	if d.cockroach {
		return false, nil
	}
	var encoding, fsync string
	err = ask(ctx, o, func(ctx context.Context) error {
		return answer(c.QueryRow(ctx, `SELECT current_setting('server_encoding'), current_setting('fsync'),
			'off' IN (setting, reset_val) OR source = 'session' FROM pg_catalog.pg_settings WHERE name = 'synchronous_commit'`).
			Scan(&encoding, &fsync, &lax))
	})
	switch {
	case err != nil:
		return false, err
	case encoding != "UTF8":
		return false, fmt.Errorf("%w: the database's encoding is %s, want UTF8; create one with ENCODING 'UTF8' TEMPLATE template0", store.ErrFormat, encoding)
	}
	if fsync != "on" {
		o.Log.WarnContext(ctx, "PostgreSQL runs with fsync off: what was acknowledged may be lost, and the database damaged, when its machine fails")
	}
	return lax, nil
}

// transaction is how a transaction of several round trips begins. A statement must
// see what whoever had a lock before has written, whatever the database's default is,
// which the connection may still have.
func (d dialect) transaction() pgx.TxOptions {
	if d.cockroach {
		return pgx.TxOptions{} // serializable, which does as well
	}
	return pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
}

// lockFormat makes this transaction the only one that changes the format of a
// schema.
func (d dialect) lockFormat(ctx context.Context, tx pgx.Tx, schema string) error {
	if d.cockroach {
		// Its statements that change tables conflict with each other, and one of
		// two transactions is refused then.
		return nil
	}
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('flue format of ' || $1, 0))`, schema)
	return err
}

// only returns statements for one of the two.
func (d dialect) only(postgres []string) []string {
	if d.cockroach {
		return nil
	}
	return postgres
}

// channel is where the processes of a schema hear of each other. It is an
// identifier of at most 63 bytes.
func channel(schema string) string {
	if len(schema) > 50 {
		sum := sha256.Sum256([]byte(schema))
		schema = hex.EncodeToString(sum[:16])
	}
	return "flue_" + schema
}

// notifySQL sends payloads to those who listen at a channel.
func (d dialect) notifySQL() string {
	return `SELECT pg_notify($1::text, p) FROM unnest($2::text[]) AS p`
}

func (d dialect) listen(ctx context.Context, c *pgx.Conn, channel string) error {
	_, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize())
	return err
}

// endStuckSQL ends the connections of this role, database, program, schema and
// timeout (see label) that wait for their client within a transaction that began longer ago than so many
// microseconds. It returns how many.
func (d dialect) endStuckSQL() string {
	return `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_catalog.pg_stat_activity
		WHERE datname = current_database() AND usename = current_user AND application_name = current_setting('application_name')
			AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND state = 'active' AND wait_event_type = 'Client' AND wait_event = 'ClientRead'
			AND xact_start < clock_timestamp() - $1::bigint * interval '1 microsecond'`
}
