package cli_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/pgtest"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/postgres"
)

// password is what must not be seen anywhere.
const password = "geh3im&wort"

// database makes an empty database and names it in FLUE_DB, with a password that
// the server does not ask for.
func database(t *testing.T) string {
	t.Helper()
	db := pgtest.With(t, pgtest.Database(t), func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), password) })
	t.Setenv("FLUE_DB", db)
	return db
}

// asked runs the program of testApp in this process, with the place of FLUE_DB. The
// password must be in none of its output.
func asked(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	code, stdout, stderr = invokeApp(t, args...)
	for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password), url.UserPassword("", password).String()[1:]} {
		hides(t, stdout+stderr, form)
	}
	return code, stdout, stderr
}

func done(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := asked(t, args...)
	if code != 0 {
		t.Fatalf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// refused runs what must fail with the words.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	code, stdout, stderr := asked(t, args...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("%q: exit code %d, %q, %q, want %q", args, code, stdout, stderr, want)
	}
}

// A newcomer needs one command: the first one makes the tables.
func TestPostgresRun(t *testing.T) {
	database(t)
	refused(t, "there are no conversations in postgres://", "inspect")
	if got := done(t, "run", "--id", "a", "-m", "say it"); got != "it\n" {
		t.Errorf("the reply is %q", got)
	}
	if got := done(t, "run", "--id", "a", "-m", "count"); got != "messages: 2\n" {
		t.Errorf("the reply is %q", got)
	}
	shows(t, done(t, "inspect", "--check"), `^echo +a +idle +0 `)
	shows(t, done(t, "inspect", "echo", "a"), `^phase +idle$`, `^unsettled +0 messages$`)
	shows(t, done(t, "inspect", "echo", "a", "--records"), ` settled +sub_\S+ completed`)
	shows(t, done(t, "repair", "echo", "a"), `there is nothing to repair`)
	done(t, "models")
	shows(t, done(t, "--help"), `"?\.flue/app\.db`)
}

// Programs of one database keep their conversations apart by schemas.
func TestPostgresSchema(t *testing.T) {
	db := database(t)
	t.Setenv("FLUE_DB", pgtest.With(t, db, func(u *url.URL) { u.RawQuery = "schema=other%20one&pool_max_conns=5" }))
	done(t, "run", "--id", "a", "-m", "say it")
	if n := pgtest.Value[int](t, db, `SELECT count(*) FROM "other one".instances`); n != 1 {
		t.Errorf("%d conversations in the schema", n)
	}
	t.Setenv("FLUE_DB", db)
	refused(t, "there are no conversations", "inspect")
	t.Setenv("FLUE_DB", pgtest.With(t, db, func(u *url.URL) { u.RawQuery = "pool_max_conns=2" }))
	refused(t, "want 5 to", "run", "--id", "a", "-m", "say it")
}

func TestMigrate(t *testing.T) {
	db := database(t)
	refused(t, "a migration is needed: postgres://", "migrate", "--check")
	if n := pgtest.Value[int](t, db, `SELECT count(*) FROM pg_namespace WHERE nspname = 'flue'`); n != 0 {
		t.Error("migrate --check has made a schema")
	}
	shows(t, done(t, "migrate"), `^postgres://\S+: from no tables to format \d+\.$`)
	shows(t, done(t, "migrate"), `has format \d+, which is that of this version\.$`)
	shows(t, done(t, "migrate", "--check"), `has format \d+, which is that of this version\.$`)

	pgtest.Exec(t, db, `UPDATE flue.meta SET value = '999' WHERE key = 'format'`)
	for _, args := range [][]string{{"migrate"}, {"migrate", "--check"}, {"inspect"}, {"repair", "echo", "a"}, {"run", "-m", "say it"}, {"serve", "--addr", "127.0.0.1:0", "--migrate"}} {
		refused(t, "use that version", args...)
	}
	pgtest.Exec(t, db, `DROP TABLE flue.meta`)
	for _, args := range [][]string{{"migrate"}, {"inspect"}, {"run", "-m", "say it"}} {
		refused(t, "holds tables of something else", args...)
	}
}

