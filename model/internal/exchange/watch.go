package exchange

import "time"

// A Watch calls a function when it has run for longer than its limit since it was
// last reset. It runs only between Start and Stop. It is not safe for concurrent use.
type Watch struct {
	limit time.Duration
	ran   time.Duration // before it was last started
	since time.Time     // when that was; zero while it stands
	timer *time.Timer
}

// NewWatch returns a Watch that stands.
func NewWatch(limit time.Duration, expire func()) *Watch {
	w := &Watch{limit: limit, timer: time.AfterFunc(limit, expire)}
	w.timer.Stop()
	return w
}

// Start lets the watch run.
func (w *Watch) Start() {
	w.since = time.Now()
	w.timer.Reset(max(w.limit-w.ran, 0))
}

// Stop lets the watch stand.
func (w *Watch) Stop() {
	w.timer.Stop()
	if !w.since.IsZero() {
		w.ran += time.Since(w.since)
		w.since = time.Time{}
	}
}

// Reset forgets for how long the watch has run. It must stand.
func (w *Watch) Reset() { w.ran = 0 }

// Limit returns the limit.
func (w *Watch) Limit() time.Duration { return w.limit }

// SetLimit changes the limit, from the next start on.
func (w *Watch) SetLimit(limit time.Duration) { w.limit = limit }
