package engine_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
)

// A narrow is a model with a small window. It counts in its own way, refuses what
// is too large, and finds fault with every request that some provider would
// refuse.
type narrow struct {
	window int
	answer func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) // default: echo
	sum    func(n int, req *model.Request) string                                             // the n-th summary; default: a short one
	judge  func(n int, req *model.Request) []string                                           // what is wrong with the n-th request, if set

	// uneven makes it count some texts for more than others, and so at times for more
	// than the engine's estimate.
	uneven bool
	// output, if set, is what an answer may have in tokens where the request says
	// nothing: then both must fit the window.
	output int

	mu        sync.Mutex
	requests  int
	shown     int // messages of all requests
	refused   int
	largest   int
	summaries []*model.Request
	faults    []string
}

// count is how large a request is: a word, or four bytes of one, is a token.
func count(req *model.Request) int {
	n := size(req.System)
	for _, t := range req.Tools {
		n += size(t.Name + " " + t.Description + " " + string(t.Schema))
	}
	for _, m := range req.Messages {
		n += 4
		for _, b := range m.Blocks {
			n += size(b.Text) + size(b.Name) + size(b.Arguments)
			if b.Kind == model.Image {
				n += 1500
			}
		}
	}
	return n
}

// count is how large the model takes a request to be.
func (n *narrow) count(req *model.Request) int {
	tokens := count(req)
	if !n.uneven {
		return tokens
	}
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			if len(b.Text)%5 == 0 {
				tokens += size(b.Text) / 3
			}
		}
	}
	return tokens
}

func size(s string) int {
	n := 0
	for _, w := range strings.Fields(s) {
		n += (len(w) + 3) / 4
	}
	return n
}

func isSummary(req *model.Request) bool {
	return strings.HasPrefix(req.System, "You write the summary")
}

func (n *narrow) fault(format string, args ...any) {
	n.faults = append(n.faults, fmt.Sprintf(format, args...))
}

func (n *narrow) reply(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
	tokens := n.count(req)
	n.mu.Lock()
	n.requests++
	n.shown += len(req.Messages)
	if out := cmp.Or(req.MaxOutput, n.output); n.output > 0 && tokens+out > n.window {
		n.fault("request %d has %d tokens and asks for %d more", n.requests, tokens, out)
	}
	n.check(req)
	if n.judge != nil {
		for _, problem := range n.judge(n.requests, req) {
			n.fault("request %d: %s", n.requests, problem)
		}
	}
	over := tokens > n.window
	if over {
		n.refused++
	} else {
		n.largest = max(n.largest, tokens)
	}
	text := ""
	if isSummary(req) && !over {
		n.summaries = append(n.summaries, req)
		text = fmt.Sprintf("summary %d", len(n.summaries))
		if n.sum != nil {
			text = n.sum(len(n.summaries), req)
		}
	}
	n.mu.Unlock()
	switch {
	case over:
		yield(nil, &model.Error{Class: model.Overflow, Status: 400, Message: "prompt is too long"})
	case isSummary(req):
		say(yield, text)
	default:
		answer := n.answer
		if answer == nil {
			answer = echo
		}
		said := &model.Request{Messages: []model.Message{{}}}
		answer(ctx, req, func(ev model.Event, err error) bool {
			switch e := ev.(type) {
			case model.BlockDone:
				said.Messages[0].Blocks = append(said.Messages[0].Blocks, e.Block)
			case model.Done:
				e.Usage = model.Usage{Input: tokens, Output: n.count(said)} // as it counts when it is shown
				ev = e
			}
			return yield(ev, err)
		})
	}
}

// asked is how many requests there were.
func (n *narrow) asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests
}

// check holds a request to what providers demand.
func (n *narrow) check(req *model.Request) {
	if err := wellFormed(req.Messages); err != nil {
		n.fault("request %d: %v", n.requests, err)
	}
	if len(req.Messages) == 0 {
		n.fault("request %d has no messages", n.requests)
		return
	}
	if req.Messages[0].Role != model.RoleUser || req.Messages[len(req.Messages)-1].Role == model.RoleAssistant {
		n.fault("request %d begins or ends with what it must not", n.requests)
	}
	for i, m := range req.Messages {
		if len(m.Blocks) == 0 {
			n.fault("message %d of request %d is empty", i, n.requests)
		}
		for _, b := range m.Blocks {
			if b.Kind == model.Image && len(b.Data) == 0 {
				n.fault("an image of request %d has no bytes", n.requests)
			}
			if strings.ToValidUTF8(b.Text, "") != b.Text {
				n.fault("a text of request %d is no UTF-8", n.requests)
			}
		}
	}
	if isSummary(req) && (len(req.Tools) > 0 || len(req.Messages) != 1) {
		n.fault("a summary is asked for with %d tools and %d messages", len(req.Tools), len(req.Messages))
	}
}

