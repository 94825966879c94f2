package flue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A chronicler answers messages and writes summaries, and keeps what it was asked.
type chronicler struct {
	fake
	summaries atomic.Int32
	fails     atomic.Bool
	answers   func(req *model.Request) []model.Block // default: re: and the last message
}

func newChronicler() *chronicler {
	c := &chronicler{}
	c.answer = func(req *model.Request) []model.Block {
		switch {
		case strings.HasPrefix(req.System, "You write the summary") && c.fails.Load():
			return text(" ")
		case strings.HasPrefix(req.System, "You write the summary"):
			return text(fmt.Sprintf("summary %d", c.summaries.Add(1)))
		case c.answers != nil:
			return c.answers(req)
		}
		return text("re: " + lastBlock(req))
	}
	return c
}

func lastBlock(req *model.Request) string {
	m := req.Messages[len(req.Messages)-1]
	return m.Blocks[len(m.Blocks)-1].Text
}

// last is the latest request, or the latest one for a summary.
func (c *chronicler) last(summary bool) *model.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.requests) - 1; i >= 0; i-- {
		if strings.HasPrefix(c.requests[i].System, "You write the summary") == summary {
			return c.requests[i]
		}
	}
	return nil
}

func requestText(req *model.Request) string {
	var b strings.Builder
	for _, m := range req.Messages {
		for _, bl := range m.Blocks {
			b.WriteString(bl.Text + bl.Arguments + "\n")
		}
	}
	return b.String()
}

