package sqlite

// The format of a file. A change that an older version cannot read or must not
// write gets a new number, and a step in upgrades.
const (
	applicationID = 0x464c5545 // "FLUE", in the header of the file
	formatVersion = 2
	pageSize      = 8192
)

// schema is what a new file is made of.
//
// Batches are kept in the order of arrival and found through an index. A
// primary key of (instance, offset) would keep each journal together, but a
// group of appends of n instances would then rewrite n pages of payload.
//
// An instance's head is the largest offset of its batches, so that an append
// is one insertion. Its count of unsettled submissions could be counted too,
// but then finding work would visit every instance.
const schema = `
CREATE TABLE meta (
	key   TEXT    NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('boot', 0);

CREATE TABLE instances (
	id          INTEGER PRIMARY KEY,
	agent       TEXT    NOT NULL,
	name        TEXT    NOT NULL,
	uid         TEXT    NOT NULL,
	incarnation TEXT    NOT NULL,
	unsettled   INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX instances_address ON instances (agent, name);
CREATE INDEX instances_open ON instances (id) WHERE unsettled > 0;

CREATE TABLE batches (
	instance INTEGER NOT NULL,
	offset   INTEGER NOT NULL,
	epoch    INTEGER NOT NULL,
	sum      INTEGER NOT NULL,
	payload  BLOB    NOT NULL,
	span     INTEGER NOT NULL DEFAULT 0 -- offsets after its own that it stands for
) STRICT;

CREATE UNIQUE INDEX batches_offset ON batches (instance, offset);

CREATE TABLE submissions (
	instance    INTEGER NOT NULL,
	id          TEXT    NOT NULL,
	offset      INTEGER NOT NULL,
	identity    BLOB    NOT NULL,
	accepted_at INTEGER NOT NULL, -- microseconds since 1970
	outcome     TEXT    NOT NULL, -- empty until it is settled
	settled_at  INTEGER NOT NULL, -- the offset of the settling batch
	PRIMARY KEY (instance, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE attachments (
	instance   INTEGER NOT NULL,
	id         TEXT    NOT NULL,
	media_type TEXT    NOT NULL,
	filename   TEXT    NOT NULL,
	digest     BLOB    NOT NULL,
	PRIMARY KEY (instance, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
	instance INTEGER NOT NULL,
	digest   BLOB    NOT NULL,
	data     BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX blobs_digest ON blobs (instance, digest);
` + checkpointsTable
