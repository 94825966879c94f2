package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/store/postgres"
)

// The cost of a statement does not grow with the tables: in no plan is one read
// as a whole. Those of the statements that every message needs are so even if the
// tables were small when they were made, because plans are kept. Nodes are few.
func TestPlans(t *testing.T) {
	url := pgtest.Database(t)
	open(t, url, "flue")
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	exec := func(sql string) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := postgres.Settle(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	plans := func(when string, of ...string) {
		for name, sql := range postgres.Statements("flue") {
			if len(of) > 0 && !slices.Contains(of, name) {
				continue
			}
			exec("PREPARE p AS " + sql)
			rows, err := c.Query(t.Context(), "EXPLAIN EXECUTE p"+nulls(sql))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if line := wholeTable(plan); line != "" && !everything[name] {
				t.Errorf("%s, %s: %s in\n%s", name, when, line, strings.Join(plan, "\n"))
			}
			exec("DEALLOCATE p")
		}
	}
	often := []string{"append", "appendAll", "admit", "abort", "lock", "take", "read", "instance", "submission"}
	plans("empty tables")
	exec(`INSERT INTO flue.instances (agent, name, uid, incarnation, head, unsettled, owner, epoch)
		SELECT 'clerk', 'first' || n, '', '', 1, 0, '', 0 FROM generate_series(1, 100) n`)
	exec(`INSERT INTO flue.batches SELECT n, 0, 1, 0, 0, 'x' FROM generate_series(1, 100) n`)
	exec(`INSERT INTO flue.submissions SELECT n, 's', 1, '', 0, 'completed', 0 FROM generate_series(1, 100) n`)
	exec(`INSERT INTO flue.attachments SELECT n, 'a', '', '', '' FROM generate_series(1, 100) n`)
	exec(`ANALYZE`)
	plans("small tables", often...)
	exec(`INSERT INTO flue.nodes SELECT 'node ' || n, now() FROM generate_series(1, 20) n`)
	exec(`INSERT INTO flue.instances (agent, name, uid, incarnation, head, unsettled, owner, epoch, ready_at)
		SELECT 'clerk', 'i' || n, n, '', 20, CASE WHEN n % 20 = 0 THEN 1 ELSE 0 END, 'node ' || n % 20, 1, CASE WHEN n % 20 = 0 THEN now() END
		FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO flue.batches SELECT n, p, 1, 0, 0, 'x' FROM generate_series(101, 20100) n, generate_series(0, 9) p`)
	exec(`INSERT INTO flue.submissions SELECT n, 's' || p, p, '', 0, CASE WHEN n % 20 = 0 THEN '' ELSE 'completed' END, 0
		FROM generate_series(101, 20100) n, generate_series(1, 2) p`)
	exec(`INSERT INTO flue.attachments SELECT n, 'a', '', '', '' FROM generate_series(101, 20100) n`)
	exec(`INSERT INTO flue.blobs SELECT n, '', '' FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO flue.checkpoints SELECT n, p, 0, '' FROM generate_series(1, 20000) n, generate_series(1, 2) p`)
	plans("large tables of which nothing new is known", often...)
	exec(`ANALYZE`)
	plans("large tables")
}

// everything are statements that are meant to read a whole table.
var everything = map[string]bool{"nodes": true}

var (
	scan = regexp.MustCompile(`(Seq|Index|Index Only|Bitmap Index) Scan (?:Backward )?(?:using (\w+) )?on (\w+)`)
	kept = []string{"instances", "batches", "submissions", "attachments", "blobs", "checkpoints"}
)

// wholeTable returns the line of a plan by which a table is read as a whole, or a
// whole index of one. The index of work has only what is to be done.
func wholeTable(plan []string) string {
	for i, line := range plan {
		m := scan.FindStringSubmatch(line)
		bitmap := m != nil && strings.HasPrefix(m[1], "Bitmap") // of an index, which is named as the table
		if m == nil || !bitmap && !slices.Contains(kept, m[3]) || m[2] == "instances_ready" || m[3] == "instances_ready" {
			continue
		}
		if i+1 == len(plan) || !strings.Contains(plan[i+1], "Index Cond:") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// nulls are as many arguments as a statement has.
func nulls(sql string) string {
	most := 0
	for _, m := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(sql, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			panic(fmt.Sprint("a placeholder without a number: ", m[0]))
		}
		most = max(most, n)
	}
	if most == 0 {
		return ""
	}
	return "(" + strings.TrimSuffix(strings.Repeat("NULL, ", most), ", ") + ")"
}

// Instances that wait for agents that nobody has are not walked by those who claim
// or count the work of others.
func TestStraysCostNothing(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, "flue")
	renew(t, s, "n1")
	pgtest.Exec(t, url, `INSERT INTO flue.instances (agent, name, uid, incarnation, head, unsettled, owner, epoch, ready_at)
		SELECT 'agent ' || n % 3, 'i' || n, n, '', 0, 1, '', 1, now() - interval '1 hour' FROM generate_series(1, 30000) n`, `ANALYZE flue.instances`)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	if err := postgres.Settle(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]string{"claim": `('n1', 10, ARRAY['clerk'])`, "unowned": `(10, ARRAY['clerk'])`} {
		if _, err := c.Exec(t.Context(), "PREPARE "+name+" AS "+postgres.Statements("flue")[name]); err != nil {
			t.Fatal(err)
		}
		rows, err := c.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) EXECUTE "+name+args)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		blocks := 0
		all := plan[slices.IndexFunc(plan, func(line string) bool { return strings.Contains(line, "Buffers:") })]
		for _, m := range regexp.MustCompile(`(?:hit|read)=(\d+)`).FindAllStringSubmatch(all, -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			blocks += n
		}
		if blocks == 0 || blocks > 200 {
			t.Errorf("%s looks at %d blocks:\n%s", name, blocks, strings.Join(plan, "\n"))
		}
	}
}
