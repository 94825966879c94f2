package storetest

import (
	"bytes"
	"fmt"

	"github.com/flue-go/flue/store"
)

var readChecks = []check{
	{
		name: "NotFound",
		rule: "Reads of what does not exist fail with ErrNotFound.",
		run:  checkNotFound,
	},
	{
		name: "Pages",
		rule: "A page starts after the given offset, is in order without a gap, holds no more than the limit, and tells the head.",
		run:  checkPages,
	},
	{
		name: "PageBytes",
		rule: "A page ends before its payloads exceed PageBytes but holds at least one batch, and a reader gets everything page by page.",
		run:  checkPageBytes,
	},
	{
		name: "PageInstance",
		rule: "A page's instance row is as of the same moment as its batches.",
		run:  checkPageInstance,
	},
	{
		name: "Payloads",
		rule: "A payload is kept byte for byte, whatever bytes it is made of.",
		run:  checkPayloads,
	},
}

func checkNotFound(k *kit) {
	_, err := k.Read(k.Context(), addr, -1, 1)
	k.refused("Read", err, store.ErrNotFound)
	_, err = k.Instance(k.Context(), addr)
	k.refused("Instance", err, store.ErrNotFound)
	_, err = k.Submission(k.Context(), addr, "s1")
	k.refused("Submission of a missing instance", err, store.ErrNotFound)
	k.admit(admission(addr, "s1"))
	_, err = k.Submission(k.Context(), addr, "s2")
	k.refused("Submission", err, store.ErrNotFound)
	_, err = k.Submission(k.Context(), addr, "S1")
	k.refused("Submission in another case", err, store.ErrNotFound)
}

func checkPages(k *kit) {
	l := k.owned(addr, "n1")
	const head = 20
	for i := 2; i <= head; i++ {
		k.append(l, fmt.Sprint(i))
	}
	for _, tt := range []struct {
		after       int64
		limit       int
		first, last int64 // no batches if first is after last
	}{
		{-1, 1, 0, 0},
		{-1, 5, 0, 4},
		{-1, head + 1, 0, head},
		{-1, 1000, 0, head},
		{-1, 0, 0, head},
		{-1, -1, 0, head},
		{-7, 2, 0, 1},
		{0, 3, 1, 3},
		{9, 100, 10, head},
		{head - 1, 10, head, head},
		{head, 10, head + 1, head},
		{head + 50, 10, head + 51, head},
	} {
		what := fmt.Sprintf("Read after %d with limit %d", tt.after, tt.limit)
		p, err := k.Read(k.Context(), addr, tt.after, tt.limit)
		if err != nil {
			k.Errorf("%s: %v", what, err)
			continue
		}
		equal(k, what+": instance", p.Instance, k.instance(addr))
		var got, want []int64
		for _, b := range p.Batches {
			got = append(got, b.Offset)
		}
		for i := tt.first; i <= tt.last; i++ {
			want = append(want, i)
		}
		equal(k, what+": offsets", got, want)
	}
}

func checkPageBytes(k *kit) {
	l := k.owned(addr, "n1")
	want := [][]byte{[]byte("birth by s1"), []byte("admit s1")}
	for i, n := range []int{store.PageBytes/2 - 100, store.PageBytes / 2, 10, store.PageBytes + 1, store.PageBytes - 1, 1, 1} {
		p := fill(fmt.Sprint(i), n)
		k.append(l, string(p))
		want = append(want, p)
	}
	var got [][]byte
	pages := 0
	for int64(len(got)) <= k.instance(addr).Head {
		p, err := k.Read(k.Context(), addr, int64(len(got))-1, 100)
		if err != nil || len(p.Batches) == 0 {
			k.Fatalf("Read after %d: %d batches, %v", len(got)-1, len(p.Batches), err)
		}
		pages++
		size := 0
		for _, b := range p.Batches {
			size += len(b.Payload)
			got = append(got, b.Payload)
		}
		if size > store.PageBytes && len(p.Batches) > 1 {
			k.Errorf("page with %d batches has %d bytes", len(p.Batches), size)
		}
	}
	if len(got) != len(want) {
		k.Fatalf("read %d batches, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			k.Errorf("batch %d differs: %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
	equal(k, "pages", pages, 4)
}

func checkPageInstance(k *kit) {
	l := k.owned(addr, "n1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Every admission is settled by the next batch, so the row's Unsettled
		// follows from its Head.
		k.append(l, "end", store.Settlement{Submission: "s1", Outcome: "completed"})
		for i := range 100 {
			id := fmt.Sprint("more ", i)
			k.admit(admission(addr, id))
			k.append(l, "end", store.Settlement{Submission: id, Outcome: "completed"})
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		p, err := k.Read(k.Context(), addr, -1, 1000)
		if err != nil {
			k.Errorf("Read: %v", err)
			break
		}
		if int64(len(p.Batches)) != p.Head+1 || p.Unsettled != int(p.Head%2) {
			k.Errorf("page of %d batches says %+v", len(p.Batches), p.Instance)
			break
		}
	}
	<-done
}

func checkPayloads(k *kit) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := []string{"birth by s1", "admit s1", "", "\x00", "\x00\x00end", "text", "\xff\xfe", string(all), "'; DROP TABLE batches; --"}
	l := k.owned(addr, "n1")
	for _, p := range want[2:] {
		k.append(l, p)
	}
	equal(k, "journal", k.payloads(addr), want)
}