// tell sends messages one after another.
func tell(t *testing.T, in *flue.Instance, messages ...flue.Message) {
	t.Helper()
	for _, m := range messages {
		r, err := in.Dispatch(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Read(t.Context(), r.Submission); err != nil {
			t.Fatal(err)
		}
	}
}

func numbered(from, to int) []flue.Message {
	var out []flue.Message
	for i := from; i < to; i++ {
		out = append(out, flue.User(fmt.Sprintf("m%d ", i)+strings.Repeat("word ", 100)))
	}
	return out
}

// short keeps little, so that there is always something to compact.
func short(r *flue.Render) string {
	flue.UseModel(r, "fake/m", flue.ModelOptions{Compaction: &flue.Compaction{Off: true, KeepRecentTokens: 300, Instructions: "Keep the order numbers."}})
	return "be brief"
}

func TestCompact(t *testing.T) {
	c := newChronicler()
	rt := openStore(t, c, memstore.New(), agent(short))
	in := rt.Instance("helper", "c1")
	if _, err := in.Compact(t.Context()); !errors.Is(err, &flue.Error{Code: flue.CodeConversationMissing}) {
		t.Errorf("an instance that is not there: %v", err)
	}
	tell(t, in, flue.User("hello"))
	if _, err := in.Compact(t.Context()); !errors.Is(err, flue.ErrNothingToCompact) {
		t.Errorf("a short conversation: %v", err)
	}
	tell(t, in, numbered(0, 8)...)
	before, err := in.Conversation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done, err := in.Compact(t.Context(), flue.CompactOptions{Instructions: "And the dates.", IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if done.Reason != "manual" || done.Summary != "summary 1" || done.Model != "fake/m" || done.TokensAfter >= done.TokensBefore || done.Dropped {
		t.Errorf("it is %+v", done)
	}
	if asked := requestText(c.last(true)); !strings.Contains(asked, "Keep the order numbers.\n\nAnd the dates.") || !strings.Contains(asked, "m0 ") {
		t.Errorf("the summary was asked for with %.300q", asked)
	}
	again, err := in.Compact(t.Context(), flue.CompactOptions{Instructions: "And the dates.", IdempotencyKey: "k"})
	if err != nil || again.ID != done.ID || c.summaries.Load() != 1 {
		t.Errorf("asked again under the key: %+v, %v", again, err)
	}
	if _, err := in.Compact(t.Context()); !errors.Is(err, flue.ErrNothingToCompact) {
		t.Errorf("once more: %v", err)
	}
	tell(t, in, flue.User("and now"))
	if shown := requestText(c.last(false)); !strings.Contains(shown, "summary 1") || strings.Contains(shown, "m0 ") || !strings.Contains(shown, "m7 ") {
		t.Errorf("the model is shown %.300q", shown)
	}
	// People see the conversation as it was.
	after, err := in.Conversation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := mustEncode(t, before.Messages), mustEncode(t, after.Messages[:len(before.Messages)]); a != b {
		t.Error("clients see another conversation")
	}
	if len(after.Messages) != len(before.Messages)+2 {
		t.Errorf("clients see %d messages more, want the message and its answer", len(after.Messages)-len(before.Messages))
	}

	// One that fails changes nothing.
	c.fails.Store(true)
	tell(t, in, numbered(8, 16)...)
	var failed *flue.SubmissionError
	if _, err := in.Compact(t.Context()); !errors.As(err, &failed) || failed.Code != flue.CodeOperationFailed {
		t.Errorf("a summary that fails: %v", err)
	}
	tell(t, in, flue.User("and now"))
	if shown := requestText(c.last(false)); !strings.Contains(shown, "summary 1") || !strings.Contains(shown, "m8 ") {
		t.Errorf("the model is shown %.300q", shown)
	}
	if _, err := in.Compact(t.Context(), flue.CompactOptions{Instructions: strings.Repeat("x", 17<<10)}); !errors.Is(err, &flue.Error{Code: flue.CodeInvalidRequest}) {
		t.Errorf("long instructions: %v", err)
	}
}

func TestUndoCompaction(t *testing.T) {
	c := newChronicler()
	s := memstore.New()
	rt := openStore(t, c, s, agent(short))
	in := rt.Instance("helper", "c1")
	tell(t, in, numbered(0, 8)...)
	if _, err := in.UndoCompaction(t.Context()); !errors.Is(err, flue.ErrNothingToCompact) {
		t.Errorf("there is none: %v", err)
	}
	first, err := in.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tell(t, in, numbered(8, 16)...)
	second, err := in.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	look := func(in *flue.Instance, has, hasNot []string) {
		t.Helper()
		tell(t, in, flue.User("look"))
		shown := requestText(c.last(false))
		for _, s := range has {
			if strings.Count(shown, s) != 1 {
				t.Errorf("the model is shown %q %d times", s, strings.Count(shown, s))
			}
		}
		for _, s := range hasNot {
			if strings.Contains(shown, s) {
				t.Errorf("the model is shown %q", s)
			}
		}
	}
	look(in, []string{"summary 2"}, []string{"summary 1", "re: m8 "})
	undone, err := in.UndoCompaction(t.Context())
	if err != nil || undone.ID != second.ID {
		t.Fatalf("undone %+v, %v", undone, err)
	}
	look(in, []string{"summary 1", "re: m8 ", "re: m15 "}, []string{"summary 2", "re: m0 "})
	if undone, err = in.UndoCompaction(t.Context()); err != nil || undone.ID != first.ID {
		t.Fatalf("undone %+v, %v", undone, err)
	}
	look(in, []string{"re: m0 ", "re: m8 ", "re: m15 "}, []string{"summary"})
	if _, err := in.UndoCompaction(t.Context()); !errors.Is(err, flue.ErrNothingToCompact) {
		t.Errorf("once more: %v", err)
	}
	// Another process reads the same from the journal.
	closeNow(t, rt)
	rt = openStore(t, c, s.Reopen(), agent(short))
	in = rt.Instance("helper", "c1")
	look(in, []string{"re: m0 ", "re: m8 ", "re: m15 "}, []string{"summary"})
	third, err := in.Compact(t.Context())
	if err != nil || third.Summary != "summary 3" {
		t.Fatalf("compacted %+v, %v", third, err)
	}
	look(in, []string{"summary 3"}, []string{"re: m0 "})
}

// What is asked for while a response is under way is done before its next model
// call; the message keeps being answered.
func TestCompactDuringAResponse(t *testing.T) { synctest.Test(t, testCompactDuringAResponse) }

func testCompactDuringAResponse(t *testing.T) {
	c := newChronicler()
	running, goOn := make(chan struct{}), make(chan struct{})
	c.answers = func(req *model.Request) []model.Block {
		if lastBlock(req) == "work" {
			return toolCall("wait", `{}`)
		}
		return text("re: " + lastBlock(req)[:min(len(lastBlock(req)), 20)])
	}
	rt := openStore(t, c, memstore.New(), agent(func(r *flue.Render) string {
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "wait", Description: "Waits."}, func(context.Context, struct{}) (string, error) {
			close(running)
			<-goOn
			return "waited", nil
		}))
		return short(r)
	}))
	in := rt.Instance("helper", "c1")
	tell(t, in, numbered(0, 8)...)
	r, err := in.Dispatch(t.Context(), flue.User("work"))
	if err != nil {
		t.Fatal(err)
	}
	<-running
	type result struct {
		done *flue.Compacted
		err  error
	}
	results := make(chan result, 1)
	go func() {
		done, err := in.Compact(t.Context())
		results <- result{done, err}
	}()
	synctest.Wait()
	close(goOn)
	reply, err := in.Read(t.Context(), r.Submission)
	if err != nil || reply.Text != "re: waited" {
		t.Errorf("the reply is %+v, %v", reply, err)
	}
	got := <-results
	if got.err != nil || got.done.Summary != "summary 1" {
		t.Fatalf("%+v, %v", got.done, got.err)
	}
	if shown := requestText(c.last(false)); !strings.Contains(shown, "summary 1") || !strings.Contains(shown, "work") || strings.Contains(shown, "m0 ") {
		t.Errorf("the model is shown %.300q", shown)
	}
}

