package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// A summary is what inspect shows of one conversation: nothing of what was said.
type summary struct {
	Agent        string     `json:"agent"`
	ID           string     `json:"id"`
	UID          string     `json:"uid"`
	Phase        string     `json:"phase"`
	Next         string     `json:"next"` // in words
	Damage       *damaged   `json:"damage,omitzero"`
	Head         int64      `json:"head"`
	Created      time.Time  `json:"created,omitzero"`
	LastActivity time.Time  `json:"lastActivity,omitzero"`
	Unsettled    []waiting  `json:"unsettled"`
	Approvals    []approval `json:"approvals"`
	Calls        []openCall `json:"calls"` // of the batch under way
	Steps        []openStep `json:"steps"` // of code that has not ended
	Repairs      []repaired `json:"repairs"`
	Context      int        `json:"context"` // messages that the model is shown
	Compaction   *shortened `json:"compaction,omitzero"`
	Summaries    *failing   `json:"failedSummaries,omitzero"` // since the latest that could be had
	Bytes        int        `json:"bytes"`                    // about what they and the state take
	Usage        usage      `json:"usage"`
	Cost         cost       `json:"cost"`
	Spent        spent      `json:"spent"`  // by the instance in all its time
	Budget       []bound    `json:"budget"` // of the response under way
}

// A waiting is a message that is not settled.
type waiting struct {
	Submission string    `json:"submissionId"`
	State      string    `json:"state"` // active, joined, queued; unknown behind damage
	AcceptedAt time.Time `json:"acceptedAt"`
	Attempts   int       `json:"attempts,omitzero"`
	Fruitless  int       `json:"fruitless,omitzero"` // attempts since something was achieved
	Deadline   time.Time `json:"deadline,omitzero"`
	Aborted    bool      `json:"aborted,omitzero"`
}

type approval struct {
	ID          string    `json:"id"`
	Tool        string    `json:"tool"`
	RequestedAt time.Time `json:"requestedAt"`
	ExpiresAt   time.Time `json:"expiresAt,omitzero"`
}

type openCall struct {
	Call string `json:"callId"`
	Tool string `json:"tool"`
	Done bool   `json:"done"` // it has an outcome, and waits for the others
	// Waits says that it waits until there is room, and certainly has not run.
	Waits bool `json:"waits"`
}

type openStep struct {
	Scope string `json:"scope"`
	Name  string `json:"name"`
	Done  bool   `json:"done"` // it has a value; otherwise it was only begun
}

type repaired struct {
	Offset int64     `json:"offset"`
	At     time.Time `json:"at"`
	From   int64     `json:"from"`
	To     int64     `json:"to"`
	Reason string    `json:"reason"`
}

// A shortened is the latest compaction in effect, without its summary.
type shortened struct {
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Dropped bool   `json:"dropped,omitzero"` // no summary could be had
	Before  int    `json:"tokensBefore"`
	After   int    `json:"tokensAfter"`
}

// A failing is that no summary could be had, as often in a row as it says.
type failing struct {
	Failures int       `json:"failures"`
	Next     time.Time `json:"next"` // before when no other is asked for
}

type usage struct {
	Input      int `json:"input"`
	Output     int `json:"output"`
	CacheRead  int `json:"cacheRead,omitzero"`
	CacheWrite int `json:"cacheWrite,omitzero"`
	Reasoning  int `json:"reasoning,omitzero"`
}

// A cost is what model calls have cost at the prices of their time.
type cost struct {
	Dollars float64 `json:"dollars"`               // of the calls whose cost is known
	Unknown int     `json:"unknownCalls,omitzero"` // those whose cost is not
	AtMost  float64 `json:"atMost,omitzero"`       // an estimate for the latter, rather too high
}

func costOf(e journal.Expense) cost {
	const nano = 1e9 // what a dollar is stored as
	return cost{Dollars: float64(e.Nano) / nano, Unknown: e.Unknown, AtMost: float64(e.AtMost) / nano}
}

func (c cost) String() string { return model.Expense(c).String() }

