package postgres

import "strings"

// A migration brings a schema from one format to the next, in one transaction.
//
// Programs of the same format run side by side, also while a new release takes the
// place of the old one replica by replica. A change that the running programs can
// live with is made in two releases: the first one expands (it adds a table, or a
// column with a default that old programs leave alone, and knows both forms), the
// second one contracts, once nothing of the older release runs. Such a change is
// no new format. A new number is for what a program of the old format must not
// touch any more: the programs that run then fail when they are opened again, and
// whoever migrates has stopped them before.
type migration struct {
	statements []string
	postgres   []string // that CockroachDB does not know
}

// formatVersion is the format that this program reads and writes.
const formatVersion = len(migrations)

// In statements "@" stands for the schema.
//
// Text is compared byte by byte: instances are told apart exactly, and listed in
// the order that every store lists them in.
//
// Only ready_at and owner of instances are indexed beside the keys. An append that
// settles nothing changes neither, so that PostgreSQL can update the row in place
// (HOT) as long as there is room on its page, which the fillfactor sees to.
var migrations = [...]migration{
	{
		statements: []string{
			`CREATE TABLE @.instances (
				id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
				agent       text COLLATE "C" NOT NULL,
				name        text COLLATE "C" NOT NULL,
				uid         text NOT NULL,
				incarnation text NOT NULL,
				head        bigint NOT NULL,              -- the newest offset
				unsettled   bigint NOT NULL,              -- submissions
				owner       text COLLATE "C" NOT NULL,    -- a node, or empty
				epoch       bigint NOT NULL,              -- grows with each change of the owner
				ready_at    timestamptz                   -- since when it waits for its next submission, if there is one
			) WITH (fillfactor = 70)`,
			`CREATE UNIQUE INDEX instances_address ON @.instances (agent, name)`,
			`CREATE INDEX instances_ready ON @.instances (owner, agent, ready_at, id) WHERE ready_at IS NOT NULL`,
			`CREATE TABLE @.batches (
				instance bigint NOT NULL,
				pos      bigint NOT NULL,                 -- its offset
				epoch    bigint NOT NULL,                 -- of the owner that wrote it; 0 for intake
				span     bigint NOT NULL,                 -- offsets after its own that it stands for
				sum      bigint NOT NULL,
				payload  bytea NOT NULL,
				PRIMARY KEY (instance, pos)
			)`,
			`CREATE TABLE @.submissions (
				instance    bigint NOT NULL,
				id          text COLLATE "C" NOT NULL,
				pos         bigint NOT NULL,              -- the offset of its batch
				identity    bytea NOT NULL,
				accepted_at bigint NOT NULL,              -- microseconds since 1970
				outcome     text NOT NULL,                -- empty until it is settled
				settled_at  bigint NOT NULL,              -- the offset of the settling batch
				PRIMARY KEY (instance, id)
			)`,
			`CREATE INDEX submissions_open ON @.submissions (instance, pos) WHERE outcome = ''`,
			`CREATE TABLE @.attachments (
				instance   bigint NOT NULL,
				id         text COLLATE "C" NOT NULL,
				media_type text NOT NULL,
				filename   text NOT NULL,
				digest     bytea NOT NULL,
				PRIMARY KEY (instance, id)
			)`,
			`CREATE TABLE @.blobs (
				instance bigint NOT NULL,
				digest   bytea NOT NULL,
				data     bytea NOT NULL,
				PRIMARY KEY (instance, digest)
			)`,
			`CREATE TABLE @.checkpoints (
				instance bigint NOT NULL,
				pos      bigint NOT NULL,
				sum      bigint NOT NULL,
				data     bytea NOT NULL,
				PRIMARY KEY (instance, pos)
			)`,
			`CREATE TABLE @.nodes (
				name      text COLLATE "C" PRIMARY KEY,
				lapses_at timestamptz NOT NULL
			)`,
		},
		postgres: []string{
			// Most of it is compressed already.
			`ALTER TABLE @.blobs ALTER COLUMN data SET STORAGE EXTERNAL`,
			// Rows that change all the time, few or small.
			`ALTER TABLE @.nodes SET (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0)`,
			`ALTER TABLE @.instances SET (autovacuum_vacuum_scale_factor = 0.05)`,
		},
	},
}

// An addition is what the tables of the present format have not always had, or had,
// and older programs can live with. Whoever migrates makes it where it is missing, while
// those programs run: in a transaction of its own, so that none that waits for a lock has
// another one that somebody else needs.
type addition struct {
	index     string // by which it is told
	drop      bool   // it is made when the index is gone
	statement string
}

// They are made in their order: what takes the place of something comes before that goes.
var additions = [...]addition{
	{
		index:     "instances_ready",
		statement: `CREATE INDEX IF NOT EXISTS instances_ready ON @.instances (owner, agent, ready_at, id) WHERE ready_at IS NOT NULL`,
	},
	{index: "instances_work", drop: true, statement: `DROP INDEX IF EXISTS @.instances_work`}, // which had no agents
}

// in puts the schema into a statement.
func in(schema, statement string) string {
	return strings.ReplaceAll(statement, "@", `"`+strings.ReplaceAll(schema, `"`, `""`)+`"`)
}
