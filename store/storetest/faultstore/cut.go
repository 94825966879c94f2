package faultstore

import (
	"context"
	"slices"
)

// A cut is a line to the store that is down.
type cut struct {
	mode   Mode
	deaf   bool
	mended chan struct{}
}

// Cut takes the line to the store down: from now on every call but Close waits
// until Mend. With Before it waits before the store is asked, with After a write
// is done first and its answer waits. A call whose context ends meanwhile fails
// with that error, unless deaf is set: then it waits all the same, as on a
// connection that nobody has given up yet.
func (s *Store) Cut(m Mode, deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut == nil {
		s.cut = &cut{mode: m, deaf: deaf, mended: make(chan struct{})}
	}
}

// Mend brings the line to the store up again. What waits goes on.
func (s *Store) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil {
		close(s.cut.mended)
		s.cut = nil
	}
}

// RefuseRenewals makes every renewal of a node's lease fail with the error from
// now on; nil ends that.
func (s *Store) RefuseRenewals(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = err
}

// cross waits while the line is down, if its mode is one of the given.
func (s *Store) cross(ctx context.Context, modes ...Mode) error {
	s.mu.Lock()
	c := s.cut
	s.mu.Unlock()
	if c == nil || !slices.Contains(modes, c.mode) {
		return nil
	}
	gone := ctx.Done()
	if c.deaf {
		gone = nil
	}
	select {
	case <-c.mended:
		return nil
	case <-gone:
		return ctx.Err()
	}
}

// across does a write at the other end of the line. It reports whether anything
// was written, also when the answer is lost.
func across[T any](ctx context.Context, s *Store, do func() (v T, wrote bool, err error)) (v T, wrote bool, err error) {
	if err := s.cross(ctx, Before); err != nil {
		return v, false, err
	}
	v, wrote, err = do()
	wrote = wrote && err == nil
	if lost := s.cross(ctx, After); lost != nil {
		err = lost
	}
	return v, wrote, err
}