// summarize reads a conversation. Of a damaged one it tells what there is before
// the damage, and the messages that the index has as unsettled.
func (in *inspection) summarize(ctx context.Context, addr store.Address) (*summary, error) {
	st, err := replay(ctx, in.st, addr)
	s := &summary{Agent: addr.Agent, ID: addr.ID, Head: -1}
	if s.Damage, err = asDamage(err); err != nil {
		return nil, err
	}
	if row, err := in.st.Instance(ctx, addr); err == nil {
		s.UID, s.Head = row.UID, row.Head
		s.Created, s.LastActivity = in.written(ctx, addr, 0), in.written(ctx, addr, row.Head)
	}
	subs, err := in.st.Unsettled(ctx, addr)
	if err != nil {
		return nil, err
	}
	s.Unsettled = queue(st, subs)
	s.Phase, s.Next = st.Phase.String(), next(st)
	if s.Damage != nil {
		s.Phase, s.Next = phaseDamaged, "nothing: its journal cannot be continued; see the command repair"
		if s.Damage.Newer {
			s.Next = "nothing: a newer version of the program has written its journal, and that version can continue it"
		}
	} else if len(s.Unsettled) > 0 && in.lacks(addr.Agent) {
		s.Next = "nothing: this program has no agent of this name"
	}
	s.Approvals, s.Calls, s.Steps = pending(st), calls(st), steps(st)
	if s.Repairs, err = in.repairs(ctx, addr, st); err != nil {
		return nil, err
	}
	s.Context, s.Bytes = len(st.Context), st.Size
	if c := st.Compaction(); c != nil {
		s.Compaction = &shortened{ID: c.ID, Reason: string(c.Reason), Dropped: c.Dropped, Before: c.Before, After: c.After}
	}
	if un := st.Unsummarized; un.Failures > 0 {
		s.Summaries = &failing{Failures: un.Failures, Next: time.UnixMilli(un.Next).UTC()}
	}
	u := st.Usage
	s.Usage = usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning}
	s.Cost = costOf(st.Cost)
	s.Spent, s.Budget = spentOf(st.Spent), budget(st)
	return s, nil
}

// lacks reports whether the program surely has no agent of the name. A Setup,
// which only runs with the agents, might add one.
func (p *program) lacks(agent string) bool {
	has := func(a *flue.Agent) bool { return a != nil && a.Name == agent }
	return p.app.Setup == nil && !slices.ContainsFunc(p.app.Agents, has)
}

// next says in words what the phase calls for.
func next(st *fold.State) string {
	switch st.Phase {
	case fold.Idle:
		if len(st.Queue) > 0 {
			return "begin the first message of the queue"
		}
		return "nothing: it waits for a message"
	case fold.Input:
		return "run the start hooks and put the message into the conversation"
	case fold.Model:
		return "let the next message join, or call the model"
	case fold.Streaming:
		return "gather the model's answer; after a restart, close the turn and ask the model to go on"
	case fold.Tools:
		return "finish the calls; after a restart, run those of durable tools again and tell the model that the others are unknown"
	case fold.Finish:
		return "let the next message join, or run the finish hooks and close the response"
	case fold.Closed:
		return "settle the message and all that joined it"
	}
	return "nothing: it has no beginning"
}

// queue describes the unsettled submissions, in the order of their admission.
func queue(st *fold.State, subs []store.Submission) []waiting {
	known := make(map[string]waiting)
	add := func(state string, list ...*fold.Submission) {
		for _, sub := range list {
			w := waiting{State: state, Attempts: sub.Attempts, Fruitless: sub.Fruitless, Aborted: sub.Aborted}
			if sub.Deadline > 0 {
				w.Deadline = time.UnixMilli(sub.Deadline).UTC()
			}
			known[sub.Submission] = w
		}
	}
	if st.Active != nil {
		add("active", st.Active)
	}
	add("joined", st.Joined...)
	add("queued", st.Queue...)
	out := []waiting{}
	for _, sub := range subs {
		w := known[sub.ID]
		w.Submission, w.AcceptedAt, w.State = sub.ID, sub.AcceptedAt, cmp.Or(w.State, "unknown")
		out = append(out, w)
	}
	return out
}

// approvalsState begins the names of the persistent state that hold the calls
// that wait for approval, or did.
const approvalsState = "flue:approval:"

// unreadable stands for the tool of an approval that cannot be read.
const unreadable = "(not readable)"

// pending returns the calls that wait for approval, oldest first, without their
// arguments.
func pending(st *fold.State) []approval {
	out := []approval{}
	for name, raw := range st.Vars {
		id, ok := strings.CutPrefix(name, approvalsState)
		if !ok {
			continue
		}
		var a flue.Approval
		if err := json.Unmarshal(raw, &a); err != nil {
			a = flue.Approval{Tool: unreadable}
		}
		if a.Decision == nil {
			out = append(out, approval{ID: id, Tool: a.Tool, RequestedAt: a.RequestedAt, ExpiresAt: a.ExpiresAt})
		}
	}
	slices.SortFunc(out, func(a, b approval) int { return cmp.Or(a.RequestedAt.Compare(b.RequestedAt), cmp.Compare(a.ID, b.ID)) })
	return out
}

func calls(st *fold.State) []openCall {
	out := []openCall{}
	for _, c := range st.Response.Calls {
		out = append(out, openCall{
			Call: c.Call, Tool: c.Name, Done: st.Response.Outcomes[c.Call] != nil,
			Waits: st.Response.Outcomes[c.Call] == nil && !st.Response.MayHaveRun(c.Call),
		})
	}
	return out
}

