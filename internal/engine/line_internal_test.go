package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever those do who have places, there are never more than there should be,
// all get one in the end, and none is lost.
func TestLine(t *testing.T) {
	const most, workers, turns = 3, 40, 50
	synctest.Test(t, func(t *testing.T) {
		var l line
		l.most = most
		var at, lent atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				granted := make(chan struct{}, 1)
				w := waiter{slot: new(slot), let: func() { granted <- struct{}{} }}
				for range turns {
					if got, stands := l.enter(&w); !got && stands {
						<-granted
					}
					at.Add(1)
					p := &place{line: &l}
					switch rand.IntN(4) {
					case 0: // the next of its messages waits for others
						at.Add(-1)
						if l.pass(&w) {
							<-granted
						}
						at.Add(1)
					case 1:
						at.Add(-1)
						p.pause(t.Context(), nil, shortPause+time.Duration(rand.IntN(5))*time.Second)
						at.Add(1)
					case 2:
						at.Add(-1)
						lent.Add(1)
						p.lend()
						time.Sleep(time.Duration(rand.IntN(5)) * time.Second)
						p.back()
						at.Add(1)
					}
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
					at.Add(-1)
					l.leave()
				}
			})
		}
		wg.Wait()
		if working, waiting := l.counts(); working != 0 || waiting != 0 || l.away != 0 || l.length.Load() != 0 {
			t.Errorf("%d places are taken, %d wait, %d are away", working, waiting, l.away)
		}
		if n := at.Load(); n != 0 || lent.Load() == 0 {
			t.Errorf("%d have a place, %d lent theirs: the test has tried nothing", n, lent.Load())
		}
	})
}

// Without those that come back from waiting for others there are never more than
// the most.
func TestLineBound(t *testing.T) {
	const most = 2
	synctest.Test(t, func(t *testing.T) {
		var l line
		l.most = most
		var at atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				granted := make(chan struct{}, 1)
				w := waiter{slot: new(slot), let: func() { granted <- struct{}{} }}
				for range 30 {
					if got, _ := l.enter(&w); !got {
						<-granted
					}
					if n := at.Add(1); n > most {
						t.Errorf("%d have a place", n)
					}
					time.Sleep(time.Millisecond)
					at.Add(-1)
					if rand.IntN(2) == 0 {
						(&place{line: &l}).pause(t.Context(), nil, shortPause)
						if n := at.Add(1); n > most {
							t.Errorf("%d have a place after a pause", n)
						}
						at.Add(-1)
					}
					l.leave()
				}
			})
		}
		wg.Wait()
	})
}

// A place that is free costs next to nothing.
func BenchmarkLineFree(b *testing.B) {
	l := line{most: 1000}
	for b.Loop() {
		if !l.try() {
			b.Fatal("there is no place")
		}
		l.leave()
	}
}

func BenchmarkLineFreeParallel(b *testing.B) {
	l := line{most: 1 << 20}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if l.try() {
				l.leave()
			}
		}
	})
}
