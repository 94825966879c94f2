package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// narrated are the bodies of the runtime's words on what the agent declares, as
// the journal has them, each after its type and kind.
func narrated(rs []journal.Record) []string {
	var out []string
	for _, r := range rs {
		if e, ok := r.(*journal.Entry); ok && e.Purpose == journal.Narration {
			out = append(out, strings.TrimSpace(e.Message.Type+" "+e.Message.Attributes["resource"])+": "+e.Message.Body)
		}
	}
	return out
}

// told are the runtime's words as a request has them, without their tags.
func told(req *model.Request) []string {
	var out []string
	for _, m := range req.Messages {
		text := m.Blocks[0].Text
		for _, typ := range []string{journal.SignalResources, journal.SignalInstructions} {
			if m.Role == model.RoleUser && strings.HasPrefix(text, `<signal type="`+typ+`"`) {
				lines := strings.Split(text, "\n")
				out = append(out, strings.Join(lines[1:len(lines)-1], "\n"))
			}
		}
	}
	return out
}

// toldTools are the tools that the model knows of: those of the first request, or
// of the last word that it was told of them.
func toldTools(first []model.Tool, req *model.Request) string {
	names := toolNames(first)
	for _, text := range told(req) {
		if _, list, ok := strings.Cut(text, "All available tools: "); ok {
			names = list
		}
	}
	return names
}

func toolNames(tools []model.Tool) string {
	if len(tools) == 0 {
		return "none"
	}
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, ", ")
}

// hold delivers each message until it is acknowledged, and waits until all have
// settled. It reports true if the store died first.
func (w *world) hold(t *testing.T, e *engine.Engine, fs *faultstore.Store, acked map[int]bool, bodies []string) (dead bool) {
	t.Helper()
	for range 20_000 {
		open := false
		for i, body := range bodies {
			if !acked[i] {
				_, err := e.Admit(t.Context(), engine.Admission{
					Address: chat, Submission: submissionOf(i), Identity: []byte(body), Origin: "direct",
					Message: journal.Message{Kind: journal.User, Body: body},
				})
				if acked[i] = err == nil; err != nil && !errors.Is(err, faultstore.ErrInjected) {
					t.Fatal(err)
				}
			}
			if acked[i] {
				sub, err := e.Submission(context.Background(), chat, submissionOf(i))
				open = open || err != nil || sub.Outcome == ""
			}
		}
		synctest.Wait()
		if fs.Crashed() || !open && len(acked) == len(bodies) {
			return fs.Crashed()
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("not settled in time")
	return false
}

// throughACrash plays the messages to a world of its own for each write of the
// first life and each way in which the write can end, and once without a crash.
// What is stored may be read at any time; what is left at the end is checked.
func throughACrash(t *testing.T, setUp func(w *world, stored func() []journal.Record), check func(t *testing.T, w *world, rs []journal.Record), bodies ...string) {
	t.Helper()
	play := func(t *testing.T, n int, mode faultstore.Mode) (writes int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			durable := memstore.New()
			setUp(w, func() []journal.Record { return records(t, durable, chat) })
			acked := make(map[int]bool)
			for life := 0; ; life++ {
				fs := faultstore.New(durable)
				if life == 0 && n > 0 {
					fs.Crash(n, mode)
				}
				e, err := w.open(fs)
				if err != nil {
					t.Fatal(err)
				}
				dead := w.hold(t, e, fs, acked, bodies)
				writes = fs.Calls().Total()
				if !dead {
					stop(t, e)
					check(t, w, records(t, durable.Reopen(), chat))
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := e.Close(ctx); err != nil {
					t.Fatal(err)
				}
				fs.Flush()
				durable = durable.Reopen()
			}
		})
		return writes
	}
	writes := play(t, 0, faultstore.Before)
	for n := 1; n <= writes; n++ {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("write %d %s", n, mode), func(t *testing.T) { play(t, n, mode) })
		}
	}
}

// unlocking makes the world an agent whose tool unlock brings in the tool publish
// and other instructions.
func unlocking(w *world) {
	unlock := w.tool("unlock", func(_ context.Context, c *engine.Work) engine.Result {
		if err := c.Set("open", json.RawMessage("true")); err != nil {
			return engine.Result{Failed: true, Content: err.Error()}
		}
		return engine.Result{Content: "unlocked"}
	})
	publish := w.tool("publish", nil)
	w.render = func(v engine.View) (*engine.Plan, error) {
		p := &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Instructions: "locked", Tools: []engine.Tool{unlock}}
		if v.Vars["open"] != nil {
			p.Instructions = "open"
			p.Tools = append(p.Tools, publish)
		}
		return p, nil
	}
	w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				if m.Role == model.RoleTool && b.Text == "unlocked" {
					say(yield, "done")
					return
				}
			}
		}
		call(yield, fmt.Sprintf("unlock u%d", len(req.Messages)))
	}
}

