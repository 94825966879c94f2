package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"
)

// childPatience bounds every wait in these tests.
const childPatience = 30 * time.Second

// watched gathers what is written to it and tells when it has something.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func newWatched() *watched { return &watched{grown: make(chan struct{})} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	close(w.grown)
	w.grown = make(chan struct{})
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await returns when the text matches.
func (w *watched) await(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.After(childPatience)
	for {
		w.mu.Lock()
		ok, grown := re.Match(w.text.Bytes()), w.grown
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-grown:
		case <-limit:
			t.Fatalf("waiting for %q in:\n%s", pattern, w)
		}
	}
}

// waitForFile returns when there is a file.
func waitForFile(t *testing.T, path string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(childPatience)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal(fmt.Errorf("there is no file %s", path))
		}
	}
}
