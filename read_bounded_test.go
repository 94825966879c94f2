package flue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A pageCounter has short pages and counts them.
type pageCounter struct {
	*memstore.Store
	pages atomic.Int64
}

func (s *pageCounter) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	s.pages.Add(1)
	return s.Store.Read(ctx, addr, after, 20)
}

// The reply to a message is read from its own part of the journal, however much
// comes before and after it.
func TestReadIsBounded(t *testing.T) {
	s := &pageCounter{Store: memstore.New()}
	f := &fake{answer: func(req *model.Request) []model.Block { return text("re: " + script.LastUser(req)) }}
	rt, err := flue.Open(t.Context(), flue.Config{Store: s, Providers: map[string]model.Provider{"fake": f}, Agents: []*flue.Agent{agent(func(r *flue.Render) string {
		flue.UseModel(r, "fake/m")
		return ""
	})}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	in := rt.Instance("helper", "c1")
	var sent []flue.Receipt
	for i := range 120 {
		r, err := in.Dispatch(t.Context(), flue.User(fmt.Sprint("message ", i)))
		if err == nil {
			_, err = in.Read(t.Context(), r.Submission)
		}
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, r)
	}
	for _, i := range []int{0, 60, 119} {
		before := s.pages.Load()
		reply, err := in.Read(t.Context(), sent[i].Submission)
		if want := fmt.Sprint("re: message ", i); err != nil || reply.Text != want {
			t.Errorf("the reply to message %d is %+v, %v", i, reply, err)
		}
		if n := s.pages.Load() - before; n > 1 {
			t.Errorf("to read the reply to message %d, %d pages were read", i, n)
		}
	}
}
