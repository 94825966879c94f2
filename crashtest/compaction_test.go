package crashtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// talkVar makes the test binary a program that holds a conversation which is too
// long for its model. Its value is the database.
const talkVar = "FLUE_CRASHTEST_TALK"

const (
	talkMessages = 120
	talkWindow   = 2000 // tokens
)

func saying(i int) string {
	return fmt.Sprintf("message %d: %s", i, strings.Repeat("lorem ipsum ", 40))
}

// holdTalk sends each message until it is answered. It says on standard output when a
// summary is begun, what is wrong, and when all is answered.
func holdTalk(file string) error {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return err
	}
	p := script.New(script.Func(func(req *model.Request) script.Turn {
		tokens := len(req.System) / 4
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				tokens += len(b.Text) / 4
			}
		}
		switch last := req.Messages[len(req.Messages)-1]; {
		case tokens > talkWindow:
			fmt.Println("fault: a request of", tokens, "tokens")
			return script.Fail(&model.Error{Class: model.Overflow, Message: "too long"})
		case strings.HasPrefix(req.System, "You write the summary"):
			if len(req.Tools) > 0 {
				fmt.Println("fault: a summary with tools")
			}
			fmt.Println("summarizing")
			return script.Wait(20 * time.Millisecond).Say("They said lorem ipsum.")
		case last.Role != model.RoleUser:
			fmt.Println("fault: the last message is of role", last.Role)
			return script.Say("?")
		default:
			head, _, _ := strings.Cut(script.LastUser(req), ":")
			return script.Say("re: " + head + "; " + strings.Repeat("dolor sit ", 30))
		}
	}))
	rt, err := flue.Open(ctx, flue.Config{
		Agents: []*flue.Agent{{Name: "talker", Render: func(r *flue.Render) string {
			flue.UseModel(r, "script/m", flue.ModelOptions{Compaction: &flue.Compaction{KeepRecentTokens: 300}})
			return "be brief"
		}, Durability: flue.Durability{MaxAttempts: 10_000}}},
		Providers: map[string]model.Provider{"script": p}, Store: db,
		Catalog: func(string, string) (model.Info, bool) {
			return model.Info{ContextWindow: talkWindow, MaxOutput: 400}, true
		},
	})
	if err != nil {
		return err
	}
	in := rt.Instance("talker", "c1")
	fmt.Println("ready")
	for i := range talkMessages {
		r, err := in.Dispatch(ctx, flue.User(saying(i)), flue.SendOptions{IdempotencyKey: fmt.Sprint(i)})
		if err != nil {
			return err
		}
		if _, err := in.Read(ctx, r.Submission); err != nil {
			return err
		}
	}
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	return nil
}

// TestKillInCompaction kills a program again and again, most often while a summary
// is being written. Every message is answered once, and every compaction is whole
// or was never made.
func TestKillInCompaction(t *testing.T) {
	kills := 40
	if testing.Short() {
		kills = 10
	}
	seed := uint64(variable(t, "FLUE_SEED", time.Now().UnixNano()))
	rng := rand.New(rand.NewPCG(seed, 0))
	file := filepath.Join(t.TempDir(), "talk.db")
	within, last := 0, false
	for life := 0; ; life++ {
		if life > kills+20 {
			t.Fatalf("it does not come to an end; FLUE_SEED=%d", seed)
		}
		// Not twice in a row: attempts that achieve nothing wait for each other.
		inSummary := !last && rng.IntN(4) > 0
		done, hit := talkOnce(t, file, life < kills, inSummary, rng)
		if last = hit; hit {
			within++
		}
		if done {
			break
		}
	}
	checkTalk(t, file)
	t.Logf("%d kills while a summary was written", within)
	if within == 0 {
		t.Error("no life was ended while a summary was written")
	}
}

// talkOnce runs the program and kills it if it may, while a summary is written or
// at any time. It reports whether all was
// answered, and whether a summary was being written when it was killed.
func talkOnce(t *testing.T, file string, kill, inSummary bool, rng *rand.Rand) (done, within bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), talkVar+"="+file)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if kill && !inSummary {
		timer.Reset(time.Duration(20+rng.IntN(150)) * time.Millisecond)
	}
	skip := min(rng.IntN(4), 2) // summaries that may be finished first
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "done":
			done = true
			_ = cmd.Process.Kill()
		case strings.HasPrefix(line, "fault"):
			t.Error(line)
		case line == "summarizing" && kill && inSummary:
			if skip--; skip < 0 {
				within = true
				timer.Reset(time.Duration(rng.IntN(30)) * time.Millisecond)
			}
		}
	}
	_ = cmd.Wait()
	return done, within && !done
}

// checkTalk holds the journal to what was promised.
func checkTalk(t *testing.T, file string) {
	t.Helper()
	ctx := context.Background()
	db, err := sqlite.Open(ctx, file, sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	st := &fold.State{Head: -1}
	compactions, settled := 0, 0
	var answers []string
	for b, err := range store.Batches(ctx, db, store.Address{Agent: "talker", ID: "c1"}, -1) {
		if err != nil {
			t.Fatal(err)
		}
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			if err := st.Apply(r); err != nil {
				t.Fatal(err)
			}
			switch r := r.(type) {
			case *journal.Compacted:
				compactions++
				if r.Dropped || r.Reason != journal.CompactionThreshold {
					t.Errorf("a compaction for %s, dropped %v", r.Reason, r.Dropped)
				}
			case *journal.Settled:
				if settled++; r.Outcome != journal.Completed {
					t.Errorf("a message settled %s", r.Outcome)
				}
			case *journal.TurnDone:
				if r.Stop == journal.StopEnd {
					head, _, _ := strings.Cut(r.Blocks[0].Text, ";")
					answers = append(answers, head)
				}
			}
		}
	}
	if settled != talkMessages || len(answers) != talkMessages {
		t.Errorf("%d messages are settled and %d answered, want %d", settled, len(answers), talkMessages)
	}
	for i, got := range answers {
		if want := fmt.Sprintf("re: message %d", i); got != want {
			t.Errorf("answer %d is %q", i, got)
		}
	}
	if compactions < 4 {
		t.Errorf("%d compactions", compactions)
	}
	t.Logf("%d compactions", compactions)
}
