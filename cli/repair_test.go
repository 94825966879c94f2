package cli_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/sqlite"
)

// invoke runs the program of testApp in this process, on the file.
func invoke(t *testing.T, db string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return invokeApp(t, append(args, "--db", db)...)
}

// invokeApp runs the program of testApp in this process.
func invokeApp(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), testApp(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// must is invoke of what has to succeed. It returns standard output.
func must(t *testing.T, db string, args ...string) string {
	t.Helper()
	code, stdout, stderr := invoke(t, db, args...)
	if code != 0 {
		t.Fatalf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// shows fails the test unless text matches all patterns.
func shows(t *testing.T, text string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(text) {
			t.Errorf("there is no %q in:\n%s", p, text)
		}
	}
}

// hides fails the test if text has one of the words.
func hides(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			t.Errorf("%q is shown in:\n%s", w, text)
		}
	}
}

// query runs a statement as another program would. It must change one row.
func query(t *testing.T, file, statement string, args ...any) {
	t.Helper()
	if n := queryAny(t, file, statement, args...); n != 1 {
		t.Fatalf("%s: %d rows changed", statement, n)
	}
}

// queryAny is query that returns how many rows it has changed.
func queryAny(t *testing.T, file, statement string, args ...any) int64 {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.ExecContext(t.Context(), statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// payloads are the stored batches of the file, whole or not.
func payloads(t *testing.T, file string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT payload FROM batches ORDER BY instance, offset")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var p []byte
		if err := rows.Scan(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, string(p))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// spoil alters the answer "two" in the payload of its batch, and returns where.
func spoil(t *testing.T, file string) (offset int) {
	t.Helper()
	for i, p := range payloads(t, file) {
		if strings.Contains(p, `"text":"two"`) {
			offset = i
		}
	}
	query(t, file, `UPDATE batches SET payload = CAST(replace(CAST(payload AS TEXT), '"text":"two"', '"text":"tow"') AS BLOB)
		WHERE instance = 1 AND offset = ?`, offset)
	return offset
}

// open runs the agents of testApp on the file, as a server does.
func openRuntime(t *testing.T, file string, observe func(flue.Event)) (*flue.Runtime, func()) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	demo := script.New(script.Func(obedient))
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: testApp().Agents, Providers: map[string]model.Provider{"anthropic": demo}, Store: st, Observe: observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	end := func() {
		if closed {
			return
		}
		closed = true
		if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return rt, end
}

func postMessage(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"kind":"user","body":%q}`, body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, b.String()
}

// A conversation in a file of which one batch was altered: it is refused, seen,
// mended and goes on, and none of that touches others or what is stored.
func TestDamagedConversation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	for _, text := range []string{"one", "two", "three"} {
		must(t, file, "run", "--id", "a", "-m", "say "+text)
	}
	must(t, file, "run", "--id", "b", "-m", "say fine")
	bad := spoil(t, file)

	// The first message finds it out. What comes later is refused.
	found := make(chan error, 1)
	rt, end := openRuntime(t, file, func(ev flue.Event) {
		if ev.Type == flue.EventDamaged {
			found <- ev.Error
		}
	})
	srv := httptest.NewServer(rt.Handler("echo"))
	defer srv.Close()
	var lost struct{ SubmissionID string }
	status, body := postMessage(t, srv.URL+"/a", "say lost")
	if err := json.Unmarshal([]byte(body), &lost); err != nil || status != http.StatusAccepted || lost.SubmissionID == "" {
		t.Fatalf("the first message: %d %s", status, body)
	}
	if err := <-found; !strings.Contains(err.Error(), "checksum") {
		t.Errorf("the damage is %v", err)
	}
	status, body = postMessage(t, srv.URL+"/a", "say refused")
	var answer struct{ Error flue.Error }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusInternalServerError || answer.Error.Code != flue.CodeDamaged {
		t.Errorf("a later message: %d %s, want 500 and conversation_damaged", status, body)
	}
	hides(t, body, "checksum", "batch")
	if _, err := rt.Instance("echo", "a").Read(t.Context(), lost.SubmissionID); !errors.Is(err, &flue.Error{Code: flue.CodeDamaged}) {
		t.Errorf("waiting for the first message: %v, want CodeDamaged", err)
	}
	if reply, err := converse(t, rt.Instance("echo", "b"), "say still fine"); err != nil || reply != "still fine" {
		t.Errorf("the other conversation: %q, %v", reply, err)
	}

	// It can be looked at meanwhile, and not be repaired.
	list := must(t, file, "inspect")
	shows(t, list, `^AGENT +ID +PHASE +UNSETTLED +HEAD +LAST ACTIVITY$`, `^echo +a +damaged +1 +\d+ +\d{4}-`, `^echo +b +idle +0 `)
	one := must(t, file, "inspect", "echo", "a")
	shows(t, one, `^phase +damaged$`, fmt.Sprintf(`^damage +offset %d: .*checksum`, bad), `^next +nothing: its journal cannot be continued; see the command repair$`, `sub_\S+ unknown, accepted \d{4}-`)
	code, stdout, stderr := invoke(t, file, "repair", "echo", "a", "--yes")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "stop the program that has them") {
		t.Errorf("a repair beside a server: %d %q %q", code, stdout, stderr)
	}
	end()

	// Without --yes nothing is done.
	before := payloads(t, file)
	plan := must(t, file, "repair", "echo", "a")
	head := len(before) - 1 - countOf(t, file, "b")
	shows(t, plan, fmt.Sprintf(`cannot be continued at batch %d:`, bad), fmt.Sprintf(`batches %d to %d are passed over`, bad, head), `1 message, 1 answer of the model`, `ends as failed$`, `Nothing has been changed`)
	hides(t, plan, "tow", "three", "lost\n")
	if diff := cmp.Diff(before, payloads(t, file)); diff != "" {
		t.Errorf("without --yes (-before +after):\n%s", diff)
	}

	shows(t, must(t, file, "repair", "echo", "a", "--yes"), fmt.Sprintf(`^It is done, in batch %d\.`, head+1))
	after := payloads(t, file)
	after = slices.Delete(after, head+1, head+2)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a repair changed what was stored (-before +after):\n%s", diff)
	}
	shows(t, must(t, file, "repair", "echo", "a", "--yes"), `nothing to repair`)

	// The conversation goes on from before the damage, the lost message has failed.
	one = must(t, file, "inspect", "echo", "a")
	shows(t, one, `^phase +idle$`, `^unsettled +0 messages$`, fmt.Sprintf(`^repaired +at offset %d, .*: batches %d to %d are passed over: .*checksum`, head+1, bad, head))
	if got := must(t, file, "run", "--id", "a", "-m", "count"); got != "messages: 3\n" { // one, two, and this
		t.Errorf("the agent says %q", got)
	}
	rt, _ = openRuntime(t, file, nil)
	snap, err := rt.Instance("echo", "a").Conversation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, m := range snap.Messages {
		for _, p := range m.Parts {
			if p.Text != nil && m.Role != "system" {
				seen = append(seen, *p.Text)
			}
		}
	}
	if diff := cmp.Diff([]string{"say one", "one", "say two", "say three", "three", "count", "messages: 3"}, seen); diff != "" {
		t.Errorf("what people see (-want +got):\n%s", diff)
	}
	var outcomes []string
	for _, s := range snap.Settlements {
		outcomes = append(outcomes, s.Outcome)
		if s.Outcome == "failed" && !strings.Contains(string(s.Error), `"conversation_damaged"`) {
			t.Errorf("it failed with %s", s.Error)
		}
	}
	if want := []string{"completed", "completed", "failed", "completed"}; !slices.Equal(outcomes, want) {
		t.Errorf("settlements %q, want %q", outcomes, want)
	}
}

func converse(t *testing.T, in *flue.Instance, text string) (string, error) {
	t.Helper()
	receipt, err := in.Dispatch(t.Context(), flue.User(text))
	if err != nil {
		return "", err
	}
	reply, err := in.Read(t.Context(), receipt.Submission)
	if err != nil {
		return "", err
	}
	return reply.Text, nil
}

// countOf returns how many batches the conversation has.
func countOf(t *testing.T, file, id string) int {
	t.Helper()
	var row struct{ Head int }
	if err := json.Unmarshal([]byte(must(t, file, "inspect", "echo", id, "--json")), &row); err != nil {
		t.Fatal(err)
	}
	return row.Head + 1
}

// Whichever batch of a conversation is altered, after a repair it goes on.
func TestRepairOfEachBatch(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "app.db")
	must(t, file, "run", "--id", "a", "-m", "say one")
	must(t, file, "run", "--id", "a", "-m", "shout two")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for bad := 1; bad < len(payloads(t, file)); bad++ {
		copied := filepath.Join(dir, fmt.Sprint(bad, ".db"))
		if err := os.WriteFile(copied, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		query(t, copied, `UPDATE batches SET payload = CAST('{' AS BLOB) WHERE offset = ?`, bad)
		code, _, stderr := invoke(t, copied, "run", "--id", "a", "-m", "say lost")
		if code != 1 || !strings.Contains(stderr, "see the commands inspect and repair") {
			t.Errorf("batch %d: a message: %d %s", bad, code, stderr)
		}
		must(t, copied, "repair", "echo", "a", "--yes")
		if got := must(t, copied, "run", "--id", "a", "-m", "say again"); got != "again\n" {
			t.Errorf("batch %d: the agent says %q", bad, got)
		}
		shows(t, must(t, copied, "inspect", "--check"), `^echo +a +idle +0 `)
	}
	// The first cannot be done without.
	query(t, file, `UPDATE batches SET payload = CAST('{' AS BLOB) WHERE offset = 0`)
	code, stdout, stderr := invoke(t, file, "repair", "echo", "a", "--yes")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "restore a backup, or begin another conversation") {
		t.Errorf("the birth: %d %q %q", code, stdout, stderr)
	}
}

// A repair may leave a state of the past, in which a call waits that was approved
// and run since. A second approval must not run it again.
func TestRepairWithdrawsWhatWaits(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "app.db")
	paid := 0
	pay := flue.NewTool(flue.Tool{Name: "pay", Description: "Pay."}, func(context.Context, struct{}) (string, error) {
		paid++
		return "paid", nil
	})
	clerk := &flue.Agent{Name: "clerk", Render: func(r *flue.Render) string {
		flue.UseModel(r, "demo/m")
		flue.UseApprovalGate(r, pay, flue.ApprovalPolicy{})
		return ""
	}}
	var shown string
	obey := script.New(script.Func(func(req *model.Request) script.Turn {
		shown = ""
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				shown += b.Text + "\n"
			}
		}
		if script.LastUser(req) == "pay" && script.Step(req) == 0 {
			return script.Call("pay", nil)
		}
		return script.Say("so be it")
	}))
	with := func(do func(in *flue.Instance)) {
		t.Helper()
		st, err := sqlite.Open(t.Context(), file, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rt, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{clerk}, Providers: map[string]model.Provider{"demo": obey}, Store: st})
		if err != nil {
			t.Fatal(err)
		}
		do(rt.Instance("clerk", "a"))
		if err := errors.Join(rt.Close(t.Context()), st.Close()); err != nil {
			t.Fatal(err)
		}
	}
	approve := func(in *flue.Instance, id string) error {
		receipt, err := in.Decide(t.Context(), id, flue.Decision{Approve: true, By: "ada"})
		if err == nil {
			_, err = in.Read(t.Context(), receipt.Submission)
		}
		return err
	}
	var id string
	with(func(in *flue.Instance) {
		if _, err := converse(t, in, "pay"); err != nil {
			t.Fatal(err)
		}
		waiting, err := in.Approvals(t.Context())
		if err != nil || len(waiting) != 1 {
			t.Fatalf("%d calls wait, %v", len(waiting), err)
		}
		id = waiting[0].ID
	})
	asked := len(payloads(t, file))
	with(func(in *flue.Instance) {
		if err := approve(in, id); err != nil || paid != 1 {
			t.Fatalf("approved: %v, paid %d times", err, paid)
		}
	})
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := len(payloads(t, file))
	for bad := asked; bad < end; bad++ {
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		query(t, file, `UPDATE batches SET payload = CAST('{' AS BLOB) WHERE offset = ?`, bad)
		plan := must(t, file, "repair", "clerk", "a", "--yes")
		with(func(in *flue.Instance) {
			if waiting, err := in.Approvals(t.Context()); err != nil || len(waiting) != 0 {
				t.Errorf("batch %d: %d calls wait, %v", bad, len(waiting), err)
			}
			err := approve(in, id)
			if paid != 1 {
				t.Fatalf("batch %d: a second approval (%v) has paid again", bad, err)
			}
			if reply, err := converse(t, in, "and now?"); err != nil || reply != "so be it" {
				t.Errorf("batch %d: the agent says %q, %v", bad, reply, err)
			}
		})
		if strings.Contains(plan, "is withdrawn") && !strings.Contains(shown, "Whether it was approved and run before is unknown") {
			t.Errorf("batch %d: the model is not told that the call is withdrawn:\n%s", bad, shown)
		}
		if bad == asked && !strings.Contains(plan, "- call "+id+" of pay, which waits") {
			t.Errorf("the plan is\n%s", plan)
		}
	}
}

// A file that is itself in disorder is not written to.
func TestRepairOfASpoiledFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	for i := range 30 {
		must(t, file, "run", "--id", fmt.Sprint(i), "-m", "say something of some length, so that there are several pages")
	}
	query(t, file, `UPDATE batches SET payload = CAST('{' AS BLOB) WHERE instance = 1 AND offset = 1`)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	clear(whole[len(whole)-8192:])
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, file, "repair", "echo", "0", "--yes")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "the file itself is damaged") {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
}
