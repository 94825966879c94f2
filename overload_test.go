package flue_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// An overloaded runtime refuses messages over HTTP with a 503 that says when to come
// again, and stores nothing of them. It serves reads and aborts, answers what it has
// accepted before, and is ready.
func TestOverloaded(t *testing.T) {
	release := make(chan struct{})
	s := memstore.New()
	one := struct {
		store.Store
	}{s} // of one process, so that what waits is counted at once
	rt, server, _ := served(t, one, flue.Limits{Concurrent: 1, Backlog: 1}, func(*model.Request) script.Turn {
		<-release
		return script.Say("yes")
	})
	events := make(chan flue.Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loop := rt.Observe(ctx, flue.ObserveOptions{})
	go func() {
		defer close(events)
		for ev := range loop {
			if ev.Type == flue.EventOverloaded || ev.Type == flue.EventRelieved {
				events <- ev
			}
		}
	}()
	url := server.URL + "/agents/actor/"
	if got := request(t, "POST", url+"one", `{"kind":"user","body":"first"}`); got.status != http.StatusAccepted {
		t.Fatal(got)
	}
	for rt.Health(t.Context()).Working != 1 { // its driver begins
		time.Sleep(time.Millisecond)
	}
	second := `{"kind":"user","body":"second","idempotencyKey":"k"}`
	if got := request(t, "POST", url+"two", second); got.status != http.StatusAccepted {
		t.Fatal(got)
	}
	for name, body := range map[string]string{
		"three": `{"kind":"user","body":"third"}`,
		"four":  `{"kind":"user","body":"fourth","idempotencyKey":"j"}`,
		"five":  `{"kind":"user","body":"` + strings.Repeat("x", 100_000) + `"}`,
	} {
		got := request(t, "POST", url+name, body)
		after, err := strconv.Atoi(got.header.Get("Retry-After"))
		if got.status != http.StatusServiceUnavailable || got.Error.Type != flue.CodeOverloaded || err != nil || after < 1 || after > 30 {
			t.Errorf("%s: %d %s, %v", name, got.status, got.body, got.header)
		}
		if got.Error.Meta["reason"] != "backlog" || got.Error.Meta["retryAfter"] != float64(after) {
			t.Errorf("%s: %v", name, got.Error.Meta)
		}
		if _, err := s.Instance(t.Context(), store.Address{Agent: "actor", ID: name}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: something was stored: %v", name, err)
		}
	}
	if got := request(t, "POST", url+"two", second); got.status != http.StatusAccepted || !strings.Contains(got.body, `"deduplicated":true`) {
		t.Errorf("a message that was accepted before: %d %s", got.status, got.body)
	}
	if got := request(t, "POST", url+"two", strings.Replace(second, "second", "other", 1)); got.status != http.StatusConflict {
		t.Errorf("another message under its key: %d %s", got.status, got.body)
	}
	for _, path := range []string{"one", "one?view=updates&offset=-1", "two"} {
		if got := request(t, "GET", url+path, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	_, err := rt.Dispatch(t.Context(), "actor", "six", flue.User("hello"))
	var told *flue.Error
	if !errors.As(err, &told) || told.Code != flue.CodeOverloaded || told.RetryAfter < time.Second {
		t.Errorf("%v", err)
	}
	h := rt.Health(t.Context())
	if !h.Ready() || h.Accepting() || h.Overloaded != "backlog" || h.String() != "overloaded" || h.Waiting != 1 {
		t.Errorf("%+v is %s", h, h)
	}
	if ev := <-events; ev.Type != flue.EventOverloaded || ev.Reason != "backlog" {
		t.Errorf("%+v", ev)
	}
	if got := request(t, "POST", url+"two/abort", ""); got.status != http.StatusOK || got.body != `{"aborted":true}` {
		t.Errorf("an abort: %d %s", got.status, got.body)
	}
	if ev := <-events; ev.Type != flue.EventRelieved { // what is aborted does not wait
		t.Errorf("%+v", ev)
	}
	if got := request(t, "POST", url+"three", `{"kind":"user","body":"third"}`); got.status != http.StatusAccepted {
		t.Errorf("with room again: %d %s", got.status, got.body)
	}
	close(release)
	cancel()
	for range events {
	}
}