func steps(st *fold.State) []openStep {
	out := []openStep{}
	for _, scope := range slices.Sorted(maps.Keys(st.Steps)) {
		for _, name := range slices.Sorted(maps.Keys(st.Steps[scope])) {
			out = append(out, openStep{Scope: scope, Name: name, Done: len(st.Steps[scope][name].Value) > 0})
		}
	}
	return out
}

// repairs returns the repairs of a journal. Only one that has been repaired is
// read once more for them.
func (in *inspection) repairs(ctx context.Context, addr store.Address, st *fold.State) ([]repaired, error) {
	out := []repaired{}
	if len(st.Passed) == 0 {
		return out, nil
	}
	for b, err := range batches(ctx, in.st, addr) {
		if err != nil {
			return nil, err
		}
		for _, r := range b.Records {
			if r, ok := r.(*journal.Repair); ok {
				out = append(out, repaired{Offset: b.Offset, At: b.At, From: r.From, To: r.To, Reason: r.Reason})
			}
		}
	}
	return out, nil
}

// write prints the summary for a person.
func (s *summary) write(w io.Writer, now time.Time) {
	say := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, line(fmt.Sprintf(format, args...)))
	}
	item := func(format string, args ...any) { say("", format, args...) }
	when := func(t time.Time) string {
		if t.IsZero() {
			return "unknown"
		}
		return stamp(t) + " (" + ago(t, now) + ")"
	}
	say("agent", "%s", s.Agent)
	say("id", "%s", s.ID)
	say("uid", "%s", s.UID)
	say("created", "%s", when(s.Created))
	say("active", "%s", when(s.LastActivity))
	say("phase", "%s", s.Phase)
	if s.Damage != nil {
		say("damage", "offset %d: %s", s.Damage.Offset, s.Damage.Reason)
	}
	say("next", "%s", s.Next)
	say("journal", "head %d; %s and about %d bytes before the model", s.Head, plural(s.Context, "message"), s.Bytes)
	if c := s.Compaction; c != nil {
		say("compacted", "%s, for %s: from about %d tokens to %d%s", c.ID, c.Reason, c.Before, c.After, either(c.Dropped, ", without a summary", ""))
	}
	if f := s.Summaries; f != nil {
		say("summaries", "%s in a row could not be had; the next is asked for when it is needed, not before %s", plural(f.Failures, "summary", "summaries"), when(f.Next))
	}
	say("unsettled", "%s", plural(len(s.Unsettled), "message"))
	for _, u := range s.Unsettled {
		item("%s %s, accepted %s%s", u.Submission, u.State, when(u.AcceptedAt), u.progress(now))
	}
	say("approvals", "%d pending", len(s.Approvals))
	for _, a := range s.Approvals {
		expires := "never expires"
		if !a.ExpiresAt.IsZero() {
			expires = "expires " + when(a.ExpiresAt)
		}
		item("%s %s, asked for %s, %s", a.ID, a.Tool, when(a.RequestedAt), expires)
	}
	say("calls", "%d open", len(slices.DeleteFunc(slices.Clone(s.Calls), func(c openCall) bool { return c.Done })))
	for _, c := range s.Calls {
		item("%s %s, %s", c.Call, c.Tool, either(c.Done, "has an outcome", either(c.Waits, "waits and has not run", "has none yet")))
	}
	say("steps", "%d", len(s.Steps))
	for _, st := range s.Steps {
		item("%s %q, %s", st.Scope, st.Name, either(st.Done, "has a value", "was begun"))
	}
	for _, r := range s.Repairs {
		say("repaired", "at offset %d, %s: batches %d to %d are passed over: %s", r.Offset, when(r.At), r.From, r.To, r.Reason)
	}
	u := s.Usage
	say("usage", "%d tokens in, %d out, %d read from and %d written to caches", u.Input, u.Output, u.CacheRead, u.CacheWrite)
	say("cost", "%s", s.Cost)
	if n := s.Spent.Guessed; n > 0 {
		say("and", "about %d tokens that no provider has counted, by estimate", n)
	}
	say("spent", "%s, %s, %s of work", plural(s.Spent.Turns, "turn"), plural(s.Spent.ToolCalls, "tool call"), time.Duration(s.Spent.WorkMS)*time.Millisecond)
	for _, b := range s.Budget {
		say("budget", "%s", b)
	}
}

// progress says how the work on a message goes.
func (u *waiting) progress(now time.Time) string {
	var b strings.Builder
	if u.Attempts > 0 {
		fmt.Fprintf(&b, ", %s", plural(u.Attempts, "attempt"))
	}
	if u.Fruitless > 1 {
		fmt.Fprintf(&b, " (the last %d without progress)", u.Fruitless)
	}
	if !u.Deadline.IsZero() {
		fmt.Fprintf(&b, ", out of time %s", ago(u.Deadline, now))
	}
	if u.Aborted {
		b.WriteString(", aborted")
	}
	return b.String()
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}