// Wherever the process dies around a change, the model is told of it once, and
// what it has been told is what it is offered, in every call.
func TestResourcesSignalIsDurable(t *testing.T) {
	throughACrash(t, func(w *world, _ func() []journal.Record) {
		unlocking(w)
		reply := w.reply
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			if err := wellFormed(req.Messages); err != nil {
				w.effect("malformed: %v", err)
			}
			if known, are := toldTools([]model.Tool{{Name: "unlock"}}, req), toolNames(req.Tools); known != are {
				w.effect("the model knows of %s and is offered %s", known, are)
			}
			reply(ctx, req, yield)
		}
	}, func(t *testing.T, w *world, rs []journal.Record) {
		want := []string{
			"resources tool: New tool available:\n- **publish** — publish\nAll available tools: unlock, publish",
			"instructions: System instructions updated.",
		}
		if diff := cmp.Diff(want, narrated(rs)); diff != "" {
			t.Errorf("the model is told (-want +got):\n%s", diff)
		}
		resources, baselines := 0, 0
		for _, r := range rs {
			if r, ok := r.(*journal.Resources); ok {
				resources++
				if r.Baseline {
					baselines++
				}
			}
		}
		if resources != 2 || baselines != 1 {
			t.Errorf("%d records of resources with %d baselines, want 2 with 1", resources, baselines)
		}
		for _, effect := range w.did() {
			if !strings.HasPrefix(effect, "tool:") {
				t.Error(effect)
			}
		}
	}, "go", "and on")
}

// A tool that a call has brought in carries the call's id from then on, in every
// request and after a restart. One that came without a call carries none.
func TestUnlockedToolIsLoadedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		release := 1
		var seen []string // the tools of each request with the calls that brought them in
		w := newWorld()
		set := func(name string) func(context.Context, *engine.Work) engine.Result {
			return func(_ context.Context, c *engine.Work) engine.Result {
				if err := c.Set(name, json.RawMessage("true")); err != nil {
					return engine.Result{Failed: true, Content: err.Error()}
				}
				return engine.Result{Content: "ok"}
			}
		}
		grow, shrink, idle := w.tool("grow", set("grown")), w.tool("shrink", set("shrunk")), w.tool("idle", nil)
		fail := w.tool("fail", func(context.Context, *engine.Work) engine.Result { return engine.Result{Failed: true, Content: "no"} })
		w.render = func(v engine.View) (*engine.Plan, error) {
			mu.Lock()
			defer mu.Unlock()
			p := &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Tools: []engine.Tool{grow, shrink, idle, fail}}
			if v.Vars["grown"] != nil {
				p.Tools = append(p.Tools, w.tool("grown", nil))
			}
			if v.Vars["shrunk"] != nil {
				p.Tools = slices.DeleteFunc(p.Tools, func(tool engine.Tool) bool { return tool.Spec.Name == "idle" })
			}
			if release > 1 {
				p.Tools = append(p.Tools, w.tool("released", nil))
			}
			return p, nil
		}
		scripts := map[string][]string{
			"go":   {"idle c1", "fail c2", "fail c3;grow c4;idle c5", "shrink c6"},
			"more": {"grown c7"},
		}
		w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
			var line []string
			for _, tool := range req.Tools {
				if tool.After != "" {
					line = append(line, tool.Name+" after "+tool.After)
				} else {
					line = append(line, tool.Name)
				}
			}
			mu.Lock()
			seen = append(seen, strings.Join(line, ", "))
			mu.Unlock()
			text, results := asked(req)
			if steps := scripts[text]; results < len(steps) {
				call(yield, strings.Split(steps[results], ";")...)
				return
			}
			say(yield, "ok")
		}
		s := memstore.New()
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "go"))
		mu.Lock()
		release = 2
		mu.Unlock()
		stop(t, e)
		e = w.start(t, s.Reopen())
		defer stop(t, e)
		settled(t, e, chat, send(t, e, chat, "more"))
		want := []string{
			"grow, shrink, idle, fail",
			"grow, shrink, idle, fail",
			"grow, shrink, idle, fail",
			"grow, shrink, idle, fail, grown after c4",
			"grow, shrink, fail, grown after c4",
			"grow, shrink, fail, grown after c4, released",
			"grow, shrink, fail, grown after c4, released",
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("tools (-want +got):\n%s", diff)
		}
	})
}

