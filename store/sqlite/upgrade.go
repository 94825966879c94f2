package sqlite

import (
	"context"
	"fmt"
)

// checkpointsTable holds what can be lost: a file without it is a whole store.
const checkpointsTable = `
CREATE TABLE checkpoints (
	instance INTEGER NOT NULL,
	offset   INTEGER NOT NULL,
	sum      INTEGER NOT NULL,
	data     BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX checkpoints_offset ON checkpoints (instance, offset);
`

// upgrades make a file of one version one of the next. The first is for version
// 1.
var upgrades = [...]string{
	// span is how many offsets after its own a batch stands for; see Prune.
	`ALTER TABLE batches ADD COLUMN span INTEGER NOT NULL DEFAULT 0;` + checkpointsTable,
}

// upgrade brings the file to the version of this program, whole or not at all.
func (w *writer) upgrade(ctx context.Context) error {
	var v int64
	if err := w.conn.value("PRAGMA user_version", &v); err != nil || v == formatVersion {
		return err
	}
	if err := w.conn.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for ; v < formatVersion; v++ {
		if err := w.conn.exec(ctx, upgrades[v-1]); err != nil {
			return err
		}
	}
	return w.conn.exec(ctx, fmt.Sprintf("PRAGMA user_version = %d", formatVersion), "COMMIT")
}
