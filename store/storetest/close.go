package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/flue-go/flue/store"
)

var closeChecks = []check{
	{
		name: "CanceledContext",
		rule: "A call whose context has ended does nothing and returns the context's error.",
		run:  checkCanceledContext,
	},
	{
		name: "CancelDuringWrites",
		rule: "A write that returns its context's error has not happened, and one that returns nil has.",
		run:  checkCancelDuringWrites,
	},
	{
		name: "Closed",
		rule: "Every call on a closed store fails with ErrClosed, except that it can be closed again.",
		run:  checkClosed,
	},
	{
		name:    "CloseDuringWrites",
		rule:    "Close waits for writes in flight: each is either acknowledged and kept, or refused with ErrClosed.",
		run:     checkCloseDuringWrites,
		persist: true,
	},
}

// calls makes every call of the contract once and returns their errors.
func (k *kit) calls(ctx context.Context, s store.Store, l store.Lease) map[string]error {
	errs := make(map[string]error)
	_, errs["Admit"] = s.Admit(ctx, admission(l.Address, "never"))
	_, errs["Abort"] = s.Abort(ctx, l.Address, []byte("never"))
	_, errs["Append"] = s.Append(ctx, l, store.Write{Payload: []byte("never")})
	_, errs["Read"] = s.Read(ctx, l.Address, -1, 10)
	_, errs["Instance"] = s.Instance(ctx, l.Address)
	_, errs["Submission"] = s.Submission(ctx, l.Address, "s1")
	_, errs["Attachment"] = s.Attachment(ctx, l.Address, "file")
	_, errs["Claim"] = s.Claim(ctx, l.Node, 1)
	_, errs["Take"] = s.Take(ctx, l.Node, l.Address)
	errs["Renew"] = s.Renew(ctx, l.Node, k.ttl())
	errs["Release"] = s.Release(ctx, l)
	if lister, ok := s.(store.Lister); ok {
		_, errs["Instances"] = lister.Instances(ctx, store.Address{}, 10)
		_, errs["Unsettled"] = lister.Unsettled(ctx, l.Address)
	}
	if sharer, ok := s.(store.Sharer); ok {
		errs["Watch"] = sharer.Watch(ctx, []store.Address{l.Address})
		_, errs["Heads"] = sharer.Heads(ctx, []store.Address{l.Address})
		_, errs["Owned"] = sharer.Owned(ctx, l.Node, store.Address{}, 10)
		_, errs["Unowned"] = sharer.Unowned(ctx, 10)
	}
	if surveyor, ok := s.(store.Surveyor); ok {
		_, errs["Nodes"] = surveyor.Nodes(ctx)
		_, errs["Work"] = surveyor.Work(ctx, 10)
	}
	return errs
}

func checkCanceledContext(k *kit) {
	l := k.owned(addr, "n1")
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	k.unchanged("a call with an ended context", addr, []string{"s1", "never"}, func() {
		for call, err := range k.calls(ctx, k.Store, l) {
			k.refused(call, err, context.Canceled)
		}
	})
	k.append(l, "still the owner")
}

func checkCancelDuringWrites(k *kit) {
	const n = 200
	l := k.owned(addr, "n1")
	var written [n]atomic.Bool
	concurrently(8, func(g int) {
		for i := g; i < n; i += 8 {
			ctx, cancel := context.WithCancel(k.Context())
			done := make(chan struct{})
			go func() {
				cancel()
				close(done)
			}()
			_, err := k.Append(ctx, l, store.Write{Payload: []byte(fmt.Sprint(i))})
			if err != nil && !errors.Is(err, context.Canceled) {
				k.Errorf("Append: %v", err)
			}
			written[i].Store(err == nil)
			<-done
		}
	})
	found := make(map[string]int)
	for _, p := range k.payloads(addr)[2:] {
		found[p]++
	}
	for i := range written {
		want := 0
		if written[i].Load() {
			want = 1
		}
		if got := found[fmt.Sprint(i)]; got != want {
			k.Errorf("write %d was acknowledged: %v, and is there %d times", i, want == 1, got)
		}
	}
}

func checkClosed(k *kit) {
	l := k.owned(addr, "n1")
	if err := k.Close(); err != nil {
		k.Fatalf("Close: %v", err)
	}
	for call, err := range k.calls(k.Context(), k.Store, l) {
		k.refused(call, err, store.ErrClosed)
	}
	if err := k.Close(); err != nil {
		k.Errorf("second Close: %v", err)
	}
}

func checkCloseDuringWrites(k *kit) {
	const writers = 8
	l := k.owned(addr, "n1")
	var acked [writers]int
	halfway := make(chan struct{})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-halfway
		if err := k.Close(); err != nil {
			k.Errorf("Close: %v", err)
		}
	}()
	concurrently(writers, func(g int) {
		for i := 0; ; i++ {
			late := false
			select {
			case <-closed:
				late = true
			default:
			}
			_, err := k.Append(k.Context(), l, store.Write{Payload: []byte(fmt.Sprintf("%d-%d", g, i))})
			if err != nil {
				k.refused("append while the store closes", err, store.ErrClosed)
				return
			}
			if late {
				k.Errorf("an append succeeded after Close")
				return
			}
			acked[g]++
			if g == 0 && i == 20 {
				close(halfway)
			}
		}
	})
	<-closed
	k.reopen()
	found := make(map[string]bool)
	for _, p := range k.payloads(addr) {
		found[p] = true
	}
	for g, n := range acked {
		for i := range n {
			if !found[fmt.Sprintf("%d-%d", g, i)] {
				k.Errorf("batch %d-%d was acknowledged and is lost", g, i)
			}
		}
		if found[fmt.Sprintf("%d-%d", g, n)] {
			k.Errorf("batch %d-%d was refused and is there", g, n)
		}
	}
}

// checkForeign checks Options.Foreign.
func checkForeign(t *testing.T, opts *Options) {
	if opts.Foreign == nil {
		t.Skip("the store has no format to stamp: Options.Foreign is nil")
	}
	for name, err := range opts.Foreign(t) {
		if !errors.Is(err, store.ErrFormat) {
			t.Errorf("opening %s: error %v, want ErrFormat", name, err)
		}
	}
	if t.Failed() {
		t.Log("The rule: data of another kind, or of a newer format, is refused with ErrFormat before anything is read or written.")
	}
}
