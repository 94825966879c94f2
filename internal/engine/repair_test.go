package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/wire"
)

// A spoiled store cannot read some batches of the instance chat.
type spoiled struct {
	store.Store
	bad []int64
}

func (s *spoiled) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	p, err := s.Store.Read(ctx, addr, after, limit)
	for _, b := range p.Batches {
		if addr == chat && slices.Contains(s.bad, b.Offset) {
			return store.Page{}, fmt.Errorf("%w: batch %d", store.ErrCorrupt, b.Offset)
		}
	}
	return p, err
}

// holding returns the offset of the batch with the n-th record that match
// accepts.
func holding(t *testing.T, s store.Store, n int, match func(journal.Record) bool) int64 {
	t.Helper()
	for b, err := range store.Batches(t.Context(), s, chat, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(batch.Records, match) {
			if n--; n == 0 {
				return b.Offset
			}
		}
	}
	t.Fatal("there is no such batch")
	return 0
}

// mend appends records as another owner would who has the store for himself.
func mend(t *testing.T, s *memstore.Store, records ...journal.Record) *memstore.Store {
	t.Helper()
	s = s.Reopen()
	if err := s.Renew(t.Context(), "operator", time.Minute); err != nil {
		t.Fatal(err)
	}
	lease, err := s.Take(t.Context(), "operator", chat)
	if err != nil {
		t.Fatal(err)
	}
	w := store.Write{}
	for _, r := range records {
		if r, ok := r.(*journal.Settled); ok {
			w.Settle = append(w.Settle, store.Settlement{Submission: r.Submission, Outcome: r.Outcome})
		}
	}
	if w.Payload, err = journal.Encode(journal.Batch{At: time.Now(), Records: records}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), lease, w); err != nil {
		t.Fatal(err)
	}
	return s.Reopen()
}

// followed reads all updates, as a client that catches up does, and returns how
// many chunks it got of each type.
func followed(e *engine.Engine) (map[string]int, error) {
	got := make(map[string]int)
	for after := int64(-1); ; {
		u, err := e.Updates(context.Background(), chat, after, 3)
		if err != nil {
			return got, err
		}
		var chunks []wire.Chunk
		if err := json.Unmarshal(slices.Concat([]byte("["), u.Chunks, []byte("]")), &chunks); err != nil {
			return got, err
		}
		for _, c := range chunks {
			got[string(c.Type)]++
		}
		if after = u.Next; u.UpToDate {
			return got, nil
		}
	}
}

func isDelta(r journal.Record) bool {
	_, ok := r.(*journal.TurnDelta)
	return ok
}

// talk makes a conversation of three messages whose answers stream.
func talk(t *testing.T, w *world) *memstore.Store {
	t.Helper()
	s := memstore.New()
	e := w.start(t, s)
	for _, text := range []string{"one", "two", "three"} {
		settled(t, e, chat, send(t, e, chat, text))
	}
	stop(t, e)
	return s
}

func slowEcho(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
	text, _ := asked(req)
	for _, word := range []string{"you ", "said ", text} {
		if !yield(model.Delta{Kind: model.Text, Text: word}, nil) || !pause(ctx, 3*time.Second) {
			return
		}
	}
	yield(model.BlockDone{Block: model.Block{Kind: model.Text, Text: "you said " + text}}, nil)
	yield(model.Done{Stop: model.StopEnd}, nil)
}

// A conversation goes on after a repair that passes over what cannot be read and
// all behind it. The agent has forgotten that; people have not.
func TestRepairedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = slowEcho
		s := talk(t, w)
		head := int64(0)
		if inst, err := s.Instance(t.Context(), chat); err == nil {
			head = inst.Head
		}
		var message string
		bad := holding(t, s, 2, func(r journal.Record) bool {
			turn, ok := r.(*journal.TurnDone)
			if ok {
				message = turn.Response
			}
			return ok
		})

		// Until then it is set aside, and says so.
		e := w.start(t, &spoiled{Store: s.Reopen(), bad: []int64{bad}})
		lost := send(t, e, chat, "lost")
		for {
			inst, err := e.Instance(t.Context(), chat)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Wait(t.Context(), chat, inst.Head); errors.Is(err, engine.ErrDamaged) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		_, err := e.Admit(t.Context(), engine.Admission{Address: chat, Submission: "refused", Message: journal.Message{Kind: journal.User, Body: "x"}})
		if !errors.Is(err, engine.ErrDamaged) || !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a message to it: %v, want ErrDamaged and the reason", err)
		}
		if _, err := e.Submission(t.Context(), chat, "refused"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the refused message: %v, want that it is not there", err)
		}
		if _, err := e.Snapshot(t.Context(), chat); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("its snapshot: %v, want ErrCorrupt", err)
		}
		if got, err := followed(e); !errors.Is(err, store.ErrCorrupt) || got["message-appended"] != 2 {
			t.Errorf("its updates: %v, %v, want all before the damage and ErrCorrupt", got, err)
		}
		stop(t, e)

		notice := &journal.Entry{ID: "e_repair", Purpose: journal.Narration, Message: journal.Message{Kind: journal.Signal, Type: journal.SignalRepaired, Body: "mended"}}
		s = mend(t, s, &journal.Repair{From: bad, To: head + 1, Open: []string{lost}, Messages: []string{message}}, notice, &journal.Settled{Submission: lost, Outcome: journal.Failed, AnsweredBy: lost})
		e = w.start(t, &spoiled{Store: s, bad: []int64{bad}})
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "four")); got != "completed" {
			t.Fatalf("the next message settled %s", got)
		}
		var shown []string
		for _, m := range w.last.Messages {
			for _, b := range m.Blocks {
				shown = append(shown, b.Text)
			}
		}
		if text := strings.Join(shown, "|"); !strings.HasPrefix(text, "one|you said one|two|") || !strings.Contains(text, "mended") || !strings.HasSuffix(text, "four") || strings.Contains(text, "three") {
			t.Errorf("the model was shown %q", text)
		}
		want := []string{
			`user text "one" done`, `assistant text "you said one" done`,
			`user text "two" done`, `assistant text "you said two" done`,
			`user text "three" done`, `assistant text "you said three" done`,
			`system text "mended" done`,
			`user text "four" done`, `assistant text "you said four" done`,
			"settled completed", "settled completed", "settled failed", "settled completed",
		}
		// The settlement of "two" was in the batch that cannot be read, and so was
		// the end of its answer, which the repair tells.
		if diff := cmp.Diff(want, transcript(t, e, chat)); diff != "" {
			t.Errorf("conversation (-want +got):\n%s", diff)
		}
		if got, err := followed(e); err != nil || got["submission-settled"] != 4 {
			t.Errorf("updates: %v, %v", got, err)
		}
		if _, uid, err := e.Vars(t.Context(), chat); err != nil || uid == "" {
			t.Errorf("the state: %v", err)
		}
	})
}

// A batch that nothing depends on is passed over alone.
func TestRepairOfOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reply = slowEcho
		s := talk(t, w)
		bad := holding(t, s, 2, isDelta)
		s = mend(t, s, &journal.Repair{From: bad, To: bad})
		e := w.start(t, &spoiled{Store: s, bad: []int64{bad}})
		defer stop(t, e)
		if got := settled(t, e, chat, send(t, e, chat, "four")); got != "completed" {
			t.Fatalf("the next message settled %s", got)
		}
		if n := len(w.last.Messages); n != 7 {
			t.Errorf("the model was shown %d messages, want all 7", n)
		}
	})
}