// use makes the narrow model the world's, with a window that is known or not.
func (n *narrow) use(w *world, known bool) {
	w.reply = n.reply
	if known {
		w.infos = map[string]model.Info{"m": {ContextWindow: n.window, MaxOutput: 4096, Images: true}}
	}
}

// report fails the test if a request was not as it must be.
func (n *narrow) report(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.faults[:min(len(n.faults), 5)] {
		t.Error(f)
	}
}

func compactions(t testing.TB, s store.Store) []*journal.Compacted {
	t.Helper()
	var out []*journal.Compacted
	for _, r := range records(t, s, chat) {
		if c, ok := r.(*journal.Compacted); ok {
			out = append(out, c)
		}
	}
	return out
}

// prose is n words, in several scripts, that differ from one i to the next.
func prose(i, n int) string {
	words := []string{"the", "order", "was", "shipped", "2024-11-0", "Rechnung", "заказ", "注文は", "{\"id\":", "/var/log/app.log", "because", "nobody"}
	var b strings.Builder
	for j := range n {
		b.WriteString(words[(i*7+j*j)%len(words)])
		b.WriteByte(' ')
	}
	return b.String()
}

// latest is the latest request.
func (w *world) latest() *model.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// addImage attaches an image to a message.
func addImage(a *engine.Admission, i int) {
	id, data := fmt.Sprint("att_", i), make([]byte, 6000)
	a.Attachments = append(a.Attachments, store.Attachment{ID: id, MediaType: "image/png", Digest: sha256.Sum256(data), Data: data})
	a.Message.Attachments = append(a.Message.Attachments, journal.Attachment{ID: id, MediaType: "image/png", Size: len(data)})
}

// A conversation of two thousand turns, with calls side by side, images, long
// results and calls that wait for somebody, on a model with a window of 16,000
// tokens: no request is invalid or too large, every message is answered, what
// waits stays, and a turn is no more work at the end than at the beginning. The
// model counts at times more than the engine thinks, and what is asked for and what
// may be answered fit its window together.
func TestLongConversation(t *testing.T) {
	const messages = 1250
	w := newWorld()
	w.every = 0 // as in earnest: a checkpoint now and then
	n := &narrow{window: 16_000, uneven: true, output: 4096}
	n.use(w, true)
	waiting := make(map[string]int) // calls that wait, and since which message
	var mu sync.Mutex
	w.tools = []engine.Tool{
		w.tool("look", func(_ context.Context, c *engine.Work) engine.Result {
			return engine.Result{Content: "found " + c.ID + " " + prose(len(c.ID), 150)}
		}),
		w.tool("ask", func(_ context.Context, c *engine.Work) engine.Result {
			return engine.Result{Content: `{"status":"pending_approval"}`, EndTurn: true}
		}),
	}
	at := 0
	w.render = func(engine.View) (*engine.Plan, error) {
		p := &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Instructions: "be brief", Tools: w.tools}
		mu.Lock()
		defer mu.Unlock()
		for id, since := range waiting {
			if at < since+60 {
				p.Waiting = append(p.Waiting, id)
			}
		}
		slices.Sort(p.Waiting)
		return p, nil
	}
	n.answer = func(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
		text, results := asked(req)
		mu.Lock()
		i := at
		for id, since := range waiting {
			if i < since+60 && i > since && !slices.ContainsFunc(req.Messages, func(m model.Message) bool {
				return slices.ContainsFunc(m.Blocks, func(b model.Block) bool { return b.CallID == id && b.Kind == model.ToolResult })
			}) {
				n.fault("call %s waits since message %d and is not shown at message %d", id, since, i)
			}
		}
		mu.Unlock()
		if !strings.HasPrefix(text, fmt.Sprintf("m%d ", i)) {
			n.fault("message %d is put to the model as %.20q", i, text)
		}
		switch {
		case i%3 == 1 && results < 2:
			call(yield, fmt.Sprintf("look l%d-%d-a", i, results), fmt.Sprintf("look l%d-%d-b {}", i, results))
		case i%97 == 5 && results < 1:
			id := fmt.Sprintf("ask-%d", i)
			mu.Lock()
			waiting[id] = i
			mu.Unlock()
			call(yield, "ask "+id)
		default:
			say(yield, "re: "+prose(i, 60))
		}
	}
	s := &readCounter{Store: memstore.New()}
	e := w.start(t, s)
	defer stop(t, e)
	// By the end of each quarter of the conversation: batches read, requests, and
	// messages in them.
	var read, requests, shown [5]int
	for i := range messages {
		mu.Lock()
		at = i
		mu.Unlock()
		a := engine.Admission{Address: chat, Submission: fmt.Sprint("sub_", i), Identity: []byte{1}, Origin: "direct", Message: journal.Message{
			Kind: journal.User, Body: fmt.Sprintf("m%d ", i) + prose(i, 100),
		}}
		if i%50 == 49 {
			addImage(&a, i)
		}
		if _, err := e.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if got := settled(t, e, chat, a.Submission); got != "completed" {
			t.Fatalf("message %d settled %s", i, got)
		}
		if i%(messages/4) == messages/4-1 {
			at := i/(messages/4) + 1
			read[at] = int(s.batches.Load())
			n.mu.Lock()
			requests[at], shown[at] = n.requests, n.shown
			n.mu.Unlock()
		}
	}
	n.report(t)
	if n.requests-len(n.summaries) < 2000 || n.refused > 0 || n.largest > n.window {
		t.Errorf("%d turns, %d refused, the largest request has %d tokens", n.requests-len(n.summaries), n.refused, n.largest)
	}
	all := compactions(t, s)
	if len(all) < 24 || len(n.summaries) > len(all)*5/4 {
		t.Errorf("%d compactions from %d summaries", len(all), len(n.summaries))
	}
	for _, c := range all {
		if c.Reason != journal.CompactionThreshold || c.Dropped || c.After >= c.Before || c.After > n.window {
			t.Errorf("a compaction for %s, of %d tokens to %d", c.Reason, c.Before, c.After)
		}
	}
	for q := range 4 {
		turns := requests[q+1] - requests[q]
		if mean := (shown[q+1] - shown[q]) / turns; mean > 150 {
			t.Errorf("in quarter %d a request has %d messages", q, mean)
		}
		if n := read[q+1] - read[q]; n > turns {
			t.Errorf("in quarter %d of %d turns %d batches were read", q, turns, n)
		}
	}
	higher := 0
	sizes := make(map[string]int)
	for _, r := range records(t, s, chat) {
		switch r := r.(type) {
		case *journal.TurnStarted:
			sizes[r.Turn] = r.Size
		case *journal.TurnDone:
			if r.Usage.Input > sizes[r.Turn] {
				higher++
			}
		}
	}
	if higher == 0 {
		t.Error("the model never counted more than the engine's estimate")
	}
	t.Logf("%d turns, %d compactions, largest request %d tokens, %d counted higher than estimated; batches read %d, messages shown %d", n.requests-len(n.summaries), len(all), n.largest, higher, read, shown)
}

