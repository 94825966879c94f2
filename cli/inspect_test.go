package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store/sqlite"
)

// objects decodes one JSON object a line.
func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for l := range strings.Lines(text) {
		var o map[string]any
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		all = append(all, o)
	}
	return all
}

// column returns a field of each object.
func column(all []map[string]any, field string) (values []string) {
	for _, o := range all {
		values = append(values, fmt.Sprint(o[field]))
	}
	return values
}

func TestInspectLists(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	for _, id := range []string{"b", "a\x1b[2J", "c"} {
		must(t, file, "run", "--id", "x-"+strings.Trim(id, "\x1b[2J"), "-m", "say secret")
	}
	all := objects(t, must(t, file, "inspect", "--json"))
	if diff := cmp.Diff([]string{"x-a", "x-b", "x-c"}, column(all, "id")); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	for _, o := range all {
		if o["agent"] != "echo" || o["phase"] != "idle" || o["unsettled"] != 0.0 || o["head"].(float64) < 3 || o["damage"] != nil || !strings.HasPrefix(o["uid"].(string), "inst_") {
			t.Errorf("one is %v", o)
		}
	}
	for flag, want := range map[string]int{"--agent=echo": 3, "--agent=ech": 0, "--agent=echo2": 0, "--unsettled": 0, "--check": 3} {
		if got := len(objects(t, must(t, file, "inspect", "--json", flag))); got != want {
			t.Errorf("%s lists %d, want %d", flag, got, want)
		}
	}
	hides(t, must(t, file, "inspect")+must(t, file, "inspect", "echo", "x-a")+must(t, file, "inspect", "echo", "x-a", "--records"), "secret")

	// Damage where nothing waits is found by looking for it.
	query(t, file, `UPDATE batches SET payload = CAST('{' AS BLOB) WHERE instance = 1 AND offset = 2`)
	shows(t, must(t, file, "inspect"), `^echo +x-b +idle +0`)
	checked := objects(t, must(t, file, "inspect", "--json", "--check"))
	if diff := cmp.Diff([]string{"idle", "damaged", "idle"}, column(checked, "phase")); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if d, ok := checked[1]["damage"].(map[string]any); !ok || d["offset"] != 2.0 || !strings.Contains(d["reason"].(string), "checksum") {
		t.Errorf("the damage is %v", checked[1]["damage"])
	}
}

func TestInspectRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	must(t, file, "run", "--id", "a", "-m", "shout secret")
	records := must(t, file, "inspect", "echo", "a", "--records")
	shows(t, records,
		`^     0  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  born          inst_\S+ inc_\S+$`,
		`^     1  \S+Z  admitted      sub_\S+ user, 12 bytes dispatch$`,
		`^     \d  \S+Z  attempt       sub_\S+ attempt 1 \(first\)$`,
		`^     \d  \S+Z  turn_done     turn_\S+ tool_use, 0 bytes, .*, calls shout$`,
		`^     \d  \S+Z  outcome       \S+ shout ok, 6 bytes, \d+ ms$`,
		`^     \d  \S+Z  settled       sub_\S+ completed$`,
	)
	hides(t, strings.ToLower(records), "secret")
	shows(t, must(t, file, "inspect", "echo", "a", "--records", "--bodies"), `admitted .*"body":"shout secret"`, `outcome .*"content":"SECRET"`)

	all := objects(t, must(t, file, "inspect", "echo", "a", "--records", "--json"))
	if all[0]["kind"] != "born" || all[0]["body"] != nil || all[1]["offset"] != 1.0 {
		t.Errorf("the records begin with %v", all[:2])
	}
	if all = objects(t, must(t, file, "inspect", "echo", "a", "--records", "--json", "--bodies")); all[0]["body"].(map[string]any)["agent"] != "echo" {
		t.Errorf("the birth is %v", all[0])
	}

	// Damage is marked, and what can be read behind it is shown.
	head := len(payloads(t, file)) - 1
	query(t, file, `UPDATE batches SET payload = CAST('{' AS BLOB) WHERE offset = 2`)
	shows(t, must(t, file, "inspect", "echo", "a", "--records"), `^     2  - +\(damaged\)     .*batch 2 does not match its checksum`, fmt.Sprintf(`^     %d  \S+Z  settled`, head))
}

// free is a catalog of models that cost nothing.
func free(string, string) (model.Info, bool) { return model.Info{Cost: model.Cost{Free: true}}, true }

