package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A ruin is a store of which some batches and attachments cannot be read. A batch
// stands for what follows it up to the next whole one.
type ruin struct {
	*memstore.Store
	bad   map[int64]bool
	spans map[int64]int64 // of whole and of bad batches
}

func (r *ruin) Instance(context.Context, store.Address) (store.Instance, error) {
	return store.Instance{Address: ruined, UID: "uid", Head: 20}, nil
}

func (r *ruin) Read(_ context.Context, _ store.Address, after int64, limit int) (store.Page, error) {
	p := store.Page{Instance: store.Instance{Address: ruined, UID: "uid", Head: 20}}
	for offset := int64(0); offset <= 20; offset += 1 + r.spans[offset] {
		if offset <= after || len(p.Batches) == limit {
			continue
		}
		if r.bad[offset] {
			return store.Page{}, fmt.Errorf("%w: batch %d", store.ErrCorrupt, offset)
		}
		p.Batches = append(p.Batches, store.Batch{Offset: offset, Span: r.spans[offset], Payload: fmt.Append(nil, offset)})
	}
	return p, nil
}

func (r *ruin) Accepted(context.Context, store.Address, string, int) ([]store.Accepted, error) {
	return nil, nil
}

func (r *ruin) AttachmentIDs(context.Context, store.Address, string, int) ([]string, error) {
	return []string{"a1", "gone", "spoiled"}, nil
}

func (r *ruin) Attachment(_ context.Context, _ store.Address, id string) (store.Attachment, error) {
	switch id {
	case "gone":
		return store.Attachment{}, store.ErrNotFound
	case "spoiled":
		return store.Attachment{}, store.ErrCorrupt
	}
	return store.Attachment{ID: id}, nil
}

var ruined = store.Address{Agent: "a", ID: "1"}

// taken is what an importer was given.
type taken struct {
	batches     []store.Batch
	attachments []string
}

func (t *taken) Import(_ context.Context, in store.Import) error {
	sound, err := store.NewSound(&in.Instance)
	for b, e := range in.Batches {
		err = errors.Join(err, e, sound.Batch(&b))
		t.batches = append(t.batches, b)
	}
	for range in.Submissions {
		err = errors.Join(err, errors.New("there is none"))
	}
	for a, e := range in.Attachments {
		err = errors.Join(err, e)
		t.attachments = append(t.attachments, a.ID)
	}
	return errors.Join(err, sound.End())
}

// What cannot be read is copied as what cannot be understood, for as many offsets
// as it stood for.
func TestCopyOfARuin(t *testing.T) {
	for name, r := range map[string]*ruin{
		"whole":           {},
		"the birth":       {bad: map[int64]bool{0: true}},
		"one":             {bad: map[int64]bool{7: true}},
		"neighbours":      {bad: map[int64]bool{7: true, 8: true, 9: true}},
		"the head":        {bad: map[int64]bool{20: true}},
		"a merged one":    {bad: map[int64]bool{7: true}, spans: map[int64]int64{7: 5}},
		"beside merged":   {bad: map[int64]bool{13: true}, spans: map[int64]int64{7: 5}},
		"a merged second": {bad: map[int64]bool{1: true}, spans: map[int64]int64{1: 18}},
		"merged together": {bad: map[int64]bool{3: true, 6: true}, spans: map[int64]int64{3: 2, 6: 3}},
	} {
		var want []store.Batch
		var lost []int64
		for offset := int64(0); offset <= 20; offset += 1 + r.spans[offset] {
			b := store.Batch{Offset: offset, Span: r.spans[offset], Payload: fmt.Append(nil, offset)}
			if r.bad[offset] {
				lost = append(lost, offset)
				b.Payload = nil
			}
			want = append(want, b)
		}
		to := &taken{}
		c, err := store.Copy(t.Context(), r, to, ruined)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// Of two damaged ones beside each other nobody knows where the second begins.
		if name == "merged together" {
			continue
		}
		if diff := cmp.Diff(want, to.batches); diff != "" {
			t.Errorf("%s: batches (-want +got):\n%s", name, diff)
		}
		if !slices.Equal(c.LostBatches, lost) || !slices.Equal(c.LostAttachments, []string{"gone", "spoiled"}) || !slices.Equal(to.attachments, []string{"a1"}) {
			t.Errorf("%s: lost %+v, want batches %v; attachments %v", name, c, lost, to.attachments)
		}
	}
}
