package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
)

// Bench measures the stores that open returns: appends of 1 KiB by a growing
// number of instances at the same time, whole submissions (an admission, an
// append and a settlement), and reads. Besides the usual figures it reports
// appends and submissions per second, the processor time of each where the
// system tells it, and, if the store has a method Commits() int64, how many
// commits each took.
//
// Durable appends wait for a disk. Compare figures of the same machine only.
func Bench(b *testing.B, open func(b *testing.B) store.Store) {
	for _, writers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("Append/writers=%d", writers), func(b *testing.B) {
			benchAppend(b, opened(b, open), writers)
		})
	}
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("Submission/writers=%d", writers), func(b *testing.B) {
			benchSubmission(b, opened(b, open), writers)
		})
	}
	b.Run("Read/batches=100", func(b *testing.B) { benchRead(b, opened(b, open)) })
	b.Run("Instance", func(b *testing.B) { benchInstance(b, opened(b, open)) })
}

func opened(b *testing.B, open func(b *testing.B) store.Store) store.Store {
	s := open(b)
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// leases admits a submission to each of n instances and takes them.
func leases(b *testing.B, s store.Store, n int) []store.Lease {
	if err := s.Renew(b.Context(), "n1", time.Hour); err != nil {
		b.Fatal(err)
	}
	ls := make([]store.Lease, n)
	concurrently(n, func(i int) {
		a := admission(other(i), "s1")
		a.Node = "n1"
		r, err := s.Admit(b.Context(), a)
		if err != nil {
			b.Error(err)
			return
		}
		ls[i] = *r.Lease
	})
	if b.Failed() {
		b.FailNow()
	}
	return ls
}

// spread runs do b.N times, shared by n goroutines, and reports rates of unit.
func spread(b *testing.B, s store.Store, n int, unit string, do func(g, i int) error) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	committer, _ := s.(interface{ Commits() int64 })
	var commits int64
	if committer != nil {
		commits = committer.Commits()
	}
	cpu := processorTime()
	start := time.Now()
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() {
			for i := 0; left.Add(-1) >= 0; i++ {
				if err := do(g, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), unit+"s/s")
	if cpu >= 0 {
		b.ReportMetric(float64((processorTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/"+unit)
	}
	if committer != nil {
		b.ReportMetric(float64(committer.Commits()-commits)/float64(b.N), "commits/"+unit)
	}
}

func benchAppend(b *testing.B, s store.Store, writers int) {
	ls := leases(b, s, writers)
	payload := fill("1 KiB", 1<<10)
	spread(b, s, writers, "append", func(g, _ int) error {
		_, err := s.Append(b.Context(), ls[g], store.Write{Payload: payload})
		return err
	})
}

func benchSubmission(b *testing.B, s store.Store, writers int) {
	ls := leases(b, s, writers)
	payload := fill("1 KiB", 1<<10)
	spread(b, s, writers, "submission", func(g, i int) error {
		a := admission(ls[g].Address, fmt.Sprintf("bench-%d-%d", g, i))
		a.Birth = nil
		a.Payload = payload
		if _, err := s.Admit(b.Context(), a); err != nil {
			return err
		}
		if _, err := s.Append(b.Context(), ls[g], store.Write{Payload: payload}); err != nil {
			return err
		}
		_, err := s.Append(b.Context(), ls[g], store.Write{
			Payload: payload, Settle: []store.Settlement{{Submission: a.Submission, Outcome: "completed"}},
		})
		return err
	})
}

func benchRead(b *testing.B, s store.Store) {
	l := leases(b, s, 1)[0]
	payload := fill("1 KiB", 1<<10)
	for range 1000 {
		if _, err := s.Append(b.Context(), l, store.Write{Payload: payload}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p, err := s.Read(b.Context(), l.Address, int64(i*37%900), 100)
		if err != nil || len(p.Batches) != 100 {
			b.Fatalf("read %d batches: %v", len(p.Batches), err)
		}
	}
}

func benchInstance(b *testing.B, s store.Store) {
	ls := leases(b, s, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Instance(b.Context(), ls[i%len(ls)].Address); err != nil {
			b.Fatal(err)
		}
	}
}
