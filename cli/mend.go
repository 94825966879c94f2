package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// errGrown says that nothing was done because the journal is not what it was.
var errGrown = errors.New("the journal has changed since it was looked at: run it again")

// mend takes the conversation from whoever owns it and repairs it, if the damage
// is still the one that was told of. It returns the offset of what it appended last.
func mend(ctx context.Context, st keeper, told *mending) (offset int64, err error) {
	lease, err := own(ctx, st, told.addr)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Release(context.WithoutCancel(ctx), lease)) }()
	// From here on nobody else writes to the journal, but for messages that are
	// accepted.
	m, err := diagnose(ctx, st, told.addr, time.Now())
	if err != nil {
		return 0, err
	}
	if m == nil || m.span.From != told.span.From || m.alone() != told.alone() {
		return 0, errGrown
	}
	return m.do(ctx, st, lease)
}

// own takes the conversation, from a process that lives if need be. That one has
// set it aside, or will when it reads it the next time.
func own(ctx context.Context, st store.Store, addr store.Address) (store.Lease, error) {
	node := "repair-" + strings.ToLower(rand.Text()[:8])
	if err := st.Renew(ctx, node, time.Minute); err != nil {
		return store.Lease{}, err
	}
	lease, err := st.Take(ctx, node, addr)
	if s, ok := st.(store.Seizer); ok && errors.Is(err, store.ErrOwned) {
		return s.Seize(ctx, node, addr)
	}
	return lease, err
}

// do appends the repair and reads the journal again.
func (m *mending) do(ctx context.Context, st keeper, lease store.Lease) (offset int64, err error) {
	for before := m.head; ; before = offset {
		if offset, err = m.append(ctx, st, lease); err != nil {
			return offset, err
		}
		if offset == before+1 {
			break
		}
		// Messages have come in between. The record does not name them, so that
		// nobody would ever answer them.
		if m.open, err = st.Unsettled(ctx, m.addr); err != nil || len(m.open) == 0 {
			break
		}
		if err := m.endMore(ctx, st); err != nil {
			return offset, err
		}
	}
	if err == nil {
		_, err = replay(ctx, st, m.addr)
	}
	if err != nil {
		return offset, fmt.Errorf("the repair was written and does not help: %w. Restore a backup", err)
	}
	return offset, nil
}

// endMore makes the repair one that ends what is open now, and does nothing else.
func (m *mending) endMore(ctx context.Context, st store.Store) error {
	s, err := look(ctx, st, m.addr, m.span)
	if err != nil {
		return err
	}
	m.origins = s.origins
	r := &journal.Repair{From: m.span.From, To: m.span.To, Reason: m.damage.Error()}
	m.batch = journal.Batch{At: time.Now(), Records: []journal.Record{r}}
	for _, sub := range m.open {
		r.Open = append(r.Open, sub.ID)
		m.batch.Records = append(m.batch.Records, m.failure(sub)...)
	}
	return nil
}

func (m *mending) append(ctx context.Context, st store.Store, lease store.Lease) (int64, error) {
	w := store.Write{}
	var err error
	if w.Payload, err = journal.Encode(m.batch); err != nil {
		return 0, err
	}
	for _, sub := range m.open {
		w.Settle = append(w.Settle, store.Settlement{Submission: sub.ID, Outcome: journal.Failed})
	}
	return st.Append(ctx, lease, w)
}
