package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// herdVar makes the test binary a program with a herd of conversations. Its value
// is a herdConfig.
const herdVar = "FLUE_CRASHTEST_HERD"

type herdConfig struct {
	File  string
	Size  int  // conversations
	Begin bool // send a message to each, and bring each to where it hangs; otherwise take them up
}

// A herd is one life of that program. Of three conversations one hangs in an answer
// of which the beginning is durable, one in an ordinary tool, and one in the second
// step of a durable tool. It says on standard output when all hang, when the first
// one is taken up, and when all are settled.
type herd struct {
	herdConfig
	said *bufio.Writer
	mu   sync.Mutex // guards said and the counts

	hangs map[string]bool
	taken bool
}

func serveHerd(encoded string) (err error) {
	h := &herd{said: bufio.NewWriter(os.Stdout), hangs: make(map[string]bool)}
	if err := json.Unmarshal([]byte(encoded), &h.herdConfig); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	db, err := sqlite.Open(ctx, h.File, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rt, err := flue.Open(ctx, flue.Config{
		Agents: []*flue.Agent{h.agent()}, Providers: map[string]model.Provider{"herd": h}, Store: db, Observe: h.observe,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, rt.Close(ctx))
	}()
	if h.Begin {
		for i := range h.Size {
			if _, err := rt.Dispatch(ctx, "herd", strconv.Itoa(i), flue.User(strconv.Itoa(i))); err != nil {
				return err
			}
		}
	} else if err := h.settle(ctx, db); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (h *herd) say(word string) {
	_, _ = fmt.Fprintln(h.said, word)
	_ = h.said.Flush()
}

// hanging notes that a conversation has come to where it hangs.
func (h *herd) hanging(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hangs[id] {
		return
	}
	if h.hangs[id] = true; len(h.hangs) == h.Size {
		h.say("hanging")
	}
}

func (h *herd) observe(ev flue.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ev.Type == flue.EventAttemptStarted && ev.Attempt > 1 && !h.taken { // its record is durable
		h.taken = true
		h.say("taken")
	}
}

// settle returns when all is settled. It asks the store: an observer may miss
// events when there are many.
func (h *herd) settle(ctx context.Context, db *sqlite.Store) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := db.Instances(ctx, store.Address{}, h.Size)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list, func(in store.Instance) bool { return in.Unsettled > 0 }) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.say("settled")
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *herd) agent() *flue.Agent {
	ordinary := flue.NewTool(flue.Tool{Name: "ordinary", Description: "Work."}, func(ctx context.Context, in struct {
		ID string `json:"id"`
	},
	) (string, error) {
		if !h.Begin {
			return "", fmt.Errorf("the call of %s is run again", in.ID)
		}
		h.hanging(in.ID)
		<-ctx.Done()
		return "", ctx.Err()
	})
	durable := flue.NewDurableTool(flue.Tool{Name: "durable", Description: "Work."}, func(ctx context.Context, step *flue.Step, in struct {
		ID string `json:"id"`
	},
	) (string, error) {
		_, err := flue.Do(ctx, step, "first", func(context.Context) (bool, error) {
			if !h.Begin {
				return false, fmt.Errorf("the first step of %s is run again", in.ID)
			}
			return true, nil
		})
		if err != nil {
			return "", err
		}
		_, err = flue.Do(ctx, step, "second", func(ctx context.Context) (bool, error) {
			if h.Begin {
				h.hanging(in.ID)
				<-ctx.Done()
			}
			return true, ctx.Err()
		})
		return "done", err
	})
	return &flue.Agent{Name: "herd", Durability: flue.Durability{MaxAttempts: 100}, Render: func(r *flue.Render) string {
		flue.UseModel(r, "herd/any")
		flue.UseTool(r, ordinary)
		flue.UseTool(r, durable)
		return "Do what you are told."
	}}
}

// Stream makes the herd its own model.
func (h *herd) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		id, asked := "", false
		for _, m := range req.Messages {
			switch {
			case m.Role == model.RoleUser && id == "":
				id = m.Blocks[0].Text
			case m.Role == model.RoleTool:
				asked = true
			}
		}
		n, _ := strconv.Atoi(id)
		tool := []string{"", "ordinary", "durable"}[n%3]
		switch {
		case tool != "" && !asked:
			_ = yield(model.BlockDone{Block: model.Block{Kind: model.ToolCall, CallID: "call_" + id, Name: tool, Arguments: `{"id":"` + id + `"}`}}, nil) &&
				yield(model.Done{Stop: model.StopToolUse}, nil)
		case h.Begin:
			if !yield(model.Delta{Kind: model.Text, Text: "It is "}, nil) {
				return
			}
			select { // by then the beginning is durable
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
			}
			h.hanging(id)
			<-ctx.Done()
		default:
			_ = yield(model.Delta{Kind: model.Text, Text: "done."}, nil) && yield(model.Done{Stop: model.StopEnd}, nil)
		}
	}
}