// What is declared beside tools stands in the system prompt as of the baseline,
// which therefore never changes; what has changed since is told in a signal for
// each kind, in words that end with all there are.
func TestResourcesBesideTools(t *testing.T) {
	skill := func(name, description string) journal.Resource {
		return journal.Resource{Kind: journal.ResourceSkill, Name: name, Description: description}
	}
	agent := func(name, description string) journal.Resource {
		return journal.Resource{Kind: journal.ResourceSubagent, Name: name, Description: description}
	}
	digested := skill("notes", "Write notes.")
	digested.Digest = "other"
	type step struct {
		name      string
		resources []journal.Resource
		tools     []string
		want      []string // what is told, each after its type and kind
	}
	steps := []step{
		{"the baseline", []journal.Resource{skill("notes", "Write notes."), agent("scout", "Finds files."), skill("bare", "")}, nil, nil},
		{"the same", []journal.Resource{skill("notes", "Write notes."), agent("scout", "Finds files."), skill("bare", "")}, nil, nil},
		{"another order", []journal.Resource{agent("scout", "Finds files."), skill("bare", ""), skill("notes", "Write notes.")}, nil, nil},
		{
			"one added, one removed, one updated",
			[]journal.Resource{skill("notes", "Write good notes."), skill("tables", "Draw tables."), agent("scout", "Finds files.")},
			nil,
			[]string{"resources skill: New skill available:\n- **tables** — Draw tables.\nThe skill \"bare\" is no longer available.\nThe skill \"notes\" was updated:\n- **notes** — Write good notes.\nAll available skills: notes, tables"},
		},
		{
			"another content of the same description",
			[]journal.Resource{digested, agent("scout", "Finds files.")},
			nil,
			[]string{"resources skill: The skill \"tables\" is no longer available.\nThe skill \"notes\" was updated:\n- **notes** — Write notes.\nAll available skills: notes"},
		},
		{
			"all kinds at once",
			[]journal.Resource{agent("critic", ""), agent("judge", "Judges.")},
			[]string{"work"},
			[]string{
				"resources skill: The skill \"notes\" is no longer available.\nAll available skills: none",
				"resources tool: New tool available:\n- **work** — work\nAll available tools: work",
				"resources subagent: New agents available:\n- **critic**\n- **judge** — Judges.\nThe agent \"scout\" is no longer available.\nAll available agents: critic, judge",
			},
		},
		{
			"a name of another kind",
			[]journal.Resource{skill("work", ""), agent("critic", ""), agent("judge", "Judges.")},
			nil,
			[]string{
				"resources skill: New skill available:\n- **work**\nAll available skills: work",
				"resources tool: The tool \"work\" is no longer available.\nAll available tools: none",
			},
		},
		{
			"back to the baseline",
			[]journal.Resource{skill("notes", "Write notes."), agent("scout", "Finds files."), skill("bare", "")},
			nil,
			[]string{
				"resources skill: New skills available:\n- **notes** — Write notes.\n- **bare**\nThe skill \"work\" is no longer available.\nAll available skills: notes, bare",
				"resources subagent: New agent available:\n- **scout** — Finds files.\nThe agent \"critic\" is no longer available.\nThe agent \"judge\" is no longer available.\nAll available agents: scout",
			},
		},
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		at := 0
		var deliveries []string
		w := newWorld()
		w.render = func(v engine.View) (*engine.Plan, error) {
			mu.Lock()
			defer mu.Unlock()
			deliveries = append(deliveries, v.Delivery.Body)
			p := &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Instructions: "be brief", Resources: steps[at].resources}
			for _, name := range steps[at].tools {
				p.Tools = append(p.Tools, w.tool(name, nil))
			}
			return p, nil
		}
		w.reply = echo
		s := memstore.New()
		e := w.start(t, s)
		const system = "be brief\n\nAvailable skills:\n- **notes** — Write notes.\n- **bare**\n\nAvailable agents:\n- **scout** — Finds files."
		var want []string
		for i, step := range steps {
			mu.Lock()
			at = i
			mu.Unlock()
			if i%2 == 1 { // the baseline outlives the process
				stop(t, e)
				e = w.start(t, s)
			}
			settled(t, e, chat, send(t, e, chat, step.name))
			want = append(want, step.want...)
			if diff := cmp.Diff(want, narrated(records(t, s, chat))); diff != "" {
				t.Fatalf("%s: what was told (-want +got):\n%s", step.name, diff)
			}
			if w.last.System != system {
				t.Errorf("%s: the system prompt is %q, want %q", step.name, w.last.System, system)
			}
			if n := len(told(w.last)); n != len(want) {
				t.Errorf("%s: the model is told %d times, want %d", step.name, n, len(want))
			}
		}
		stop(t, e)
		for i, body := range deliveries {
			if body != steps[i].name {
				t.Errorf("render %d has the delivery %q, want %q: narration must not move it", i, body, steps[i].name)
			}
		}
		if len(deliveries) != len(steps) {
			t.Errorf("%d renders, want %d", len(deliveries), len(steps))
		}
	})
}

