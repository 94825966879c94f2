package crashtest

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// Leases last by the clock of the database, whatever the time is where the
// processes are.
func TestLeasesByTheClockOfTheDatabase(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			server := pgtest.Start(t)
			if !server.Skew(t, skew) {
				t.Skip("the database has the clock of all others")
			}
			db, err := postgres.Open(t.Context(), server.URL, postgres.Options{Migrate: true, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}()
			const ttl = 600 * time.Millisecond
			renew := func(node string) {
				t.Helper()
				if err := db.Renew(t.Context(), node, ttl); err != nil {
					t.Fatal(err)
				}
			}
			renew("old")
			addr := store.Address{Agent: "a", ID: "i"}
			_, err = db.Admit(t.Context(), &store.Admission{
				Address: addr, Submission: "s", Identity: []byte("i"), AcceptedAt: time.Now(), Payload: []byte("p"),
				Birth: &store.Birth{UID: "u", Incarnation: "c", Payload: []byte("b")},
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Take(t.Context(), "old", addr); err != nil {
				t.Fatalf("a node that has just renewed its lease cannot take an instance: %v", err)
			}
			renew("new")
			if _, err := db.Take(t.Context(), "new", addr); !errors.Is(err, store.ErrOwned) {
				t.Errorf("an instance of a live node: %v, want ErrOwned", err)
			}
			time.Sleep(ttl + 100*time.Millisecond) // the clock of another process cannot be a fake
			renew("new")
			if _, err := db.Take(t.Context(), "new", addr); err != nil {
				t.Errorf("an instance whose owner's lease has lapsed: %v", err)
			}
		})
	}
}
