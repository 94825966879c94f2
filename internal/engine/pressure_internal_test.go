package engine

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// What a collection can free is not in use, however much of it there is.
func TestHeapUsed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	const piece, pieces = 1 << 20, 100
	h := newHeap()
	runtime.GC()
	before := h.used()
	var sink []byte
	for range pieces {
		sink = make([]byte, piece)
	}
	runtime.KeepAlive(sink)
	if now := h.used(); now > before+10*piece {
		t.Errorf("with %d bytes of garbage %d are in use, %d were before", pieces*piece, now, before)
	}
	var held [][]byte
	for range pieces {
		held = append(held, make([]byte, piece))
	}
	runtime.GC()
	if now := h.used(); now < before+pieces*piece*9/10 || now > before+pieces*piece*11/10+10*piece {
		t.Errorf("with %d bytes held %d are in use, %d were before", pieces*piece, now, before)
	}
	runtime.KeepAlive(held)
	held = nil
	runtime.GC()
	if now := h.used(); now > before+10*piece {
		t.Errorf("with all of it given up %d are in use, %d were before", now, before)
	}
}

func TestMemoryLimitByDefault(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1000 << 20))
	for _, tt := range []struct {
		configured int64
		want       uint64
	}{{0, 900 << 20}, {5, 5}, {-1, 0}} {
		var p pressure
		if p.init(&Config{MemoryLimit: tt.configured}); p.limit != tt.want {
			t.Errorf("for %d the limit is %d, want %d", tt.configured, p.limit, tt.want)
		}
	}
	debug.SetMemoryLimit(1<<63 - 1)
	var p pressure
	if p.init(&Config{}); p.limit != 0 {
		t.Errorf("without GOMEMLIMIT the limit is %d", p.limit)
	}
}

// The time after which to try again is longer for a longer line and a slower
// process, and within its bounds.
func TestRetryAfter(t *testing.T) {
	mean := func(p *pressure, reason string, waiting int64) time.Duration {
		sum := time.Duration(0)
		seen := map[time.Duration]bool{}
		for range 1000 {
			d := p.retryAfter(reason, waiting)
			if d < time.Second || d > 30*time.Second || d%time.Second != 0 {
				t.Fatalf("%s", d)
			}
			seen[d] = true
			sum += d
		}
		if len(seen) == 1 && !seen[30*time.Second] {
			t.Errorf("all are told %v", seen)
		}
		return sum / 1000
	}
	p := &pressure{backlog: 1000}
	p.rate.Store(100 * 1000)
	fast := mean(p, OverBacklog, 1000)
	long := mean(p, OverBacklog, 1500)
	p.rate.Store(1)
	slow := mean(p, OverBacklog, 1000)
	p.rate.Store(0)
	still := mean(p, OverBacklog, 1000)
	memory := mean(p, OverMemory, 0)
	if fast > 4*time.Second || long <= fast || slow < 25*time.Second || still < 10*time.Second || memory < 3*time.Second || memory > 10*time.Second {
		t.Errorf("fast %s, long %s, slow %s, still %s, memory %s", fast, long, slow, still, memory)
	}
}

// What is asked for each message costs next to nothing.
func BenchmarkOverload(b *testing.B) {
	e := &Engine{pressure: pressure{backlog: 10_000}}
	for b.Loop() {
		if e.Overload() != nil {
			b.Fatal("it is")
		}
	}
}

func BenchmarkHeapUsed(b *testing.B) {
	h := newHeap()
	for b.Loop() {
		h.used()
	}
}