// A readCounter counts the batches that are read.
type readCounter struct {
	*memstore.Store
	batches atomic.Int64
}

func (c *readCounter) Read(ctx context.Context, addr store.Address, after int64, most int) (store.Page, error) {
	p, err := c.Store.Read(ctx, addr, after, most)
	c.batches.Add(int64(len(p.Batches)))
	return p, err
}

// foldAll folds the journal.
func foldAll(t testing.TB, s store.Store) *fold.State {
	t.Helper()
	st := &fold.State{Head: -1}
	for _, r := range records(t, s, chat) {
		if err := st.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// Calls that wait stay as they are, however large they are and however many: no
// summary takes their place, and less of them is sent if they do not fit.
func TestWaitingCallsAreNeverSummarized(t *testing.T) {
	for name, tt := range map[string]struct{ calls, words int }{
		"one large":            {1, 1500}, // more than a quarter of the room
		"several":              {5, 300},
		"more than the window": {3, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			n := &narrow{window: 8000}
			n.use(w, true)
			w.tools = []engine.Tool{w.tool("ask", func(context.Context, *engine.Work) engine.Result {
				return engine.Result{Content: `{"status":"pending_approval"}`, EndTurn: true}
			})}
			var waiting []string
			w.render = func(engine.View) (*engine.Plan, error) {
				return &engine.Plan{Settings: journal.Settings{Model: "test/m"}, Tools: w.tools, Waiting: waiting}, nil
			}
			n.answer = func(_ context.Context, req *model.Request, yield func(model.Event, error) bool) {
				if text, _ := asked(req); strings.HasPrefix(text, "ask ") {
					id := strings.Fields(text)[1]
					waiting = append(waiting, id)
					call(yield, fmt.Sprintf(`ask %s {"text":%q}`, id, strings.Repeat("word ", tt.words)))
					return
				}
				say(yield, "ok")
			}
			s := memstore.New()
			e := w.start(t, s)
			defer stop(t, e)
			for i := range tt.calls {
				converse(t, e, fmt.Sprintf("ask c%d", i))
			}
			converse(t, e, messages(0, 40, 60)...)
			n.report(t)
			all := compactions(t, s)
			if len(all) == 0 || n.refused > 0 {
				t.Fatalf("%d compactions, %d requests refused", len(all), n.refused)
			}
			held := map[string]bool{}
			for _, it := range foldAll(t, s).Context {
				if it.Turn != nil {
					for _, b := range it.Turn.Blocks {
						held[b.Call] = true
					}
				}
			}
			last := w.latest()
			for _, id := range waiting {
				shown := slices.ContainsFunc(last.Messages, func(m model.Message) bool {
					return slices.ContainsFunc(m.Blocks, func(b model.Block) bool { return b.Kind == model.ToolCall && b.CallID == id })
				})
				if !held[id] || !shown {
					t.Errorf("call %s is in the context: %v, shown: %v", id, held[id], shown)
				}
			}
		})
	}
}
