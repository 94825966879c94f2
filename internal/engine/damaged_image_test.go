package engine_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// lossy is a store that has lost the bytes of its attachments, or cannot be reached.
type lossy struct {
	store.Store
	err error
}

func (l *lossy) Attachment(context.Context, store.Address, string) (store.Attachment, error) {
	return store.Attachment{}, l.err
}

// An image that the store has lost gives way to a note. The conversation that it
// is a part of goes on.
func TestImageThatIsLost(t *testing.T) {
	for _, lost := range []error{store.ErrNotFound, store.ErrCorrupt} {
		t.Run(lost.Error(), func(t *testing.T) {
			w := newWorld()
			w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) { say(yield, "fine") }
			e := w.start(t, &lossy{memstore.New(), lost})
			defer func() { stop(t, e) }()
			data := []byte("an image")
			id := engine.NewSubmissionID()
			_, err := e.Admit(t.Context(), engine.Admission{
				Address: chat, Submission: id, Identity: []byte("look"), Origin: "direct",
				Message:     journal.Message{Kind: journal.User, Body: "look", Attachments: []journal.Attachment{{ID: "att_1", MediaType: "image/png", Size: len(data)}}},
				Attachments: []store.Attachment{{ID: "att_1", MediaType: "image/png", Digest: sha256.Sum256(data), Data: data}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{id, send(t, e, chat, "and now?")} {
				if got := settled(t, e, chat, id); got != "completed" {
					t.Errorf("settled %s", got)
				}
			}
			if got := shownText(w.last); !strings.Contains(got, "It is damaged and cannot be shown") {
				t.Errorf("the model is shown %q", got)
			}
		})
	}
}

// A model of which nobody knows whether it takes images, and that refuses them, is
// asked once more with notes in their place. The conversation goes on so, whoever
// dies in between, and is not refused again.
func TestImagesThatAreRefused(t *testing.T) {
	refuse := func(w *world, req *model.Request, yield func(model.Event, error) bool) {
		images := slices.ContainsFunc(req.Messages, func(m model.Message) bool {
			return slices.ContainsFunc(m.Blocks, func(b model.Block) bool { return b.Kind == model.Image })
		})
		w.effect("images %v", images)
		if images {
			yield(nil, &model.Error{Class: model.Invalid, Status: 400, Message: "image_url is not supported"})
			return
		}
		say(yield, "fine")
	}
	look := func(t *testing.T, e *engine.Engine) string {
		a := engine.Admission{
			Address: chat, Submission: engine.NewSubmissionID(), Identity: []byte("look"), Origin: "direct",
			Message: journal.Message{Kind: journal.User, Body: "look"},
		}
		addImage(&a, 1)
		if _, err := e.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return a.Submission
	}
	t.Run("once", func(t *testing.T) {
		w := newWorld()
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			refuse(w, req, yield)
		}
		e := w.start(t, memstore.New())
		defer func() { stop(t, e) }()
		if got := settled(t, e, chat, look(t, e)); got != "completed" {
			t.Errorf("settled %s", got)
		}
		converse(t, e, "and now?")
		if want := []string{"images true", "images false", "images false"}; !slices.Equal(w.did(), want) {
			t.Errorf("the requests have %v", w.did())
		}
		if got := shownText(w.latest()); !strings.Contains(got, "cannot see images") {
			t.Errorf("the model is shown %q", got)
		}
	})
	t.Run("it was something else", func(t *testing.T) {
		w := newWorld()
		w.reply = func(_ context.Context, _ *model.Request, yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Invalid, Status: 400, Message: "no"})
		}
		e := w.start(t, memstore.New())
		defer func() { stop(t, e) }()
		if got := settled(t, e, chat, look(t, e)); got != "failed" || w.asked() != 2 {
			t.Errorf("settled %s after %d calls", got, w.asked())
		}
	})
	t.Run("a death in between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			held := make(chan struct{}, 10)
			w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if w.asked() == 2 { // the one without images
					held <- struct{}{}
					<-ctx.Done()
					return
				}
				refuse(w, req, yield)
			}
			s := memstore.New()
			e := w.start(t, s)
			id := look(t, e)
			<-held
			synctest.Wait()
			s = die(t, e, s)
			e = w.start(t, s)
			defer func() { stop(t, e) }()
			if got := settled(t, e, chat, id); got != "completed" {
				t.Errorf("settled %s", got)
			}
			if want := []string{"images true", "images false"}; !slices.Equal(w.did(), want) {
				t.Errorf("the requests have %v", w.did())
			}
		})
	})
}
