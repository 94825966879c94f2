package sqlite

import (
	"context"
	"time"
)

// idle is how long nothing must have been committed before the log is merged
// into the file.
const idle = 500 * time.Millisecond

// checkpoint merges the log into the file when the writer is idle, until the
// store closes. A busy writer does so itself whenever the log has grown to
// about 8 MB; this keeps the work out of the way of the first write after a
// pause, and what has to be recovered after a crash small.
//
// It has its own connection, so that a write need not wait for it to finish. If
// it fails, nothing is lost but time: the log is merged later.
func (s *Store) checkpoint() {
	tick := time.NewTicker(idle)
	defer tick.Stop()
	var seen, merged int64
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		commits := s.writer.commits.Load()
		if commits == seen && commits != merged {
			s.merge()
			merged = commits
		}
		seen = commits
	}
}

func (s *Store) merge() {
	c, err := dial(s.file, readWrite)
	if err != nil {
		return
	}
	defer c.close()
	_ = c.exec(context.Background(), "PRAGMA checkpoint_fullfsync = ON", "PRAGMA wal_checkpoint(PASSIVE)")
}
