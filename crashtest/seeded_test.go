package crashtest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A fault is a mistake that somebody might make: a piece of code that must be
// there, and what is there instead. The tests that are named must not pass with
// it.
type fault struct {
	name     string
	file     string // below the root of the module
	old, new string
	tests    string // a pattern for go test -run
	in       string // the package that has them
}

// The tests that hold everything to account.
const (
	everywhere = "TestCrashEverywhere|TestCrashWhileStopping|TestCommitsPerMessage"
	inTheWhole = "TestCrashAnywhereInTheWhole"
)

var faults = []fault{
	// What is told or done before it is durable.
	{
		name: "calls run before the message that asks for them is durable",
		file: "internal/engine/tools.go",
		old:  "	// The message that asks for the calls must be durable before they run.\n	if err := d.commit(); err != nil {\n		return err\n	}\n",
		in:   "./internal/engine", tests: everywhere,
	},
	{
		name: "start hooks run before their attempt is durable",
		file: "internal/engine/seam.go",
		old:  "	// The attempt must be durable before anything has an effect.\n	if err := d.commit(); err != nil {\n		return err\n	}\n",
		in:   "./internal/engine", tests: "TestEffectsComeAfterTheirCause",
	},
	{
		name: "readers are told before the batch is appended",
		file: "internal/engine/commit.go",
		old:  "	offset, err := d.e.cfg.Store.Append(",
		new:  "	d.e.hub.publish(d.slot.addr, d.state.Born.Incarnation, d.state.Head+1, batch)\n	offset, err := d.e.cfg.Store.Append(",
		in:   "./internal/engine", tests: "TestReadersSeeWhatIsDurable",
	},
	{
		name: "finish hooks run before the turn is durable",
		file: "internal/engine/seam.go",
		old:  "	if err := d.commit(); err != nil {\n		return false, err\n	}\n",
		in:   "./internal/engine", tests: "TestEffectsComeAfterTheirCause",
	},

	// What an interrupted process leaves.
	{
		name: "an interrupted call is run again",
		file: "internal/engine/tools.go",
		old:  "	if d.plan == nil || !c.Again {\n		return false\n	}\n	tool := d.plan.tool(c.Name)\n	return tool != nil && tool.Again\n",
		new:  "	return d.plan != nil && d.plan.tool(c.Name) != nil\n",
		in:   "./internal/engine", tests: everywhere,
	},
	{
		name: "steps are not replayed",
		file: "internal/engine/tools.go",
		old:  "memo: maps.Clone(b.state.Steps[scope])",
		new:  "memo: maps.Clone(b.state.Steps[\"\"])",
		in:   ".", tests: inTheWhole,
	},
	{
		name: "a step that must not run twice is run again",
		file: "internal/engine/work.go",
		old:  "		case once:\n			return nil, ErrOutcomeUnknown",
		new:  "		case false:\n			return nil, ErrOutcomeUnknown",
		in:   ".", tests: "TestDoOnce",
	},
	{
		name: "an approved call that was begun is run again",
		file: "decision.go",
		old:  "case tool == nil && again, tool != nil && again && !tool.Again:",
		new:  "case tool == nil && again:",
		in:   ".", tests: inTheWhole,
	},
	{
		name: "an open turn is left open",
		file: "internal/engine/takeover.go",
		old:  "	case fold.Streaming:\n		return d.closeTurn()",
		new:  "	case fold.Streaming:\n		return nil",
		in:   "./internal/engine", tests: everywhere,
	},
	{
		name: "what a cut answer said is not shown to the model",
		file: "internal/engine/takeover.go",
		old:  "if err := d.stage(done); err != nil || !said {",
		new:  "if err := d.stage(done); err != nil || said {",
		in:   "./internal/engine", tests: ".",
	},
	{
		name: "a finished response is settled without its finish hooks",
		file: "internal/engine/seam.go",
		old:  "	if len(d.plan.Finish) > 0 {",
		new:  "	if len(d.plan.Finish) > 0 && d.attempt != nil {",
		in:   ".", tests: inTheWhole,
	},
	{
		name: "an abort is lost when another process takes over",
		file: "internal/engine/takeover.go",
		old:  "if st.Active.Aborted && st.Phase != fold.Finish {",
		new:  "if st.Active.Aborted = false; false {",
		in:   "./internal/engine", tests: everywhere,
	},

	// What belongs together.
	{
		name: "a message lands apart from what its start hooks made",
		file: "internal/engine/seam.go",
		old:  "	if err := d.stageSeam(units...); err != nil {",
		new:  "	if err := d.commit(); err != nil {\n		return err\n	}\n	if err := d.stageSeam(units...); err != nil {",
		in:   ".", tests: inTheWhole,
	},
	{
		name: "a call's result lands without what it wrote",
		file: "internal/engine/tools.go",
		old:  ", Writes: r.call.written(),",
		new:  ",",
		in:   ".", tests: inTheWhole,
	},
	{
		name: "a result stands on a write that is lost",
		file: "internal/engine/tools.go",
		old:  "if !r.call.ready() {",
		new:  "if false {",
		in:   "./internal/engine", tests: "TestNoWriteStandsOnALostOne|TestOutcomeWaitsForWhatItStandsOn",
	},
	{
		name: "a continued response is not counted as one",
		file: "internal/engine/seam.go",
		old:  "		seam.Name = journal.SeamCycle",
		new:  "		seam.Name = journal.SeamFinish",
		in:   ".", tests: inTheWhole,
	},
	{
		name: "an approval is decided without its call's writes",
		file: "decision.go",
		old:  "		return c.keep(ctx, w, a, writes...)",
		new:  "		return c.keep(ctx, w, a)",
		in:   ".", tests: "TestApprovedCall",
	},

	{
		name: "a call keeps what it made of a write that is lost",
		file: "internal/engine/tools.go",
		old:  "if r.call.standsOn(b.lost) {",
		new:  "if false {",
		in:   "./internal/engine", tests: "TestDependentsOfALostCallAreLost",
	},
	{
		name: "a policy is asked again when its call is run again",
		file: "approval.go",
		old:  "	if !tool.again {\n		return p.needed",
		new:  "	if true {\n		return p.needed",
		in:   ".", tests: "TestGateAsksOnce",
	},

	// What is other people's.
	{
		name: "large integers are rounded",
		file: "journal/same.go",
		old:  "jsontext.CanonicalizeRawInts(false)",
		new:  "jsontext.CanonicalizeRawInts(true)",
		in:   ".", tests: "TestLargeIntegersAreExact",
	},
	{
		name: "a sender's map is kept",
		file: "message.go",
		old:  "d := wire.Delivery{Kind: string(m.Kind), Body: m.Body, Type: m.Type, Attributes: maps.Clone(m.Attributes),",
		new:  "d := wire.Delivery{Kind: string(m.Kind), Body: m.Body, Type: m.Type, Attributes: m.Attributes,",
		in:   ".", tests: "TestAttributesAreNobodyElses",
	},

	// Order and budget.
	{
		name: "a later message overtakes",
		file: "internal/fold/state.go",
		old:  "	return s.Queue[0]\n}",
		new:  "	return s.Queue[len(s.Queue)-1]\n}",
		in:   "./internal/engine", tests: ".",
	},
	{
		name: "the host settles before those that joined it",
		file: "internal/engine/ending.go",
		old:  "	ids = append(ids, host)\n",
		new:  "	ids = append([]string{host}, ids...)\n",
		in:   "./internal/engine", tests: ".",
	},
	{
		name: "a response is closed although a message waits to join it",
		file: "internal/engine/seam.go",
		old:  "case d.state.Joinable() != nil:",
		new:  "case false:",
		in:   ".", tests: inTheWhole + "|TestDispatch",
	},
	{
		name: "the deadline begins anew with each attempt",
		file: "internal/fold/apply.go",
		old:  "	s.Active.Attempts++\n",
		new:  "	s.Active.Attempts++\n	if r.Ordinal > 1 {\n		s.Active.Deadline += 1 << 40\n	}\n",
		in:   "./internal/engine", tests: "TestHoldEnds|TestDeadline",
	},
	{
		name: "work that was given up on purpose counts as an attempt",
		file: "internal/fold/apply.go",
		old:  "	s.Active.Attempts--\n	s.Active.Fruitless = max(s.Active.Fruitless-1, 0)\n",
		in:   "./internal/fold", tests: ".",
	},
	{
		name: "attempts that achieve nothing are not counted",
		file: "internal/fold/apply.go",
		old:  "	s.Active.Fruitless++\n",
		in:   "./internal/engine", tests: "TestFruitlessAttempts",
	},

	// The store.
	{
		name: "an old owner can still append",
		file: "store/memstore/memstore.go",
		old:  "store.ErrFenced)",
		new:  "nil)",
		in:   "./store/memstore", tests: ".",
	},
	{
		name: "a message that is sent again is taken for another",
		file: "store/memstore/memstore.go",
		old:  "if !bytes.Equal(sub.identity, a.Identity) {",
		new:  "if bytes.Equal(sub.identity, a.Identity) {",
		in:   "./store/memstore", tests: ".",
	},

	// What the model and clients are told.
	{
		name: "metadata is not remembered",
		file: "internal/fold/apply.go",
		old:  "	s.Response.Metadata = append(s.Response.Metadata, json.RawMessage(r.Value))\n",
		in:   ".", tests: inTheWhole,
	},
	{
		name: "what was told of the tools is not remembered",
		file: "internal/fold/apply.go",
		old:  "	s.Told = r\n",
		new:  "	if s.Told == nil {\n		s.Told = r\n	}\n",
		in:   "./internal/engine", tests: "TestResources",
	},
	{
		name: "a signal of a hook does not become the delivery",
		file: "internal/fold/apply.go",
		old:  "		s.Delivery = &r.Message\n		s.Response.continued",
		new:  "		s.Response.continued",
		in:   ".", tests: "TestDeliveryCursor",
	},
}

