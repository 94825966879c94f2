package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/conformance/tap"
)

// The client must see of three replicas, each of which gets every third of its
// requests, what it saw of the one recorded server.
func TestClientOnReplicas(t *testing.T) {
	needNode(t)
	rs := startReplicas(t, 3)
	for _, name := range sdkScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := tap.Start(rs.URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			compareScenario(t, name, p)
		})
	}
}

// Clients of replicas that have all that they can take on are told so, nothing of what
// they send is stored then, and it is answered when they send it again later.
func TestClientOfCrowdedReplicas(t *testing.T) {
	needNode(t)
	rs := startBounded(t, 2, flue.Limits{Concurrent: 1, Backlog: 1})
	notes := make(map[string]any)
	for _, n := range drive(t, rs.URL, nil, "crowded", "chat", "40") {
		notes[n.Label] = n.Value
	}
	refused := member(notes, "refused", "thrown")
	if got := member(refused, "body", "error", "type"); got != "overloaded" || member(refused, "status") != 503.0 {
		t.Errorf("the client was told %v", refused)
	}
	if after, err := strconv.Atoi(fmt.Sprint(notes["retry after"])); err != nil || after < 1 {
		t.Errorf("it may try again after %v", notes["retry after"])
	}
	if got := member(notes, "history of what was refused", "thrown", "status"); got != 404.0 {
		t.Errorf("the history of what was refused is %v", notes["history of what was refused"])
	}
	words, _ := notes["words of the answers"].([]any)
	for i, n := range words {
		if n.(float64) < 60 {
			t.Errorf("the answer %d has %v words", i, n)
		}
	}
	messages, _ := notes["messages"].([]any)
	for i, n := range messages {
		if n != 1.0 {
			t.Errorf("conversation %d has %v messages", i, n)
		}
	}
	if len(words) < 3 || len(messages) != len(words) {
		t.Errorf("%d answers, %d conversations", len(words), len(messages))
	}
}

// member returns a member of a member of a value, or nil.
func member(v any, names ...string) any {
	for _, name := range names {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// answerWords is how many words the answer has in the middle of which a replica is
// lost, which takes about four seconds.
const answerWords = 100

// Clients that follow a conversation notice no more than a reconnect when a
// replica is lost in the middle of an answer: what they were shown stays, what
// they are shown in the end is what everybody reads, and that is what they would
// have been shown without the loss, but for the notes of the interruption.
func TestReplicaIsLost(t *testing.T) {
	needNode(t)
	const conversation = "chat/c-lost"
	tests := []struct {
		name        string
		replicas    int
		strike      func(rs *replicas)
		interrupted bool
	}{
		{"none is lost", 3, func(*replicas) {}, false},
		{"the owner is killed", 3, func(rs *replicas) { rs.owner(conversation).kill() }, true},
		{"the owner is told to end", 3, func(rs *replicas) {
			r := rs.owner(conversation)
			if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				rs.t.Error(err)
			}
		}, true},
		{"another one is killed", 3, func(rs *replicas) { rs.another(conversation).kill() }, false},
		{"the only one is killed and another one started", 1, func(rs *replicas) {
			rs.owner(conversation).kill()
			rs.start(0)
		}, true},
	}
	var calm any // the conversation without a loss
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rs := startReplicas(t, tt.replicas)
			message := fmt.Sprintf("lost @id=lost @text=%d @delay=40 @goon=1", answerWords)
			notes := drive(t, rs.URL, map[string]func(){"strike": func() { tt.strike(rs) }}, "replicas", conversation, message, "20")
			seen := decodeLoss(t, notes)
			seen.followers(t)
			seen.everybodyReadsTheSame(t)
			seen.nothingMissed(t)
			got, interruptions := withoutInterruptions(seen.History)
			if (interruptions > 0) != tt.interrupted {
				t.Errorf("the conversation has %d interruptions", interruptions)
			}
			if calm == nil {
				calm = got
			}
			if diff := cmp.Diff(new(comparer).value(calm), new(comparer).value(got)); diff != "" {
				t.Errorf("the conversation (-without the loss +with it):\n%s", diff)
			}
			if n := rs.balancer.Failed(); n > 0 {
				t.Logf("%d requests were answered with 502, which clients try again", n)
			}
		})
	}
}

// A loss is what clients saw while a replica was lost.
type loss struct {
	Followers []struct {
		Live    string
		Phases  []string
		Taken   []any
		Errors  []string
		Silence int
	}
	States         []any
	Heard, Changes []chunk
	History        map[string]any
}

