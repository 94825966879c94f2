package fold

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/journal"
)

var update = flag.Bool("update", false, "write the golden shape of checkpoints")

// same compares everything that a state is made of.
var same = cmp.Options{
	cmp.AllowUnexported(State{}, Response{}),
	cmp.Comparer(func(byID, byID) bool { return true }), // made of the rest
	cmp.Comparer(func(a, b *strings.Builder) bool {
		return (a == nil) == (b == nil) && (a == nil || a.String() == b.String())
	}),
}

// A filler gives every field of a value, also those that are not exported, a
// value of its own that is not zero.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	if !v.CanSet() { // not exported
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	switch v.Type() {
	case reflect.TypeFor[jsontext.Value](), reflect.TypeFor[json.RawMessage](): // one type from Go 1.27 on
		v.SetBytes(fmt.Appendf(nil, `{"n":%d}`, f.n))
		return
	case reflect.TypeFor[*strings.Builder](), reflect.TypeFor[byID]():
		return // what it grows is in Partial; what it finds is in other fields
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8:
		v.SetUint(uint64(f.n%250 + 1))
	default:
		panic(fmt.Sprintf("a field of type %s: teach the filler, and see that a checkpoint carries it", v.Type()))
	}
}

// full is a checkpoint in which nothing is empty.
func full() *Checkpoint {
	c := new(Checkpoint)
	new(filler).fill(reflect.ValueOf(c).Elem())
	c.State.Phase = Tools
	c.State.Response.regrow()
	return c
}

// A field that is added to the state, or to a type that it holds, must be in its
// checkpoints. A new exported one is without further ado; one that is not
// exported needs a place in the type stored.
func TestCheckpointCarriesEverything(t *testing.T) {
	c := full()
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeCheckpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got, same); diff != "" {
		t.Errorf("a checkpoint does not carry everything (-stored +read):\n%s", diff)
	}
}

// A snapshot shares nothing with its state that the fold changes in place.
func TestSnapshotIsApart(t *testing.T) {
	c := full()
	snap := c.State.Snapshot()
	if diff := cmp.Diff(c.State, snap, same); diff != "" {
		t.Fatalf("a snapshot is not the state (-state +snapshot):\n%s", diff)
	}
	apart(t, "State", reflect.ValueOf(c.State).Elem(), reflect.ValueOf(snap).Elem())
}