// Without instructions the catalog is the whole of the system prompt, and without
// a catalog nothing is added to it.
func TestCatalogAlone(t *testing.T) {
	for _, tt := range []struct {
		instructions string
		resources    []journal.Resource
		want         string
	}{
		{"", nil, ""},
		{"be brief", nil, "be brief"},
		{"", []journal.Resource{{Kind: journal.ResourceSkill, Name: "notes"}}, "Available skills:\n- **notes**"},
		{"be brief", []journal.Resource{{Kind: journal.ResourceSubagent, Name: "scout"}}, "be brief\n\nAvailable agents:\n- **scout**"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.render = func(engine.View) (*engine.Plan, error) {
				return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Instructions: tt.instructions, Resources: tt.resources}, nil
			}
			w.reply = echo
			e := w.start(t, memstore.New())
			defer stop(t, e)
			settled(t, e, chat, send(t, e, chat, "hi"))
			if w.last.System != tt.want {
				t.Errorf("the system prompt is %q, want %q", w.last.System, tt.want)
			}
		})
	}
}

// A journal that is older than narration has no baseline. The next turn sets it,
// and the model is told nothing of tools that it has had all along.
func TestNarrationBeginsWithTheNextTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		w := newWorld()
		w.reply = echo
		e := w.start(t, s)
		settled(t, e, chat, send(t, e, chat, "one"))
		stop(t, e)
		inst, err := s.Instance(t.Context(), chat)
		if err != nil {
			t.Fatal(err)
		}
		old := olderJournal{s, inst.Head}
		w.tools = []engine.Tool{w.tool("work", nil)}
		e = w.start(t, old)
		settled(t, e, chat, send(t, e, chat, "two"))
		if got := narrated(records(t, s, chat)); len(got) != 0 {
			t.Errorf("the model is told %q", got)
		}
		w.tools = nil
		settled(t, e, chat, send(t, e, chat, "three"))
		stop(t, e)
		want := []string{"resources tool: The tool \"work\" is no longer available.\nAll available tools: none"}
		if diff := cmp.Diff(want, narrated(records(t, s, chat))); diff != "" {
			t.Errorf("what is told afterwards (-want +got):\n%s", diff)
		}
	})
}

// An olderJournal shows what was written up to an offset as a program without
// hooks would have written it.
type olderJournal struct {
	store.Store
	until int64
}

func (o olderJournal) Read(ctx context.Context, addr store.Address, after int64, limit int) (store.Page, error) {
	page, err := o.Store.Read(ctx, addr, after, limit)
	if err != nil {
		return page, err
	}
	for i := range page.Batches {
		b := &page.Batches[i]
		if b.Offset > o.until {
			continue
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			return page, err
		}
		batch.Records = slices.DeleteFunc(batch.Records, func(r journal.Record) bool {
			if seam, ok := r.(*journal.Seam); ok {
				seam.Response, seam.Settings = "", nil
			}
			return r.Kind() == journal.KindResources
		})
		if b.Payload, err = journal.Encode(batch); err != nil {
			return page, err
		}
	}
	return page, nil
}

