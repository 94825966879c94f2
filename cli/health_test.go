package cli

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// The health check says in stable words what is wrong, and nothing more. Only what
// a restart mends fails the check of whether the program lives.
func TestHealthCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := faultstore.New(memstore.New())
		agent := &flue.Agent{Name: "helper", Render: func(*flue.Render) string { return "" }}
		rt, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{agent}, Store: fault})
		if err != nil {
			t.Fatal(err)
		}
		s := &server{program: &program{app: App{Agents: []*flue.Agent{agent}}}}
		h := s.handler(rt, nil)
		want := func(when, ready, live string) {
			t.Helper()
			for path, body := range map[string]string{"/health": ready, "/health/live": live} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
				code, media := http.StatusOK, "text/plain; charset=utf-8"
				if body != "ok" {
					code, media = http.StatusServiceUnavailable, "application/json"
				}
				if w.Code != code || w.Body.String() != body || w.Header().Get("Content-Type") != media || w.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("%s, %s answers %d %q, %v", when, path, w.Code, w.Body, w.Header())
				}
			}
		}
		want("when all is well", "ok", "ok")
		fault.RefuseRenewals(errors.New("secret"))
		time.Sleep(6 * time.Second) // simulated
		want("without a lease", `{"status":"unavailable","reasons":["lease_lapsed"]}`+"\n", "ok")
		fault.RefuseRenewals(nil)
		time.Sleep(time.Second) // simulated
		want("with a lease", "ok", "ok")
		fault.SetHook(func(context.Context, faultstore.Point) error { return store.ErrPoisoned })
		if _, err := rt.Dispatch(t.Context(), "helper", "a", flue.User("hi")); err == nil {
			t.Error("a message was accepted")
		}
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
		body := `{"status":"unavailable","reasons":["store_poisoned","closing"]}` + "\n"
		want("with a store that takes no writes", body, body)
	})
}