// apart fails the test if two values of one type share what can be changed.
// Records cannot: they are facts.
func apart(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	ours := a.Type().PkgPath() == reflect.TypeFor[State]().PkgPath()
	switch a.Kind() {
	case reflect.Pointer, reflect.Map:
		record := a.Kind() == reflect.Pointer && a.Type().Elem().PkgPath() == reflect.TypeFor[journal.Born]().PkgPath()
		if a.IsNil() || record {
			return
		}
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
			return
		}
		if a.Kind() == reflect.Pointer {
			if a.Type() != reflect.TypeFor[*strings.Builder]() {
				apart(t, path, a.Elem(), b.Elem())
			}
			return
		}
		for _, k := range a.MapKeys() {
			apart(t, fmt.Sprintf("%s[%v]", path, k), a.MapIndex(k), b.MapIndex(k))
		}
	case reflect.Slice:
		if a.Len() == 0 || a.Type() == reflect.TypeFor[json.RawMessage]() {
			return
		}
		// The outcomes of an item are those of a batch that is over.
		if a.Pointer() == b.Pointer() && (!strings.HasPrefix(path, "State.Context") || !strings.HasSuffix(path, ".Outcomes")) {
			t.Errorf("%s is shared", path)
		}
		for i := range a.Len() {
			apart(t, fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
	case reflect.Struct:
		if !ours {
			return
		}
		for i := range a.NumField() {
			apart(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
}

// Whoever changes the shape of the state, or what a journal folds to, must raise
// checkpointVersion: an older program's checkpoint is not to be believed then.
func TestCheckpointVersion(t *testing.T) {
	golden := filepath.Join("testdata", "checkpoint.txt")
	want, err := os.ReadFile(golden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	got := fmt.Sprintf("version %d\n", checkpointVersion) + shape(t)
	if got == string(want) {
		return
	}
	before, _, _ := strings.Cut(string(want), "\n")
	now, _, _ := strings.Cut(got, "\n")
	switch {
	case before == now:
		t.Fatalf("checkpoints have another shape or meaning (-golden +now): raise checkpointVersion, then run go test ./internal/fold -run TestCheckpointVersion -update\n%s",
			cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")))
	case !*update:
		t.Fatalf("the golden is of %s, this is %s: run go test ./internal/fold -run TestCheckpointVersion -update", before, now)
	}
	if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shape describes what a checkpoint is made of and what it says of known
// journals.
func shape(t *testing.T) string {
	var b strings.Builder
	for _, k := range journal.Kinds() {
		fmt.Fprintf(&b, "kind %s\n", k)
	}
	seen := make(map[reflect.Type]bool)
	describe(&b, seen, reflect.TypeFor[stored]())
	files, err := filepath.Glob(filepath.Join("..", "..", "journal", "testdata", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no journals: %v", err)
	}
	for _, file := range files {
		fmt.Fprintf(&b, "journal %s %x\n", filepath.Base(file), meaning(t, file))
	}
	return b.String()
}

// rawJSON gives raw JSON one name: its two types are one from Go 1.27 on.
var rawJSON = strings.NewReplacer("json.RawMessage", "JSON", "jsontext.Value", "JSON")

func describe(b *strings.Builder, seen map[reflect.Type]bool, t reflect.Type) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		describe(b, seen, t.Elem())
	case reflect.Map:
		describe(b, seen, t.Key())
		describe(b, seen, t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if f.Type == reflect.TypeFor[byID]() {
				continue // a checkpoint does not have it
			}
			fmt.Fprintf(b, "%s.%s %s %s\n", t, f.Name, rawJSON.Replace(f.Type.String()), f.Tag)
		}
		for f := range t.Fields() {
			describe(b, seen, f.Type)
		}
	}
}

// meaning is the digest of the checkpoints after each batch of a journal.
func meaning(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	st := &State{Head: -1}
	for line := range strings.Lines(string(data)) {
		b, err := journal.Decode([]byte(strings.TrimSpace(line)))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		offset := st.Head + 1
		for _, r := range b.Records {
			if p, ok := r.(*journal.Repair); ok {
				st.PassOver(Span{p.From, p.To})
			}
			var rule *RuleError
			if err := st.Apply(r); err != nil && (!errors.As(err, &rule) || !rule.Undoes) { // which takes a replay
				t.Fatalf("%s: batch %d: %v", file, offset, err)
			}
		}
		st.Advance(offset)
		stored, err := (&Checkpoint{State: st}).Encode()
		if err != nil {
			t.Fatalf("%s: batch %d: %v", file, offset, err)
		}
		sum.Write(stored)
	}
	return sum.Sum(nil)[:8]
}

// What has the right checksum may still be anything. It is refused, or the fold
// can go on from it without a panic.
func FuzzCheckpointBody(f *testing.F) {
	for _, c := range []*Checkpoint{full(), {State: &State{Born: &journal.Born{}, Phase: Idle, Vars: map[string]json.RawMessage{}}}} {
		data, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(data), "\n")
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := decodeBody(body)
		if err != nil {
			return
		}
		st, resp := c.State, &c.State.Response
		sub, first := "", ""
		if n := len(st.Context); n > 0 {
			first = st.Context[n-1].ID()
		}
		if st.Active != nil {
			sub = st.Active.Submission
		}
		for _, r := range []journal.Record{
			&journal.TurnDelta{Turn: resp.Turn, BlockKind: journal.Text, Text: "x", Block: max(len(resp.Partial)-1, 0)},
			&journal.TurnDone{Turn: resp.Turn, Stop: journal.StopEnd},
			&journal.ToolBatch{Turn: resp.Turn},
			&journal.Entry{Purpose: journal.Notice, Message: journal.Message{Type: journal.SignalInterrupted}},
			&journal.Seam{Name: journal.SeamClosed, Submission: sub},
			&journal.Settled{Submission: sub, Outcome: journal.Failed},
			&journal.Admitted{Submission: "new"}, &journal.State{Name: "new"}, &journal.Abort{},
			&journal.Attempt{Submission: "new"}, &journal.Repair{},
			&journal.Compacted{ID: "k", First: first}, &journal.Uncompacted{ID: "k"},
			&journal.Summarizing{Submission: sub}, &journal.Unsummarized{Submission: sub},
		} {
			_ = st.Snapshot()
			_ = st.Apply(r)
		}
	})
}