// A message that comes between the last boundary of a response and its settlement
// is not lost: wherever it comes, it is settled once, by the response that it
// joined or by its own.
func TestDispatchMissesTheResponse(t *testing.T) {
	play := func(t *testing.T, n int, done bool) (appends int, answeredBy string) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.tools = []engine.Tool{w.tool("work", nil)}
			w.render = func(engine.View) (*engine.Plan, error) {
				return &engine.Plan{
					Settings: journal.Settings{Model: "test/m"}, Tools: w.tools,
					Finish: []engine.Hook{{Name: "finish", Run: func(context.Context, *engine.Work) error { return nil }}},
				}, nil
			}
			w.reply = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if text, results := asked(req); text == "go" && results == 0 {
					call(yield, "work c1")
					return
				}
				text, _ := asked(req)
				say(yield, "re: "+text)
			}
			s := memstore.New()
			fs := faultstore.New(s)
			late := ""
			sent := make(chan struct{})
			e := w.start(t, fs)
			defer stop(t, e)
			fs.SetHook(func(_ context.Context, p faultstore.Point) error {
				if p.Op != faultstore.Append || p.Done != done {
					return nil
				}
				if appends++; appends == n { // by somebody else, while the owner waits for the store
					go func() {
						defer close(sent)
						late = send(t, e, chat, "late")
					}()
					<-sent
				}
				return nil
			})
			host := send(t, e, chat, "go")
			if got := settled(t, e, chat, host); got != "completed" {
				t.Errorf("the host settled %s", got)
			}
			if n == 0 {
				return
			}
			<-sent
			if got := settled(t, e, chat, late); got != "completed" {
				t.Errorf("the late message settled %s", got)
			}
			ends := 0
			for _, r := range records(t, s, chat) {
				if r, ok := r.(*journal.Settled); ok && r.Submission == late {
					ends++
					answeredBy = "itself"
					if r.AnsweredBy == host {
						answeredBy = "host"
					}
				}
			}
			if ends != 1 {
				t.Errorf("the late message has %d settlements", ends)
			}
			if got := strings.Join(transcript(t, e, chat), "\n"); !strings.Contains(got, `"re: late"`) {
				t.Errorf("the late message has no answer in:\n%s", got)
			}
		})
		return appends, answeredBy
	}
	writes, _ := play(t, 0, false)
	by := make(map[string]int)
	for n := 1; n <= writes; n++ {
		for _, done := range []bool{false, true} {
			_, who := play(t, n, done)
			by[who]++
			if n == writes && who != "itself" {
				t.Errorf("during the settlement's append (done: %v) it was answered by %q", done, who)
			}
		}
	}
	if by["host"] == 0 || by["itself"] == 0 || len(by) != 2 {
		t.Errorf("of the late messages %v", by)
	}
}

// Neither messages that join nor finish hooks that go on move the deadline of the
// response that carries them.
func TestJoinDoesNotExtendTheDeadline(t *testing.T) {
	const timeout = 10 * time.Second
	for _, how := range []string{"joins", "continuations", "both"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.budget.Timeout = timeout
				began := time.Now()
				w.render = func(engine.View) (*engine.Plan, error) {
					p := &engine.Plan{Settings: journal.Settings{Model: "test/m"}}
					if how != "joins" && time.Since(began) < timeout {
						p.Finish = []engine.Hook{{Name: "finish", Run: func(_ context.Context, c *engine.Work) error {
							return c.Append(journal.Message{Kind: journal.Signal, Type: "check", Body: "go on"})
						}}}
					}
					return p, nil
				}
				w.reply = func(ctx context.Context, _ *model.Request, yield func(model.Event, error) bool) {
					if pause(ctx, 1100*time.Millisecond) { // so that no turn ends at the deadline
						say(yield, "ok")
					}
				}
				s := memstore.New()
				e := w.start(t, s)
				defer stop(t, e)
				ids := []string{send(t, e, chat, "host")}
				if how != "continuations" {
					for i := range 12 { // the last come when it is over
						time.Sleep(900 * time.Millisecond)
						ids = append(ids, send(t, e, chat, fmt.Sprint("join ", i)))
					}
				}
				for _, id := range ids {
					settled(t, e, chat, id)
				}
				synctest.Wait() // for the observer
				ended := make(map[string]time.Duration)
				outcomes := make(map[string]string)
				var hosts []string
				for _, ev := range w.seen() {
					if ev.Type == engine.EventSettled {
						ended[ev.Submission], outcomes[ev.Submission] = ev.Time.Sub(began), ev.Outcome
					}
					if ev.Type == engine.EventAttemptStarted {
						hosts = append(hosts, ev.Submission)
					}
				}
				joined := 0
				for _, r := range records(t, s, chat) {
					if r, ok := r.(*journal.Settled); ok && r.AnsweredBy == ids[0] {
						if r.Submission != ids[0] {
							joined++
						}
						if took := ended[r.Submission]; r.Outcome != journal.Failed || took < timeout || took > timeout+time.Second {
							t.Errorf("submission %s settled %s after %v", r.Submission, r.Outcome, took)
						}
						if !strings.Contains(string(r.Error), "submission_timeout") {
							t.Errorf("submission %s settled with %s", r.Submission, r.Error)
						}
					}
				}
				if how == "continuations" && joined != 0 || how != "continuations" && joined < 8 {
					t.Errorf("%d messages joined the host", joined)
				}
				// What did not join has a deadline of its own.
				if len(hosts) > 1 && outcomes[hosts[1]] != journal.Completed {
					t.Errorf("the next response settled %s", outcomes[hosts[1]])
				}
			})
		})
	}
}

