package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

var ctx = context.Background() // of the child processes

// A process that is killed while it writes loses nothing that it acknowledged,
// and what it left can be written on at once.
func TestKill(t *testing.T) {
	cycles := 20
	if testing.Short() {
		cycles = 3
	}
	file := filepath.Join(t.TempDir(), "flue.db")
	acks := make(map[string]bool)
	for cycle := range cycles {
		c := start(t, "write", file)
		for range 1 + rand.IntN(400) {
			if !c.lines.Scan() {
				t.Fatalf("cycle %d: the writer ended: %v", cycle, c.cmd.Wait())
			}
			acks[c.lines.Text()] = true
		}
		for _, line := range c.kill(t) {
			acks[line] = true
		}
		s := open(t, file, sqlite.Options{})
		verifyAcks(t, s, acks)
		closeStore(t, s)
		if t.Failed() {
			t.Fatalf("after cycle %d", cycle)
		}
	}
	t.Logf("%d acknowledgements checked over %d kills", len(acks), cycles)
}

func verifyAcks(t *testing.T, s store.Store, acks map[string]bool) {
	t.Helper()
	journals := make([][]string, writers)
	for g := range writers {
		for {
			p, err := s.Read(t.Context(), instance(g), int64(len(journals[g]))-1, 0)
			if errors.Is(err, store.ErrNotFound) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range p.Batches {
				journals[g] = append(journals[g], string(b.Payload))
			}
			if int64(len(journals[g])) > p.Head {
				break
			}
		}
	}
	for ack := range acks {
		var g, offset int
		var text string
		if n, _ := fmt.Sscanf(ack, "settled %d %s", &g, &text); n == 2 {
			sub, err := s.Submission(t.Context(), instance(g), text)
			if err != nil || sub.Outcome != "completed" {
				t.Errorf("settlement of %s is lost: %+v, %v", text, sub, err)
			}
			continue
		}
		if n, _ := fmt.Sscanf(ack, "%d %d %s", &g, &offset, &text); n != 3 {
			t.Fatalf("the writer said %q", ack)
		}
		if offset >= len(journals[g]) || journals[g][offset] != text {
			t.Errorf("batch %d of instance %d, %q, is lost", offset, g, text)
		}
	}
}

// A snapshot of the files at a moment between two commits.
type files struct {
	db, log []byte
	acked   int // batches acknowledged by then
	merged  int // batches that are in the file itself
}

// A log that ends anywhere, as it may after a loss of power, yields a prefix of
// what was written; a whole log yields all of it, and what has been merged into
// the file is never lost.
func TestTornLog(t *testing.T) {
	const batches, instances = 90, 3
	file := filepath.Join(t.TempDir(), "flue.db")
	s := open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	if err := s.Renew(t.Context(), "n1", time.Hour); err != nil {
		t.Fatal(err)
	}
	var leases []store.Lease
	for g := range instances {
		r, err := s.Admit(t.Context(), &store.Admission{
			Address: instance(g), Submission: "s1", Payload: []byte("admit"), Birth: &store.Birth{UID: "uid"}, Node: "n1",
		})
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, *r.Lease)
	}
	if err := s.Merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	// One batch after the other, round and round the instances, so that there
	// is one order of all.
	var snaps []files
	merged := 0
	for i := range batches {
		p := fill(fmt.Sprint(i, " "), 100+i*37%3000)
		if _, err := s.Append(t.Context(), leases[i%instances], store.Write{Payload: p}); err != nil {
			t.Fatal(err)
		}
		switch i {
		case 40:
			if err := s.Merge(t.Context()); err != nil {
				t.Fatal(err)
			}
			merged = i + 1
		case 7, 39, 44, batches - 1:
			snap := files{acked: i + 1, merged: merged}
			if err := s.Between(t.Context(), func() (err error) {
				if snap.db, err = os.ReadFile(file); err == nil {
					snap.log, err = os.ReadFile(file + "-wal")
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			snaps = append(snaps, snap)
		}
	}

	cuts := 20
	if testing.Short() {
		cuts = 5
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	sizes := make(map[int]bool)
	for n, snap := range snaps {
		check := func(what string, log []byte, least int) {
			t.Helper()
			file := filepath.Join(dir, fmt.Sprint(n, " ", what, ".db"))
			got := recovered(t, file, snap.db, log, instances)
			if got < least || got > snap.acked {
				t.Errorf("snapshot %d, %s: %d batches are left of %d, want at least %d", n, what, got, snap.acked, least)
			}
			sizes[got] = true
		}
		check("whole log", snap.log, snap.acked)
		check("no log", nil, snap.merged)
		for range cuts {
			cut := rnd.IntN(len(snap.log))
			check(fmt.Sprint("log cut at ", cut), snap.log[:cut], snap.merged)

			// The end of the log is there, but not all of what is in it.
			torn := append([]byte(nil), snap.log...)
			clear(torn[cut:min(cut+4096, len(torn))])
			check(fmt.Sprint("log torn at ", cut), torn, snap.merged)
		}
	}
	if len(sizes) < 10 && !testing.Short() {
		t.Errorf("the cuts left only %d different prefixes: they test little", len(sizes))
	}
}

// recovered opens copies of the files and returns how many batches there are,
// having checked that they are a prefix.
func recovered(t *testing.T, file string, db, log []byte, instances int) int {
	t.Helper()
	if err := os.WriteFile(file, db, 0o600); err != nil {
		t.Fatal(err)
	}
	if log != nil {
		if err := os.WriteFile(file+"-wal", log, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, file, sqlite.Options{})
	defer closeStore(t, s)
	found := make(map[string]bool)
	for g := range instances {
		p, err := s.Read(t.Context(), instance(g), 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range p.Batches {
			want := i*instances + g
			if label, _, _ := strings.Cut(string(b.Payload), " "); label != fmt.Sprint(want) {
				t.Errorf("batch %d of instance %d is %q, want %d", b.Offset, g, label, want)
			}
			found[fmt.Sprint(want)] = true
		}
	}
	for i := range len(found) {
		if !found[fmt.Sprint(i)] {
			t.Errorf("batch %d is lost, but there are %d", i, len(found))
		}
	}
	return len(found)
}

func fill(label string, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte('a' + i%26)
	}
	copy(p, label)
	return p
}
