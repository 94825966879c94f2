package cli_test

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/pgtest"
)

// filled makes a file with conversations of all kinds: finished ones, one under a
// key, one with an image, one whose work is not done, a damaged one and a repaired
// one.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "app.db")
	image := filepath.Join(dir, "dot.gif")
	if err := os.WriteFile(image, gif, 0o600); err != nil {
		t.Fatal(err)
	}
	// Both have damage in a batch of the same content, at the same place.
	for _, id := range []string{"damaged", "repaired"} {
		for _, text := range []string{"one", "two", "three"} {
			must(t, file, "run", "--id", id, "-m", "say "+text)
		}
	}
	spoilAll(t, file)
	must(t, file, "repair", "echo", "repaired", "--yes")
	must(t, file, "run", "--id", "plain", "-m", "say it")
	must(t, file, "run", "--id", "plain", "-m", "shout it")
	must(t, file, "run", "--id", "keyed", "--key", "k", "-m", "say once")
	must(t, file, "run", "--id", "image", "--image", image, "-m", "image")

	t.Setenv("TEST_MARK", filepath.Join(dir, "mark"))
	begun := make(chan struct{}, 1)
	rt, end := openRuntime(t, file, func(ev flue.Event) {
		if ev.Type == flue.EventToolStarted {
			begun <- struct{}{}
		}
	})
	if _, err := rt.Dispatch(t.Context(), "echo", "open", flue.User("pause")); err != nil {
		t.Fatal(err)
	}
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Close(ctx); err != nil { // its work is cut, and is left to the next process
		t.Fatal(err)
	}
	end()
	return file
}

// spoilAll alters every answer "two".
func spoilAll(t *testing.T, file string) {
	t.Helper()
	spoiled := 0
	for instance := range 2 {
		for offset := range payloads(t, file) {
			n := queryAny(t, file, `UPDATE batches SET payload = CAST(replace(CAST(payload AS TEXT), '"text":"two"', '"text":"tow"') AS BLOB)
				WHERE instance = ? AND offset = ? AND CAST(payload AS TEXT) LIKE '%"text":"two"%'`, instance+1, offset)
			spoiled += int(n)
		}
	}
	if spoiled != 2 {
		t.Fatalf("%d batches were spoiled", spoiled)
	}
}

// records is the journal of a conversation as inspect prints it.
func records(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	for _, r := range objects(t, text) {
		delete(r, "digest") // damage is described by where it is
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// All that a file has is in the database afterwards, and goes on there.
func TestCopy(t *testing.T) {
	file := filled(t)
	db := database(t)
	code, stdout, stderr := asked(t, "copy", "--from", file)
	if code != 0 || !strings.HasPrefix(stdout, "6 conversations copied from "+file+" to postgres://") {
		t.Fatalf("copy: %d %q %q", code, stdout, stderr)
	}
	shows(t, stderr, `agents/echo/damaged: 1 batch could not be read, beginning with \d+, and is damaged in the copy too`, `agents/echo/repaired: 1 batch could not be read`)
	for _, id := range []string{"damaged", "repaired", "plain", "keyed", "image", "open"} {
		want := records(t, must(t, file, "inspect", "echo", id, "--records", "--bodies", "--json"))
		if got := records(t, done(t, "inspect", "echo", id, "--records", "--bodies", "--json")); got != want {
			t.Errorf("the journal of %s is\n%s\nwant\n%s", id, got, want)
		}
	}
	shows(t, done(t, "inspect", "--check"), `^echo +damaged +damaged +0 `, `^echo +repaired +idle +0 `, `^echo +open +\w+ +1 `)

	// It goes on: what was accepted is known, and what was not done is done.
	// Each run leaves the work of other conversations to others.
	if got := done(t, "run", "--id", "plain", "-m", "count"); got != "messages: 3\n" {
		t.Errorf("the conversation goes on with %q", got)
	}
	for want, args := range map[string][]string{
		"once\n":        {"run", "--id", "keyed", "--key", "k", "-m", "say once"},
		"messages: 3\n": {"run", "--id", "repaired", "-m", "count"}, // one, two, and this: the rest is passed over
	} {
		if got := done(t, args...); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
	if got := done(t, "run", "--id", "open"); !strings.HasPrefix(got, "tool: ") {
		t.Errorf("the unfinished work comes to %q", got)
	}
	if n := pgtest.Value[int](t, db, `SELECT count(*) FROM flue.attachments`); n != 1 {
		t.Errorf("%d attachments", n)
	}

	// Once more changes nothing, and into another schema it is all there again.
	shows(t, done(t, "copy", "--from", file), `^0 conversations copied .*; 6 were there\.`)
	t.Setenv("FLUE_DB", pgtest.With(t, db, func(u *url.URL) { u.RawQuery = "schema=other" }))
	shows(t, done(t, "copy", "--from", db), `^6 conversations copied `)
	if got := done(t, "run", "--id", "plain", "-m", "count"); got != "messages: 4\n" {
		t.Errorf("after the second copy: %q", got)
	}
}

func TestCopyRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	must(t, file, "run", "--id", "a", "-m", "say it")
	if code, _, stderr := invoke(t, file, "copy", "--from", file); code != 1 || !strings.Contains(stderr, "copied to PostgreSQL") {
		t.Errorf("a file to a file: %d %q", code, stderr)
	}
	database(t)
	refused(t, "--from is missing", "copy")
	refused(t, "--from: there is no file", "copy", "--from", file+"x")
	refused(t, "there is nothing in it", "copy", "--from", ":memory:")
	_, end := openRuntime(t, file, nil)
	refused(t, "What another program writes now would be missing", "copy", "--from", file)
	end()

	// A conversation of the same name that is another one is left as it is.
	done(t, "run", "--id", "a", "-m", "say mine")
	must(t, file, "run", "--id", "b", "-m", "say b")
	code, stdout, stderr := asked(t, "copy", "--from", file)
	if code != 1 || !strings.HasPrefix(stdout, "1 conversation copied") || !strings.Contains(stderr, "agents/echo/a was not copied: there is another conversation of this name") ||
		!strings.Contains(stderr, "not everything was copied: 1 conversation") {
		t.Errorf("copy: %d %q %q", code, stdout, stderr)
	}
	if got := done(t, "run", "--id", "a", "-m", "count"); got != "messages: 2\n" {
		t.Errorf("the conversation that was there: %q", got)
	}
}