// Whatever dies, each render before a model call has the delivery that the model
// reads last, and so has a render for the end of the response.
func TestDeliveryAfterACrash(t *testing.T) {
	throughACrash(t, func(w *world, stored func() []journal.Record) {
		var mu sync.Mutex
		latest := "" // of the renders
		work := w.tool("work", func(ctx context.Context, _ *engine.Work) engine.Result {
			pause(ctx, time.Second)
			return engine.Result{Content: "ok"}
		})
		work.Again = true
		w.render = func(v engine.View) (*engine.Plan, error) {
			mu.Lock()
			latest = v.Delivery.Body
			mu.Unlock()
			appending := func(body string) func(context.Context, *engine.Work) error {
				return func(_ context.Context, c *engine.Work) error {
					return c.Append(journal.Message{Kind: journal.Signal, Type: "note", Body: body})
				}
			}
			p := &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Tools: []engine.Tool{work}}
			if v.Delivery.Body == "two" {
				p.Start = []engine.Hook{{Name: "start", Run: appending("start of two")}}
			}
			p.Finish = []engine.Hook{{Name: "finish", Run: func(ctx context.Context, c *engine.Work) error {
				order := sentOrAppended(stored()) // all is stored before such a hook runs
				if last := order[len(order)-1]; last != v.Delivery.Body {
					w.effect("at the end the model has read %q last, and the render has %q", last, v.Delivery.Body)
				}
				if c.Var("checked") != nil {
					return nil
				}
				if err := c.Set("checked", json.RawMessage("true")); err != nil {
					return err
				}
				return appending("check")(ctx, c)
			}}}
			return p, nil
		}
		w.reply = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
			last, results := lastSent(req)
			mu.Lock()
			if last != latest {
				w.effect("the model reads %q last, and the render had %q", last, latest)
			}
			mu.Unlock()
			if !pause(ctx, time.Second) {
				return
			}
			if (last == "one" || last == "three") && results == 0 {
				call(yield, fmt.Sprintf("work c%d", len(req.Messages)))
				return
			}
			say(yield, "re: "+last)
		}
	}, func(t *testing.T, w *world, rs []journal.Record) {
		for _, effect := range w.did() {
			if !strings.HasPrefix(effect, "tool:") {
				t.Error(effect)
			}
		}
		order := sentOrAppended(rs)
		count := func(body string) (n int) {
			for _, o := range order {
				if o == body {
					n++
				}
			}
			return n
		}
		for _, body := range []string{"one", "two", "three", "start of two", "check"} {
			if count(body) != 1 {
				t.Errorf("%q stands %d times in the conversation %q", body, count(body), order)
			}
		}
		if i := slices.Index(order, "two"); i < 0 || i+1 >= len(order) || order[i+1] != "start of two" {
			t.Errorf("the conversation is %q", order)
		}
	}, "one", "two", "three")
}

// sentOrAppended are the bodies of the messages of senders and hooks, in the order
// in which they stand in the conversation.
func sentOrAppended(rs []journal.Record) (bodies []string) {
	for _, r := range rs {
		if e, ok := r.(*journal.Entry); ok && (e.Purpose == journal.Input || e.Purpose == journal.Appended) {
			bodies = append(bodies, e.Message.Body)
		}
	}
	return bodies
}

// lastSent is the body of the last message that somebody sent or a hook appended,
// and how many batches of results follow it.
func lastSent(req *model.Request) (body string, results int) {
	for _, m := range slices.Backward(req.Messages) {
		text := m.Blocks[0].Text
		switch {
		case m.Role == model.RoleTool:
			results++
		case m.Role == model.RoleUser && strings.HasPrefix(text, `<signal type="note"`):
			return strings.Split(text, "\n")[1], results
		case m.Role == model.RoleUser && !strings.HasPrefix(text, "<"):
			return text, results
		}
	}
	return "", results
}
