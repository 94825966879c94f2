package cli

import (
	"encoding/json"
	"net/http"

	"github.com/flue-go/flue"
)

// health answers whether the runtime is well, as far as well tells. What is wrong
// is told in stable words: the causes are in the log.
func health(rt *flue.Runtime, well func(flue.Health) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := rt.Health(r.Context())
		w.Header().Set("Cache-Control", "no-store")
		if well(h) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte("ok"))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(struct {
			Status  string   `json:"status"`
			Reasons []string `json:"reasons"`
		}{"unavailable", h.Reasons()})
	}
}
