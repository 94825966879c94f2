package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/internal/project"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// form is a message in short.
func form(m journal.Message) string {
	if m.Kind == journal.Signal {
		return "<" + m.Type
	}
	return m.Body
}

// requestForm is what the model is shown in short, and the latest message in it
// that is a delivery.
func requestForm(req *model.Request) (all, latest string) {
	var b strings.Builder
	for _, m := range req.Messages {
		for _, block := range m.Blocks {
			switch {
			case block.Kind == model.ToolCall:
				fmt.Fprintf(&b, "call %s\n", block.CallID)
			case block.Kind == model.ToolResult:
				fmt.Fprintf(&b, "result %s %v %s\n", block.CallID, block.IsError, block.Text)
			case m.Role == model.RoleAssistant:
				fmt.Fprintf(&b, "said %s\n", block.Text)
			default:
				text := block.Text
				if strings.HasPrefix(text, "<compaction") {
					text = "<compaction"
				} else if typ, ok := strings.CutPrefix(text, `<signal type="`); ok {
					text = "<" + typ[:strings.IndexByte(typ, '"')]
				}
				if text[0] == '#' || slices.Contains([]string{"<first", "<second", "<review"}, text) {
					latest = text
				}
				fmt.Fprintf(&b, "%s\n", text)
			}
		}
	}
	return b.String(), latest
}

// contextForm is the context of a state as requestForm tells it.
func contextForm(st *fold.State) string {
	var b strings.Builder
	for _, it := range st.Context {
		switch {
		case it.Summary != nil:
			b.WriteString("<compaction\n")
		case it.Entry != nil:
			fmt.Fprintf(&b, "%s\n", form(it.Entry.Message))
		case it.Turn != nil:
			for _, block := range it.Turn.Blocks {
				switch {
				case block.Kind == journal.ToolCall && it.Turn.Stop != journal.StopAborted:
					fmt.Fprintf(&b, "call %s\n", block.Call)
				case block.Kind == journal.Text:
					fmt.Fprintf(&b, "said %s\n", block.Text)
				}
			}
		default:
			for _, o := range it.Outcomes {
				fmt.Fprintf(&b, "result %s %v %s\n", o.Call, o.Failed, o.Content)
			}
		}
	}
	return b.String()
}

// A page is one batch of a journal.
type page struct {
	journal.Batch
	offset, epoch int64
}

// read is the journal of an instance as it is durable now.
func (r *trial) read(addr store.Address) []page {
	r.mu.Lock()
	known := r.pages[addr]
	r.mu.Unlock()
	got, err := r.journals().Read(context.Background(), addr, int64(len(known))-1, 0)
	if err != nil {
		return known // not born, or this code outlives its process
	}
	for _, b := range got.Batches {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			panic(err)
		}
		if b.Offset != int64(len(known)) {
			r.breaks("12: offsets have no gap", "%d is at %d", len(known), b.Offset)
		}
		known = append(known[:len(known):len(known)], page{batch, b.Offset, b.Epoch})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(known) > len(r.pages[addr]) {
		r.pages[addr] = known
	}
	return known
}

// A follower reads a conversation live, across the lives of the process.
type follower struct {
	addr   store.Address
	trial  *trial
	late   bool // text may have been merged before it came
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	next  int64
	spans []span
}

// A span is what a follower was given at a time.
type span struct {
	after, next int64
	chunks      string
}

func (r *trial) follow(addr store.Address) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{addr: addr, trial: r, cancel: cancel, done: make(chan struct{}), next: -1}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			if !f.read(ctx) {
				pause(ctx, 100*time.Millisecond)
			}
		}
	}()
	return f
}

func (f *follower) stop() { f.cancel(); <-f.done }

// drain reads what is left.
func (f *follower) drain() {
	f.stop()
	for f.behind(f.trial.e) && f.read(context.Background()) {
		continue
	}
}

// behind reports whether there is something to read.
func (f *follower) behind(e *engine.Engine) bool {
	in, err := e.Instance(context.Background(), f.addr)
	return err == nil && f.next < in.Head
}