// A passing is one life of a herd as the test sees it.
type passing struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	began  time.Time
	words  chan string
}

func (c herdConfig) start(t *testing.T) *passing {
	t.Helper()
	p := &passing{t: t, cmd: exec.Command(os.Args[0]), words: make(chan string, 1000)}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Env = append(os.Environ(), herdVar+"="+string(encoded))
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.words)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.words <- lines.Text()
		}
	}()
	return p
}

// await waits for a word, and returns how long after the start it came.
func (p *passing) await(word string, patience time.Duration) time.Duration {
	p.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	last := ""
	for {
		select {
		case got, ok := <-p.words:
			if got == word {
				return time.Since(p.began)
			}
			if last = got; ok {
				continue
			}
		case <-late.C:
		}
		p.end()
		p.t.Fatalf("%q has not come after %v; the last word was %q\n%s", word, time.Since(p.began), last, p.stderr.String())
	}
}

// kill ends the life as SIGKILL does.
func (p *passing) kill() {
	p.t.Helper()
	p.end()
	if p.stderr.Len() > 0 {
		p.t.Errorf("it logged:\n%s", p.stderr.String())
	}
}

func (p *passing) end() {
	_ = p.cmd.Process.Kill()
	for range p.words {
		continue
	}
	_ = p.cmd.Wait() // tells of the kill
	_ = p.stdin.Close()
}

// TestRestartAtScale kills a program in which a thousand conversations are in the
// middle of something, and starts it again. The first of them is taken up within a
// second, and all are settled within a minute.
func TestRestartAtScale(t *testing.T) {
	size := 1000
	if testing.Short() {
		size = 90
	}
	size = int(variable(t, "FLUE_HERD", int64(size)))
	c := herdConfig{File: filepath.Join(t.ArtifactDir(), "herd.db"), Size: size, Begin: true}
	p := c.start(t)
	p.await("hanging", 2*time.Minute)
	p.kill()

	c.Begin = false
	var first []time.Duration
	for range 2 { // it dies again as soon as it has begun
		p = c.start(t)
		first = append(first, p.await("taken", time.Minute))
		p.kill()
	}
	p = c.start(t)
	first = append(first, p.await("taken", time.Minute))
	all := p.await("settled", 2*time.Minute)
	p.kill()

	slices.Sort(first)
	t.Logf("%d interrupted conversations: the first is taken up %v after exec (median of %v), all are settled after %v", size, first[1], first, all)
	if first[1] > time.Second {
		t.Errorf("interrupted work was taken up after %v, want at most 1 s", first[1])
	}
	if all > time.Minute {
		t.Errorf("all is settled after %v, want at most a minute", all)
	}
	c.audit(t)
}

// audit holds what the herd has left to the promise.
func (c herdConfig) audit(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	(&complaints{t: t}).checkFile(ctx, c.File)
	db, err := sqlite.Open(ctx, c.File, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range c.Size {
		addr := store.Address{Agent: "herd", ID: strconv.Itoa(i)}
		st := &fold.State{Head: -1}
		settled, said := 0, ""
		for b, err := range store.Batches(ctx, db, addr, -1) {
			if err != nil {
				t.Fatal(err)
			}
			batch, err := journal.Decode(b.Payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range batch.Records {
				if err := st.Apply(r); err != nil {
					t.Fatalf("%s: %v", addr, err)
				}
				switch r := r.(type) {
				case *journal.Settled:
					if settled++; r.Outcome != journal.Completed {
						t.Errorf("%s settled %s", addr, r.Outcome)
					}
				case *journal.Outcome:
					unknown := strings.Contains(r.Content, "unknown")
					if r.Failed != (i%3 == 1) || unknown != r.Failed {
						t.Errorf("the call of %s reads %q", addr, r.Content)
					}
				case *journal.TurnDone:
					if r.Stop == journal.StopAborted && len(r.Blocks) > 0 { // a life after the first may have said nothing
						said += r.Blocks[0].Text
					}
				}
			}
		}
		if settled != 1 || st.Unsettled() {
			t.Errorf("%s has %d settlements", addr, settled)
		}
		if i%3 == 0 && said != "It is " {
			t.Errorf("of the answer of %s %q was kept", addr, said)
		}
	}
}