// Pinned messages stay as they are, whichever way they came; a call that waits for
// approval does too, until the model has been told what came of it.
func TestPinsAndApprovalsStay(t *testing.T) {
	c := newChronicler()
	c.answers = func(req *model.Request) []model.Block {
		if lastBlock(req) == "publish" {
			return toolCall("publish", `{"version":"1.0"}`)
		}
		return text("ok")
	}
	ran := 0
	rt := openStore(t, c, memstore.New(), agent(func(r *flue.Render) string {
		flue.UseApprovalGate(r, flue.NewTool(flue.Tool{Name: "publish", Description: "Publishes."}, func(context.Context, struct {
			Version string `json:"version"`
		},
		) (string, error) {
			ran++
			return "published", nil
		}), flue.ApprovalPolicy{})
		if delivery := flue.UseDelivery(r); delivery.Pinned {
			flue.UseAgentStart(r, func(_ context.Context, start *flue.AgentStart) error {
				second := flue.Signal("rule", "the second rule", nil)
				second.Pinned = true
				return start.Append(second)
			})
		}
		return short(r)
	}))
	in := rt.Instance("helper", "c1")
	pin := flue.User("the first rule")
	pin.Pinned = true
	r, err := in.Dispatch(t.Context(), pin, flue.SendOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(t.Context(), r.Submission); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Dispatch(t.Context(), flue.User("the first rule"), flue.SendOptions{IdempotencyKey: "k"}); !errors.Is(err, &flue.Error{Code: flue.CodeSubmissionConflict}) {
		t.Errorf("the same without the pin is the same: %v", err)
	}
	tell(t, in, flue.User("publish"))
	tell(t, in, numbered(0, 12)...)
	if _, err := in.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	tell(t, in, flue.User("look"))
	shown := requestText(c.last(false))
	for _, want := range []string{"summary 1", "the first rule", "the second rule", `{"version":"1.0"}`, "pending_approval", "m11 "} {
		if strings.Count(shown, want) != 1 {
			t.Errorf("the model is shown %q %d times in %.500q", want, strings.Count(shown, want), shown)
		}
	}
	waiting, err := in.Approvals(t.Context())
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	r, err = in.Decide(t.Context(), waiting[0].ID, flue.Decision{Approve: true, By: "Ada"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(t.Context(), r.Submission); err != nil {
		t.Fatal(err)
	}
	if shown = requestText(c.last(false)); !strings.Contains(shown, "published") || ran != 1 {
		t.Errorf("it ran %d times, and the model is shown %q", ran, shown)
	}
	tell(t, in, numbered(12, 24)...)
	if _, err := in.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	tell(t, in, flue.User("look"))
	if shown = requestText(c.last(false)); strings.Contains(shown, "pending_approval") || !strings.Contains(shown, "the first rule") {
		t.Errorf("the model is shown %.500q", shown)
	}
}

func mustEncode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// openStore is open with a store.
func openStore(t *testing.T, p model.Provider, s store.Store, agents ...*flue.Agent) *flue.Runtime {
	t.Helper()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: agents, Providers: map[string]model.Provider{"fake": p}, RetryBase: time.Millisecond, Store: s, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNow(t, rt) })
	return rt
}

func closeNow(t *testing.T, rt *flue.Runtime) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := rt.Close(ctx); err != nil {
		t.Error(err)
	}
}