func TestInspectShowsWhatWaits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	stuck := make(chan struct{})
	gone := make(chan struct{})
	hang := flue.NewDurableTool(flue.Tool{Name: "hang", Description: "Hang."}, func(ctx context.Context, step *flue.Step, _ struct{}) (string, error) {
		if _, err := flue.Do(ctx, step, "prepare", func(context.Context) (int, error) { return 7, nil }); err != nil {
			return "", err
		}
		close(stuck)
		<-gone
		return "", nil
	})
	refund := flue.NewTool(flue.Tool{Name: "refund", Description: "Refund."}, func(context.Context, struct{}) (string, error) { return "done", nil })
	agent := &flue.Agent{Name: "clerk", Render: func(r *flue.Render) string {
		flue.UseModel(r, "demo/m")
		flue.UseBudget(r, flue.Budget{Turns: 9, WallTime: time.Hour, Dollars: 0.5})
		flue.UseBudget(r, flue.Budget{Scope: flue.PerInstance, ToolCalls: 2})
		flue.UseTool(r, hang)
		flue.UseApprovalGate(r, refund, flue.ApprovalPolicy{})
		return ""
	}}
	obey := script.New(script.Func(func(req *model.Request) script.Turn {
		if script.Step(req) > 0 {
			return script.Say("so be it")
		}
		return script.Call(script.LastUser(req), nil)
	}))
	st, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rt, err := flue.Open(t.Context(), flue.Config{Agents: []*flue.Agent{agent}, Providers: map[string]model.Provider{"demo": obey}, Store: st, Catalog: free})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	defer close(gone)
	in := rt.Instance("clerk", "a")
	if _, err := converse(t, in, "refund"); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, text := range []string{"hang", "later"} {
		receipt, err := in.Dispatch(t.Context(), flue.User(text))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, receipt.Submission)
		if text == "hang" {
			<-stuck
		}
	}

	text := must(t, file, "inspect", "clerk", "a")
	shows(t, text, `^phase +tools$`, `^next +finish the calls`, `^unsettled +2 messages$`,
		`^ +`+ids[0]+` active, accepted \S+ \(\d+s ago\), 1 attempt, out of time in \d+m$`, `^ +`+ids[1]+` queued, accepted \S+ \(\d+s ago\)$`,
		`^approvals +1 pending$`, `^ +\S+ refund, asked for \S+ \(\d+s ago\), never expires$`,
		`^calls +1 open$`, `^ +\S+ hang, has none yet$`, `^steps +1$`, `^ +call:\S+ "prepare", has a value$`,
		`^spent +2 turns, 1 tool call, `, `^budget +1 of 9 turns for the submission$`, `^budget +\$0\.0000 of \$0\.5000 dollars for the submission$`,
		`^budget +\S+s of 1h0m0s wall_time for the submission$`, `^budget +1 of 2 tool_calls for the instance$`)
	var s struct {
		Phase, Next string
		Unsettled   []struct {
			SubmissionID, State string
			Attempts            int
		}
		Approvals []struct{ ID, Tool string }
		Calls     []struct{ Tool string }
		Steps     []struct {
			Name string
			Done bool
		}
		Usage  struct{ Input int }
		Spent  struct{ Turns, ToolCalls int }
		Budget []struct {
			Scope, Limit string
			Most         float64
		}
	}
	if err := json.Unmarshal([]byte(must(t, file, "inspect", "clerk", "a", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Phase != "tools" || len(s.Unsettled) != 2 || s.Unsettled[0].State != "active" || s.Unsettled[1].SubmissionID != ids[1] || s.Unsettled[0].Attempts != 1 ||
		len(s.Approvals) != 1 || s.Approvals[0].Tool != "refund" || len(s.Calls) != 1 || s.Calls[0].Tool != "hang" || len(s.Steps) != 1 || !s.Steps[0].Done || s.Spent.Turns != 2 ||
		len(s.Budget) != 4 || s.Budget[2].Limit != "wall_time" || s.Budget[2].Most != 3600 {
		t.Errorf("the summary is %+v", s)
	}
	if rows := objects(t, must(t, file, "inspect", "--json", "--unsettled")); len(rows) != 1 || rows[0]["phase"] != "tools" || rows[0]["unsettled"] != 2.0 {
		t.Errorf("the list is %v", rows)
	}
}

func TestInspectUsage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "app.db")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"inspect"}, "there is no file"},
		{[]string{"repair", "echo", "a"}, "there is no file"},
		{[]string{"inspect", "echo"}, "or nothing"},
		{[]string{"repair", "echo"}, "inspect lists them"},
		{[]string{"inspect", "--records"}, "--records needs an agent and an id"},
		{[]string{"inspect", "echo", "a", "--bodies"}, "--bodies goes with --records"},
		{[]string{"inspect", "echo", "a", "--unsettled"}, "leave them out"},
	} {
		code, stdout, stderr := invoke(t, file, tt.args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: %d %q %q, want %q", tt.args, code, stdout, stderr, tt.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	for _, command := range []string{"inspect", "repair"} {
		if code, _, stderr := invoke(t, ":memory:", command, "echo", "a"); code != 1 || !strings.Contains(stderr, "name a file") {
			t.Errorf("%s in memory: %d %q", command, code, stderr)
		}
	}
	must(t, file, "run", "--id", "a", "-m", "say it")
	for _, command := range []string{"inspect", "repair"} {
		if code, _, stderr := invoke(t, file, command, "echo", "b"); code != 1 || !strings.Contains(stderr, "there is no conversation b") {
			t.Errorf("%s of what there is not: %d %q", command, code, stderr)
		}
	}
}