// The user of the servers needs no right to create anything.
func TestMigrateByAnotherUser(t *testing.T) {
	db := database(t)
	role := pgtest.Name()
	pgtest.Exec(t, db, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { pgtest.Exec(t, db, "DROP OWNED BY "+role, "DROP ROLE "+role) })
	plain := pgtest.With(t, db, func(u *url.URL) { u.User = url.UserPassword(role, password) })
	t.Setenv("FLUE_DB", plain)
	refused(t, "permission denied", "run", "--id", "a", "-m", "say it")
	t.Setenv("FLUE_DB", db)
	done(t, "migrate")
	pgtest.Exec(t, db, "GRANT USAGE ON SCHEMA flue TO "+role, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA flue TO "+role)
	t.Setenv("FLUE_DB", plain)
	if got := done(t, "run", "--id", "a", "-m", "say it"); got != "it\n" {
		t.Errorf("the reply is %q", got)
	}
}

// Whatever goes wrong with a URL, its password is not shown.
func TestPasswordIsHidden(t *testing.T) {
	secret := url.UserPassword("nobody", password).String()
	for name, u := range map[string]string{
		"no server":         "postgres://" + secret + "@127.0.0.1:1/flue?connect_timeout=2",
		"no host":           "postgres://" + secret + "@no-such-host.invalid/flue?connect_timeout=2",
		"no number":         "postgres://" + secret + "@127.0.0.1:port/flue",
		"a bad parameter":   "postgres://" + secret + "@127.0.0.1/flue?sslmode=" + url.QueryEscape(password),
		"as it is":          "postgres://nobody:" + password + " @127.0.0.1:1/flue",
		"no escape":         "postgres://nobody:" + password + "%@127.0.0.1:1/flue",
		"another scheme":    "mysql://" + secret + "@127.0.0.1/flue",
		"in the parameters": "postgres://127.0.0.1:1/flue?user=nobody&password=" + url.QueryEscape(password) + "&connect_timeout=2",
	} {
		t.Setenv("FLUE_DB", u)
		for _, args := range [][]string{{"run", "-m", "say it"}, {"inspect"}, {"migrate"}, {"repair", "echo", "a"}, {"serve", "--addr", "127.0.0.1:0"}} {
			if code, _, stderr := asked(t, args...); code != 1 || stderr == "" {
				t.Errorf("%s: %q: exit code %d, %q", name, args, code, stderr)
			}
		}
		// A flag comes before the variable, and its password is warned of.
		code, _, stderr := asked(t, "inspect", "--db", u)
		if code != 1 || strings.HasPrefix(name, "no ") && name != "no number" && name != "no escape" && !strings.Contains(stderr, "sees the password in --db") {
			t.Errorf("%s: exit code %d, %q", name, code, stderr)
		}
	}
	code, stdout, stderr := asked(t, "serve", "--help")
	if code != 0 || stderr != "" {
		t.Errorf("help: %d %q", code, stderr)
	}
	hides(t, stdout, "127.0.0.1:1", "nobody")
}

// What the URL leaves out comes from the variables of PostgreSQL.
func TestPostgresVariables(t *testing.T) {
	u, err := url.Parse(database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FLUE_DB", "postgres://")
	for name, value := range map[string]string{
		"PGHOST": u.Hostname(), "PGPORT": u.Port(), "PGDATABASE": strings.TrimPrefix(u.Path, "/"), "PGUSER": u.User.Username(), "PGPASSWORD": password,
	} {
		t.Setenv(name, value)
	}
	if got := done(t, "run", "--id", "a", "-m", "say it"); got != "it\n" {
		t.Errorf("the reply is %q", got)
	}
	if n := pgtest.Value[int](t, u.String(), `SELECT count(*) FROM flue.instances`); n != 1 {
		t.Errorf("%d conversations in the database", n)
	}
}

// work puts messages into the queue of a store, of which some are owned by nodes
// that live or do not.
func work(t *testing.T, st store.Store) {
	t.Helper()
	admit := func(id string) store.Address {
		addr := store.Address{Agent: "echo", ID: id}
		_, err := st.Admit(t.Context(), &store.Admission{
			Address: addr, Submission: "sub_" + id, Payload: []byte("m"), AcceptedAt: time.Now(),
			Birth: &store.Birth{UID: "uid_" + id, Incarnation: "inc_" + id, Payload: []byte("b")},
		})
		if err != nil {
			t.Fatal(err)
		}
		return addr
	}
	take := func(node string, ttl time.Duration, addr store.Address) {
		if err := st.Renew(t.Context(), node, ttl); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Take(t.Context(), node, addr); err != nil {
			t.Fatal(err)
		}
	}
	take("node-live", time.Hour, admit("fresh"))
	take("node-live", time.Hour, admit("old"))
	take("node-dead", 300*time.Millisecond, admit("orphan"))
	admit("free")
}

func TestInspectWork(t *testing.T) {
	db := database(t)
	done(t, "migrate")
	st, err := postgres.Open(t.Context(), db, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	work(t, st)
	pgtest.Exec(t, db, `UPDATE flue.instances SET ready_at = ready_at - interval '1 hour' WHERE name = 'old'`)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for dead := false; !dead; time.Sleep(20 * time.Millisecond) { // by the clock of the database
		dead = pgtest.Value[bool](t, db, `SELECT lapses_at < clock_timestamp() FROM flue.nodes WHERE name = 'node-dead'`)
	}

	shows(t, done(t, "inspect", "nodes"), `^NODE +LEASE +OWNED +WORKING$`, `^node-dead +lapsed \ds ago +1 +1$`, `^node-live +59m\d+(\.\d)?s +2 +2$`)
	nodes := objects(t, done(t, "inspect", "nodes", "--json"))
	if len(nodes) != 2 || nodes[0]["name"] != "node-dead" || nodes[0]["live"] != false || nodes[1]["live"] != true || nodes[1]["owned"] != 2.0 || nodes[0]["leaseLeftMs"].(float64) >= 0 {
		t.Errorf("the nodes are %v", nodes)
	}

	shows(t, done(t, "inspect", "work"), `^AGENT +ID +UNSETTLED +HEAD +WAITING +OWNER +EPOCH$`,
		`^echo +old +1 +1 +1h +node-live +1$`, `^echo +orphan +1 +1 +\ds +node-dead \(dead\) +1$`, `^echo +free +1 +1 +\ds +none +-$`, `^echo +fresh +1 +1 +\ds +node-live +1$`)
	stuck := objects(t, done(t, "inspect", "work", "--stuck", "10m", "--json"))
	if ids := field(stuck, "id"); fmt.Sprint(ids) != "[old orphan]" && fmt.Sprint(ids) != "[orphan old]" {
		t.Errorf("stuck is %v", stuck)
	}
	for _, w := range stuck {
		owner := w["owner"].(map[string]any)
		if live := w["id"] == "old"; owner["live"] != live || owner["epoch"] != 1.0 {
			t.Errorf("the owner is %v", w)
		}
	}
	if all := objects(t, done(t, "inspect", "work", "--json", "--agent", "echo")); len(all) != 4 {
		t.Errorf("the work is %v", all)
	}
	if none := objects(t, done(t, "inspect", "work", "--json", "--agent", "other")); len(none) != 0 {
		t.Errorf("the work of another agent is %v", none)
	}
}

func field(rows []map[string]any, name string) (values []any) {
	for _, r := range rows {
		values = append(values, r[name])
	}
	return values
}

// openShared runs the agents of testApp on the database, as a server does.
func openShared(t *testing.T, db string) *flue.Runtime {
	t.Helper()
	st, err := postgres.Open(t.Context(), db, postgres.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	demo := script.New(script.Func(obedient))
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: testApp().Agents, Providers: map[string]model.Provider{"anthropic": demo}, Store: st, Node: pgtest.Name(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(rt.Close(context.WithoutCancel(t.Context())), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// A conversation is repaired while the server that has set it aside goes on, and
// goes on itself with the next message.
func TestRepairBesideServers(t *testing.T) {
	db := database(t)
	for _, text := range []string{"one", "two", "three"} {
		done(t, "run", "--id", "a", "-m", "say "+text)
	}
	bad := pgtest.Value[int64](t, db, `UPDATE flue.batches SET payload = convert_to(replace(convert_from(payload, 'UTF8'), '"text":"two"', '"text":"tow"'), 'UTF8')
		WHERE position('"text":"two"'::bytea in payload) > 0 RETURNING pos`)
	first, second := openShared(t, db), openShared(t, db)
	if reply, err := converse(t, first.Instance("echo", "a"), "say lost"); !errors.Is(err, &flue.Error{Code: flue.CodeDamaged}) {
		t.Fatalf("the damaged conversation says %q, %v", reply, err)
	}
	shows(t, done(t, "inspect", "--check"), `^echo +a +damaged +1 `)
	shows(t, done(t, "inspect", "work"), `^echo +a +1 +\d+ +\ds +flue_test_\w+ +\d+$`) // a live node has it
	plan := done(t, "repair", "echo", "a")
	shows(t, plan, fmt.Sprintf(`cannot be continued at batch %d:`, bad), `message sub_\S+, accepted \S+, ends as failed`, `it is taken from it`, `Nothing has been changed`)
	shows(t, done(t, "repair", "echo", "a", "--yes"), `^It is done, in batch \d+\.`)
	shows(t, done(t, "inspect", "--check"), `^echo +a +idle +0 `)
	for i, rt := range []*flue.Runtime{second, second} {
		for asked := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			reply, err := converse(t, rt.Instance("echo", "a"), "count")
			if errors.Is(err, &flue.Error{Code: flue.CodeDamaged}) && time.Since(asked) < 5*time.Second {
				continue // it asks again after a moment
			}
			if want := fmt.Sprint("messages: ", 3+i); err != nil || reply != want {
				t.Errorf("the agent says %q, %v; want %q", reply, err, want)
			}
			break
		}
	}
}

// Listening may take another way to the database.
func TestListenVariable(t *testing.T) {
	db := database(t)
	t.Setenv("FLUE_DB_LISTEN", db)
	if got := done(t, "run", "--id", "a", "-m", "say it"); got != "it\n" {
		t.Errorf("the reply is %q", got)
	}
	t.Setenv("FLUE_DB_LISTEN", "app.db")
	refused(t, "FLUE_DB_LISTEN: it is no postgres:// URL", "inspect")
	t.Setenv("FLUE_DB_LISTEN", "mysql://u:"+password+"@h/d")
	refused(t, "FLUE_DB_LISTEN: it is a URL of no database that is known", "inspect")
}
