package fold_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

// encode is the stored form of a state, by which states are compared with all
// that they do not show.
func encode(t fataler, st *fold.State) []byte {
	t.Helper()
	data, err := (&fold.Checkpoint{State: st}).Encode()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return data
}

func decode(t fataler, data []byte) *fold.State {
	t.Helper()
	c, err := fold.DecodeCheckpoint(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return c.State
}

func sameState(t fataler, what string, want, got *fold.State) {
	t.Helper()
	if w, g := encode(t, want), encode(t, got); !bytes.Equal(w, g) {
		t.Fatalf("%s: %s\nwant %s\n got %s", what, diff(want, got), w, g)
	}
}

// However a journal goes on, it folds to the same from its start and from a
// checkpoint at any offset, and the live state of its owner is that state, too.
func TestCheckpointAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := begun(t)
		read := &fold.State{Head: -1} // from the start
		var resumed []*fold.State     // from a checkpoint each
		batch := []journal.Record{born}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r := journal.Record(nil)
			if rapid.IntRange(0, 3).Draw(t, "who") > 0 {
				r = w.owner()
			}
			if r == nil {
				r = w.intake()
			}
			batch = append(batch, w.apply(r))
			if !rapid.Bool().Draw(t, "commit") {
				continue
			}
			for _, st := range append(slices.Clone(resumed), read) {
				store(t, st, batch)
				st.Advance(read.Head)
			}
			read.Advance(read.Head + 1)
			w.st.Advance(read.Head)
			batch = nil
			for i, st := range resumed {
				st.Advance(read.Head)
				sameState(t, fmt.Sprintf("after checkpoint %d", i), read, st)
			}
			// What the owner stores is a snapshot, while it goes on.
			snap := w.st.Snapshot()
			data := encode(t, snap)
			sameState(t, "a checkpoint of the live state", read, decode(t, data))
			if rapid.IntRange(0, 3).Draw(t, "keep") == 0 {
				resumed = append(resumed, decode(t, data))
			}
		}
	})
}

// The same state always has the same bytes.
func TestCheckpointIsDeterministic(t *testing.T) {
	st := apply(t, running(started, done(journal.StopToolUse, "c1", "c2"))...)
	for i := range 20 {
		st.Vars[fmt.Sprint("v", i)] = []byte("1")
		st.Response.CallIDs[fmt.Sprint("c", i)] = true
	}
	want := encode(t, st)
	for range 20 {
		if got := encode(t, decode(t, want)); !bytes.Equal(got, want) {
			t.Fatalf("one state, two checkpoints:\n%s\n%s", want, got)
		}
	}
}

// What a provider or a tool has said is in a checkpoint as it is in the journal.
func TestCheckpointOfHostileText(t *testing.T) {
	turn := done(journal.StopToolUse, "c1").(*journal.TurnDone)
	turn.Blocks[0] = journal.Block{Kind: journal.Text, Text: "a\xffb\u2028</script>", Opaque: []byte(`{"b":1,"a":"\ud800","b":1.50}`)}
	turn.Blocks[1].Opaque = []byte{}
	records := running(started, turn)
	live := apply(t, records...)
	data, err := journal.Encode(journal.Batch{Records: records})
	if err != nil {
		t.Fatal(err)
	}
	b, err := journal.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	read := apply(t, b.Records...)
	read.Size = live.Size // the text got longer, and the size is rough
	sameState(t, "hostile text", read, decode(t, encode(t, live)))
}

// A checkpoint that is not whole is not read, whatever became of it.
func TestSpoiledCheckpoint(t *testing.T) {
	data := encode(t, apply(t, running(started, done(journal.StopEnd))...))
	try := func(what string, spoiled []byte) {
		t.Helper()
		if _, err := fold.DecodeCheckpoint(spoiled); err == nil {
			t.Errorf("a checkpoint with %s is read", what)
		}
	}
	for i := range data {
		try(fmt.Sprintf("its first %d bytes", i), data[:i])
		for _, bit := range []byte{1, 0x80} {
			spoiled := bytes.Clone(data)
			spoiled[i] ^= bit
			try(fmt.Sprintf("another byte %d", i), spoiled)
		}
	}
	try("something behind it", append(bytes.Clone(data), '\n'))
	try("nothing in it", nil)
}

func TestForeignCheckpoint(t *testing.T) {
	data := encode(t, apply(t, running()...))
	for _, version := range []string{"0", "2000", "", "01", "x"} {
		parts := bytes.SplitN(data, []byte(" "), 3)
		foreign := fmt.Appendf(nil, "%s %s %s", parts[0], version, parts[2])
		_, err := fold.DecodeCheckpoint(foreign)
		var other *fold.ForeignError
		if !errors.As(err, &other) || other.Version != version {
			t.Errorf("version %q: error %v, want a ForeignError", version, err)
		}
	}
}

func FuzzDecodeCheckpoint(f *testing.F) {
	f.Add([]byte("flue-checkpoint 1 "))
	f.Add(encode(f, apply(f, running(started, delta(1, "x"))...)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := fold.DecodeCheckpoint(data); err == nil {
			sameState(t, "stored again", c.State, decode(t, encode(t, c.State)))
		}
	})
}