func decodeLoss(t *testing.T, notes []note) (l loss) {
	t.Helper()
	all := map[string]any{}
	for _, n := range notes {
		all[n.Label] = n.Value
	}
	b, err := json.Marshal(all)
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// followers checks what those who followed were shown on the way.
func (l *loss) followers(t *testing.T) {
	t.Helper()
	if len(l.Followers) != 9 {
		t.Fatalf("%d followed", len(l.Followers))
	}
	longest, reconnected := 0, 0
	for i, f := range l.Followers {
		longest = max(longest, f.Silence)
		if n := slices.Index(f.Phases, "live"); slices.Contains(f.Phases[n+1:], "connecting") {
			reconnected++
		}
		if len(f.Taken) > 0 {
			t.Errorf("follower %d (%s) was shown what was taken back: %v", i, f.Live, f.Taken)
		}
		if len(f.Errors) > 0 || slices.Contains(f.Phases, "error") || f.Phases[len(f.Phases)-1] != "live" {
			t.Errorf("follower %d (%s): errors %v, phases %v", i, f.Live, f.Errors, f.Phases)
		}
	}
	t.Logf("%d of %d reconnected; the longest silence was %d ms", reconnected, len(l.Followers), longest)
}

// everybodyReadsTheSame compares what followers have come to with what is read.
func (l *loss) everybodyReadsTheSame(t *testing.T) {
	t.Helper()
	want := map[string]any{"messages": l.History["messages"], "settlements": l.History["settlements"], "conversationId": l.History["conversationId"]}
	for i, state := range l.States {
		if diff := cmp.Diff(any(want), state); diff != "" {
			t.Errorf("follower %d (-read +followed):\n%s", i, diff)
		}
	}
}

// nothingMissed compares the changes that came one by one with those that are read
// afterwards.
func (l *loss) nothingMissed(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(l.Changes, l.Heard); diff != "" {
		t.Errorf("changes (-read +heard):\n%s", diff)
	}
	var text strings.Builder
	for _, c := range l.Heard {
		if delta, ok := c["delta"].(string); ok {
			text.WriteString(delta)
		}
	}
	if want := wordsUpTo(answerWords); text.String() != want {
		t.Errorf("the text that was heard is %q, want %q", text.String(), want)
	}
}

func wordsUpTo(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "word%d ", i)
	}
	return b.String()
}

// withoutInterruptions returns a conversation without what an interruption leaves
// in it: two hidden notes, and a new part at the place where the model went on. It
// returns how many there were.
func withoutInterruptions(history map[string]any) (_ any, n int) {
	var messages []any
	for _, m := range history["messages"].([]any) {
		m := m.(map[string]any)
		switch id := m["id"].(string); {
		case m["display"] == "hidden" && strings.HasSuffix(id, "_stream_interrupted"):
			n++
		case m["display"] == "hidden" && strings.HasSuffix(id, "_stream_continued"):
		default:
			m["parts"] = onePart(m["parts"].([]any))
			messages = append(messages, m)
		}
	}
	history = maps.Clone(history)
	history["messages"] = messages
	return history, n
}

// onePart puts texts that follow each other together.
func onePart(parts []any) (out []any) {
	for _, p := range parts {
		p := p.(map[string]any)
		if last := len(out) - 1; last >= 0 && p["type"] == "text" && out[last].(map[string]any)["type"] == "text" {
			joined := maps.Clone(out[last].(map[string]any))
			joined["text"] = joined["text"].(string) + p["text"].(string)
			out[last] = joined
			continue
		}
		out = append(out, p)
	}
	return out
}

// Each step of a conversation can be made at another replica: what one accepts, the
// others wait for, read, add to and abort.
func TestEveryStepElsewhere(t *testing.T) {
	needNode(t)
	rs := startReplicas(t, 3)
	args := []string{"chat/c-elsewhere"}
	for _, r := range rs.all {
		args = append(args, r.url)
	}
	got := map[string]any{}
	for _, n := range drive(t, rs.URL, nil, "elsewhere", args...) {
		got[n.Label] = new(comparer).value(n.Value)
	}
	const late = "milliseconds from the abort to its settlement"
	if ms, ok := got[late].(float64); !ok || ms > 3000 {
		t.Errorf("the abort took %v ms", got[late])
	} else {
		t.Logf("an answer ended %v ms after its abort at another replica", ms)
	}
	delete(got, late)
	reply := func(text string) map[string]any {
		return map[string]any{"submissionId": "<sub 1>", "text": text, "data": map[string]any{}}
	}
	last := reply(wordsUpTo(3))
	last["uid"] = "<inst 1>"
	want := map[string]any{
		"reply by submission id": reply(wordsUpTo(5)),
		"answer to what joined":  wordsUpTo(60) + "\n\n" + wordsUpTo(4),
		"abort":                  map[string]any{"aborted": true},
		"reply after the abort":  last,
		"wait": map[string]any{"thrown": map[string]any{
			"name": "FlueExecutionError", "failure": "aborted", "targetId": "<sub 1>",
			"message": "Agent submission <sub 1> was aborted: Submission was aborted.",
			"error": map[string]any{
				"name": "FlueError", "type": "submission_aborted", "message": "Submission was aborted.",
				"details": "The operation was stopped before it produced a completed response.",
			},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the clients were told (-want +got):\n%s", diff)
	}
}

// The published React hook shows a conversation to its end although the replica
// that answers is killed in the middle.
func TestReactHookOnReplicas(t *testing.T) {
	needNode(t)
	rs := startReplicas(t, 3)
	kill := func() { rs.owner("chat/c-react").kill() }
	notes := drive(t, rs.URL, map[string]func(){"cut": kill}, "react-hook", "hello @id=re1 @text=40 @delay=50 @goon=1")
	var text strings.Builder
	for _, n := range notes {
		switch n.Label {
		case "messages":
			// The notes of the interruption are hidden: the hook shows them to nobody
			// who does not ask for them.
			for _, part := range n.Value.([]any)[1].(map[string]any)["parts"].([]any) {
				text.WriteString(part.(map[string]any)["text"].(string))
			}
		case "outcomes":
			if diff := cmp.Diff(any([]any{"completed", "failed", "completed"}), n.Value); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		case "seen":
			if diff := cmp.Diff(any([]any{"submitted", "streaming", "error", "idle"}), n.Value); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
		}
	}
	if text.String() != wordsUpTo(40) {
		t.Errorf("the hook shows %q, want %q", text.String(), wordsUpTo(40))
	}
}
