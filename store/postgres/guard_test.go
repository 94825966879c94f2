package postgres_test

import (
	"testing"
	"time"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store/postgres"
)

// Nodes that have been gone for a day are dropped, soon after a store was opened,
// unless they own work that nobody has taken over.
func TestNodesAreForgotten(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, "flue")
	for i, node := range []string{"working", "idle", "recent", "old"} {
		renew(t, s, node)
		if node == "old" {
			continue
		}
		admit(t, s, admission(other(i), "s1"))
		l := take(t, s, node, other(i))
		if node == "idle" {
			appendTo(t, s, l, "end", settled("s1"))
		}
	}
	closeStore(t, s)
	pgtest.Exec(t, url, `UPDATE flue.nodes SET lapses_at = clock_timestamp() - interval '25 hours' WHERE name <> 'recent'`,
		`UPDATE flue.nodes SET lapses_at = clock_timestamp() - interval '23 hours' WHERE name = 'recent'`)
	openWith(t, url, postgres.Options{Timeout: time.Second}) // it looks about as often
	const query = `SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM flue.nodes`
	late := time.Now().Add(time.Minute)
	for pgtest.Value[string](t, url, query) != "recent working" {
		if time.Now().After(late) {
			t.Fatalf("after a minute the nodes are %q", pgtest.Value[string](t, url, query))
		}
	}
}
