package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A busy store takes messages in just before it appends what an owner has.
type busy struct {
	*spoiled
	t        *testing.T
	messages int
}

func (s *busy) Append(ctx context.Context, lease store.Lease, w store.Write) (int64, error) {
	if s.messages > 0 {
		id := fmt.Sprint("late", s.messages)
		s.messages--
		write(s.t, s.Store, []journal.Record{&journal.Admitted{Submission: id, Message: journal.Message{Kind: journal.User, Body: id}, Origin: "direct"}})
	}
	return s.spoiled.Append(ctx, lease, w)
}

// Messages that are accepted while a repair is written end with it, so that nothing
// waits for an answer that nobody gives.
func TestRepairWhileMessagesCome(t *testing.T) {
	for messages := range 4 {
		st := memstore.New()
		write(t, st, history()...)
		damaged := &busy{&spoiled{st, []int64{6}}, t, 0}
		m, err := diagnose(t.Context(), damaged, patient, repairTime)
		if err != nil {
			t.Fatal(err)
		}
		damaged.messages = messages
		offset, err := mend(t.Context(), damaged, m)
		if err != nil {
			t.Fatalf("%d messages: %v", messages, err)
		}
		if want := m.head + 1 + 2*int64(messages); offset != want {
			t.Errorf("%d messages: the last batch is %d, want %d", messages, offset, want)
		}
		state, err := replay(t.Context(), damaged, patient)
		if err != nil || state.Phase != fold.Idle || state.Unsettled() {
			t.Errorf("%d messages: phase %v, %v", messages, state.Phase, err)
		}
		open, err := st.Unsettled(t.Context(), patient)
		if err != nil || len(open) != 0 {
			t.Errorf("%d messages: %v are unsettled, %v", messages, open, err)
		}
		for i := range messages {
			sub, err := st.Submission(t.Context(), patient, fmt.Sprint("late", i+1))
			if err != nil || sub.Outcome != journal.Failed {
				t.Errorf("%d messages: %+v, %v", messages, sub, err)
			}
		}
	}
}

// ownedByNode gives the conversation to a node that lives.
func ownedByNode(t *testing.T, st store.Store) store.Lease {
	t.Helper()
	if err := st.Renew(t.Context(), "n", time.Hour); err != nil {
		t.Fatal(err)
	}
	lease, err := st.Take(t.Context(), "n", patient)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A conversation is taken from a process that lives, which can write nothing more
// and gets it back like any other.
func TestRepairOfWhatALiveNodeOwns(t *testing.T) {
	st := memstore.New()
	write(t, st, history()...)
	lease := ownedByNode(t, st)
	damaged := &spoiled{st, []int64{6}}
	m, err := diagnose(t.Context(), damaged, patient, repairTime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mend(t.Context(), damaged, m); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), lease, store.Write{Payload: []byte("late")}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the owner writes on: %v", err)
	}
	if _, err := st.Take(t.Context(), "n", patient); err != nil {
		t.Errorf("the conversation is not free: %v", err)
	}
}

// A store without seizing, as a file of SQLite.
type unseizable struct {
	store.Store
	store.Lister
}

func TestRepairOfWhatCannotBeTaken(t *testing.T) {
	st := memstore.New()
	write(t, st, history()...)
	lease := ownedByNode(t, st)
	damaged := &spoiled{st, []int64{6}}
	m, err := diagnose(t.Context(), damaged, patient, repairTime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mend(t.Context(), &unseizable{damaged, damaged}, m); !errors.Is(err, store.ErrOwned) {
		t.Errorf("error %v, want ErrOwned", err)
	}
	if _, err := st.Append(t.Context(), lease, store.Write{Payload: []byte("on")}); err != nil {
		t.Errorf("the owner: %v", err)
	}
}

// What is repaired is what was told of, or nothing.
func TestRepairOfSomethingElse(t *testing.T) {
	for name, now := range map[string][]int64{"no damage": nil, "damage before it": {4, 6}, "damage behind it": {12}} {
		st := memstore.New()
		write(t, st, history()...)
		damaged := &spoiled{st, []int64{6}}
		m, err := diagnose(t.Context(), damaged, patient, repairTime)
		if err != nil {
			t.Fatal(err)
		}
		damaged.bad = now
		before := kept(t, st)
		if _, err := mend(t.Context(), damaged, m); !errors.Is(err, errGrown) {
			t.Errorf("%s: error %v", name, err)
		}
		if after := kept(t, st); len(after) != len(before) {
			t.Errorf("%s: the journal has %d batches more", name, len(after)-len(before))
		}
	}
}
