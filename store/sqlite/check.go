package sqlite

import (
	"context"
	"fmt"

	"github.com/flue-go/flue/store"
)

// Check looks through the whole file and fails with store.ErrCorrupt if its
// structure is damaged: then nothing that is written to it is sure to be read
// again. It says nothing of what the batches and attachments hold, whose
// checksums are compared whenever they are read. It takes as long as it takes to
// read the file.
func (s *Store) Check(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	c, err := dial(s.file, readOnly)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.exec(ctx, "PRAGMA busy_timeout = 5000"); err != nil {
		return err
	}
	var found string
	if err := c.value("PRAGMA quick_check(1)", &found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("check %s: %w: %s", s.file, store.ErrCorrupt, firstLine(found))
	}
	return nil
}
