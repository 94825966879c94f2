package sqlite_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// A view is all that there is to see of one instance, as text.
func view(s *sqlite.Store, addr store.Address) (string, error) {
	var b strings.Builder
	for batch, err := range store.Batches(ctx, s, addr, -1) {
		if errors.Is(err, store.ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%d to %d, epoch %v: %x\n", batch.Offset, batch.Last(), batch.Epoch > 0, batch.Payload)
	}
	for atMost := int64(math.MaxInt64); ; {
		c, err := s.Checkpoint(ctx, addr, atMost)
		if errors.Is(err, store.ErrNotFound) {
			return b.String(), nil
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "checkpoint at %d: %x\n", c.Offset, c.Data)
		atMost = c.Offset - 1
	}
}

// upkeep has an instance append, keep checkpoints and prune, one after the other,
// and returns what there was to see after each.
func upkeep(t *testing.T, d *disk, dir string, seed uint64) (views []string, acks []int) {
	t.Helper()
	s := open(t, filepath.Join(dir, "flue.db"), sqlite.Options{})
	defer closeStore(t, s)
	rnd := rand.New(rand.NewPCG(seed, 7))
	addr := instance(0)
	if err := errors.Join(s.Exec(ctx, "PRAGMA wal_autocheckpoint = 20"), s.Renew(ctx, "n1", time.Hour)); err != nil {
		t.Fatal(err)
	}
	r, err := s.Admit(ctx, &store.Admission{Address: addr, Submission: "s", Payload: noise(rnd, "admit"), Birth: &store.Birth{UID: "uid", Payload: noise(rnd, "birth")}, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	head, pruned := r.Offset, r.Offset
	for step := 0; ; step++ {
		v, err := view(s, addr)
		if err != nil {
			t.Fatal(err)
		}
		views, acks = append(views, v), append(acks, d.now())
		switch {
		case step == 60:
			return views, acks
		case step%7 == 5 && pruned+4 < head: // two runs in one step
			runs := []store.Run{{From: pruned + 1, To: pruned + 2, Payload: noise(rnd, "pruned")}, {From: pruned + 3, To: pruned + 4}}
			err = s.Prune(ctx, *r.Lease, runs)
			pruned += 4
		case step%5 == 3:
			err = s.SaveCheckpoint(ctx, *r.Lease, store.Checkpoint{Offset: head, Data: noise(rnd, "checkpoint")})
		default:
			head, err = s.Append(ctx, *r.Lease, store.Write{Payload: noise(rnd, "work")})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Power that goes away while batches are pruned or a checkpoint is kept leaves all
// of that step or nothing: the file is as it was after the last step that was
// acknowledged, or after the one behind it.
func TestPowerLossDuringUpkeep(t *testing.T) {
	states := 0
	for seed := uint64(1); seed <= 3 && (seed == 1 || !testing.Short()); seed++ {
		dir := memoryDir(t)
		d := newDisk(t, dir)
		views, acks := upkeep(t, d, dir, seed)
		d.eject()
		c := newCutter(t)
		p := newPlatter(seed)
		known := 0 // steps that were acknowledged
		for n, e := range d.events() {
			p.play(e)
			for known < len(acks) && acks[known] <= n+1 {
				known++
			}
			if known == 0 || e.kind == onLoad || p.rnd.IntN(6) != 0 {
				continue
			}
			for _, l := range losses {
				files := p.off(l)
				if !c.news(files, known) {
					continue
				}
				states++
				at := filepath.Join(c.dir, fmt.Sprint(states))
				if err := errors.Join(os.Mkdir(at, 0o700), writeFiles(at, files)); err != nil {
					t.Fatal(err)
				}
				s := open(t, filepath.Join(at, "flue.db"), sqlite.Options{Readers: 1})
				got, err := view(s, instance(0))
				closeStore(t, s)
				_ = os.RemoveAll(at)
				if err != nil || got != views[known-1] && (known == len(views) || got != views[known]) {
					t.Fatalf("seed %d, power lost after event %d, of what was not synced there is %s: %v\nafter step %d there was\n%s\nand now there is\n%s", seed, n, l, err, known, views[known-1], got)
				}
			}
		}
	}
	t.Logf("%d states of the files", states)
	if states < 50 {
		t.Errorf("only %d states were tested", states)
	}
}
