package cli

import (
	"io"
	"sync"
)

// A serial writer lets one goroutine write at a time: the log, the activity and
// the command itself share the error output, and only an *os.File takes care of
// that by itself.
type serial struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *serial) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