// read takes what there is, or waits for more. It reports false if the process
// is dead or the instance is not there.
func (f *follower) read(ctx context.Context) bool {
	f.mu.Lock()
	after := f.next
	f.mu.Unlock()
	e := f.trial.engine()
	u, err := e.Updates(ctx, f.addr, after, 3)
	if errors.Is(err, engine.ErrOffsetGone) {
		f.trial.breaks("13: what was read does not disappear", "%s ends before %d", f.addr, after)
	}
	if err != nil {
		return false
	}
	if u.Next > after {
		f.mu.Lock()
		f.next = u.Next
		f.spans = append(f.spans, span{after, u.Next, string(u.Chunks)})
		f.mu.Unlock()
		return true
	}
	return e.Wait(ctx, f.addr, after) == nil
}

// told is what readers must be told of each batch of an instance: read from the
// journal, or projected from what it was before text was merged.
func (r *trial) told(addr store.Address) (out []string) {
	if r.Merge > 0 {
		for _, p := range r.read(addr) {
			var chunks []string
			for _, c := range project.Chunks(project.ConversationID(r.incarnation(addr)), p.offset, p.Batch) {
				chunks = append(chunks, string(mustJSON(c)))
			}
			out = append(out, strings.Join(chunks, ","))
		}
		return out
	}
	for {
		u, err := r.e.Updates(context.Background(), addr, int64(len(out))-1, 1)
		if err != nil || u.Next < int64(len(out)) {
			return out
		}
		out = append(out, string(u.Chunks))
	}
}

// incarnation is that of an instance that was born.
func (r *trial) incarnation(addr store.Address) string {
	return r.read(addr)[0].Records[0].(*journal.Born).Incarnation
}

// seen checks that the follower was given what the journal says, and that a
// snapshot is what it was given.
func (f *follower) seen(told []string, snapshot string) {
	var v wire.Conversation
	for _, s := range f.spans {
		if s.next >= int64(len(told)) {
			f.trial.breaks("13: what was read does not disappear", "%s ends at %d, read were %d", f.addr, len(told)-1, s.next)
			return
		}
		said := slices.DeleteFunc(slices.Clone(told[s.after+1:s.next+1]), func(chunks string) bool { return chunks == "" })
		if r := f.trial; f.late {
			// In other pieces, but to the same end.
		} else if r.Merge > 0 && s.after >= 0 && strings.Contains(s.chunks, `"conversation-reset"`) {
			if _, streamed := r.read(f.addr)[s.after+1].Streamed(); !streamed {
				r.breaks("89: only who stopped within text is reset", "after %d", s.after)
			}
		} else if want := strings.Join(said, ","); want != s.chunks && canonical(want) != canonical(s.chunks) {
			f.trial.breaks("89: a live reader sees what the journal says", "after %d to %d:\n%s\nand the journal\n%s", s.after, s.next, s.chunks, want)
			return
		}
		if err := applyChunks(&v, s.chunks); err != nil {
			f.trial.breaks("89: a live reader can follow", "%v", err)
			return
		}
	}
	if got := shown(v.Messages, v.Settlements); got != snapshot {
		f.trial.breaks("89: a snapshot is what a live reader has seen", "%s\n%s", snapshot, got)
	}
}

// shown is a conversation as one text.
func shown(messages []wire.Message, settlements []wire.Settlement) string {
	return string(mustJSON(append([]wire.Message{}, messages...))) + string(mustJSON(append([]wire.Settlement{}, settlements...)))
}

// canonical is a run of chunks in a form in which those that say the same are
// equal.
func canonical(chunks string) string {
	v := jsontext.Value("[" + chunks + "]")
	if err := v.Canonicalize(); err != nil {
		return err.Error()
	}
	return string(v)
}

func applyChunks(v *wire.Conversation, chunks string) error {
	var list []wire.Chunk
	if err := json.Unmarshal([]byte("["+chunks+"]"), &list); err != nil {
		return err
	}
	for i := range list {
		if err := v.Apply(&list[i]); err != nil {
			return err
		}
	}
	return nil
}