// Each fault is found by the tests that are there to find it. It is built into
// them with an overlay; the tree stays as it is. It takes minutes, so it runs only
// when FLUE_FAULTS is set.
func TestSeededFaults(t *testing.T) {
	if os.Getenv("FLUE_FAULTS") == "" {
		t.Skip("set FLUE_FAULTS=1 to see that the tests find seeded faults; it takes minutes")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			out, found := f.try(t, root)
			switch {
			case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
				t.Errorf("it does not build, so it shows nothing:\n%s", tail(out))
			case !found:
				t.Errorf("the tests %s of %s pass with it", f.tests, f.in)
			}
		})
	}
}

// try runs the tests with the fault. It reports whether they failed.
func (f *fault) try(t *testing.T, root string) (out string, found bool) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(f.file))
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), f.old); n != 1 {
		t.Fatalf("%s has the code of the fault %d times: bring the catalogue up to date", f.file, n)
	}
	dir := t.TempDir()
	faulty := filepath.Join(dir, "faulty.go")
	if err := os.WriteFile(faulty, []byte(strings.Replace(string(source), f.old, f.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-short", "-count=1", "-timeout=60s", "-failfast", "-overlay", list, "-run", f.tests, f.in)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "FLUE_FAULTS=")
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the tests do not end: %v", ctx.Err())
	}
	return string(text), err != nil
}

func tail(s string) string { return s[max(0, len(s)-2000):] }
