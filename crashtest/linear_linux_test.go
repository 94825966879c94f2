package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue/internal/linear"
	"github.com/flue-go/flue/internal/sse"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// TestFleetLinearizable lets clients ask three servers on one database, through a
// balancer, while all that can go wrong does. What they were told, what steps came
// to, and what the servers did with ownership must be what one thing after another
// could have led to.
func TestFleetLinearizable(t *testing.T) {
	operations := 2_000
	if duration(t, "FLUE_FLEET", 0) > time.Minute {
		operations = 20_000
	}
	operations = int(variable(t, "FLUE_OPERATIONS", int64(operations)))
	f := newFleet(t, drill{replicas: 3, lease: 2 * time.Second, maxAttempts: 1_000_000})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	x := &inquiry{fleet: f, ids: make(map[string][]*asked), uids: make(map[string]string)}
	x.run(ctx, operations)
	if n := x.count(); n < operations && !x.any() {
		x.complain("%d operations in %v, want %d: so short a history shows little", n, longest, operations)
	}
	x.verdict(ctx)
}

// instancesEach is how many instances each of the plain agents has.
const instancesEach = 24

// An inquiry is a history of what clients asked and were told.
type inquiry struct {
	*fleet

	seen    sync.Mutex // guards what follows
	history []porcupine.Operation
	unsure  []porcupine.Operation // whose outcome is unknown
	ids     map[string][]*asked   // of the messages sent, by instance
	uids    map[string]string     // by instance
	counter int
}

// asked is a message that was sent, whatever came of it.
type asked struct {
	key, identity string
	submission    string // once it is known
	offset        wire.Offset
}

func (x *inquiry) now() int64 { return int64(time.Since(x.began)) }

// longest is how long clients ask, on a machine on which they get nowhere.
const longest = 5 * time.Minute

// run lets clients ask until so much is known.
func (x *inquiry) run(ctx context.Context, operations int) {
	stop := make(chan struct{})
	var clients, trouble sync.WaitGroup
	trouble.Go(func() { x.plague(ctx, stop, nemeses) })
	for i := range 24 {
		rng := x.random(uint64(100 + i))
		clients.Go(func() {
			for ctx.Err() == nil && x.count() < operations && time.Since(x.began) < longest && !x.any() {
				if !x.act(ctx, rng) {
					pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	trouble.Wait()
}

func (x *inquiry) count() int {
	x.seen.Lock()
	defer x.seen.Unlock()
	return len(x.history)
}

// awaited is reading the outcome of a message once there is one.
const awaited = "await"

// act does one operation, and reports whether its outcome is known.
func (x *inquiry) act(ctx context.Context, rng *rand.Rand) bool {
	instance := fmt.Sprintf("%s/%d", plainAgents[rng.IntN(len(plainAgents))], rng.IntN(instancesEach))
	held := instance[0] == 'h'
	x.seen.Lock()
	uid := x.uids[instance]
	var old asked
	if ids := x.ids[instance]; len(ids) > 0 { // the newest ones are the busiest
		old = *ids[len(ids)-1-rng.IntN(min(len(ids), 6))]
	}
	x.seen.Unlock()
	in := linear.Request{Instance: instance, Kind: linear.Admit, ID: old.key, Identity: "a", Held: held}
	switch what := rng.IntN(100); {
	case old.key == "" || what < 26:
		in.ID = x.fresh(instance)
	case what < 32:
		in.ID, in.Condition = x.fresh(instance), store.Condition{Create: true}
	case what < 38 && uid != "":
		in.ID, in.Condition = x.fresh(instance), store.Condition{UID: uid}
	case what < 40:
		in.ID, in.Condition = x.fresh(instance), store.Condition{UID: "inst_other"}
	case what < 48: // a replay
	case what < 51:
		in.Identity = "b"
	case what < 60 && held:
		in.Kind = linear.Abort
	case old.submission == "":
		return true // nobody knows what to read
	case what < 70:
		in.Kind = awaited
	default:
		in.Kind = linear.Read
	}
	return x.do(ctx, in, old)
}

// fresh returns the key of a new message.
func (x *inquiry) fresh(instance string) string {
	x.seen.Lock()
	defer x.seen.Unlock()
	x.counter++
	a := &asked{key: fmt.Sprint("m", x.counter), identity: "a"}
	x.ids[instance] = append(x.ids[instance], a)
	return a.key
}

// do does one operation, notes what it came to, and reports whether that is known.
func (x *inquiry) do(ctx context.Context, in linear.Request, of asked) bool {
	op := porcupine.Operation{Call: x.now()}
	out, known := x.answer(ctx, &in, of)
	op.Input, op.Output, op.Return = in, out, x.now()
	x.seen.Lock()
	defer x.seen.Unlock()
	switch {
	case known:
		x.history = append(x.history, op)
	case in.Kind != linear.Read: // a read has no effect
		op.Return = linear.Infinity
		x.unsure = append(x.unsure, op)
	}
	if out.UID != "" {
		x.uids[in.Instance] = out.UID
	}
	return known
}

func (x *inquiry) answer(ctx context.Context, in *linear.Request, of asked) (out linear.Answer, known bool) {
	switch in.Kind {
	case linear.Admit:
		return x.admit(ctx, *in)
	case linear.Abort:
		return x.abort(ctx, *in)
	case awaited:
		in.Kind = linear.Read
		return x.await(ctx, *in, of)
	}
	return x.read(ctx, *in, of.submission)
}

// request makes one try. What is not answered as it should be is as good as not
// answered.
func (x *inquiry) request(ctx context.Context, method, path string, body []byte) (int, []byte, bool) {
	l := x.client.lives.current(ctx)
	if l == nil {
		return 0, nil, false
	}
	status, data, err := x.client.try(ctx, l, method, path, body)
	return status, data, err == nil && status < 500
}

func (x *inquiry) admit(ctx context.Context, in linear.Request) (out linear.Answer, known bool) {
	said := object{"kind": "user", "body": in.ID + in.Identity, "idempotencyKey": in.ID}
	switch {
	case in.Condition.Create:
		said["uid"] = nil
	case in.Condition.UID != "":
		said["uid"] = in.Condition.UID
	}
	body, err := json.Marshal(said)
	if err != nil {
		panic(err) // strings encode
	}
	status, data, ok := x.request(ctx, http.MethodPost, "/agents/"+in.Instance, body)
	if !ok {
		return out, false
	}
	var told struct {
		wire.Admission
		Error struct {
			Type string `json:"type"`
			Meta struct {
				UID string `json:"uid"`
			} `json:"meta"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &told); err != nil {
		x.complain("%s: %d %s: %v", in.Instance, status, data, err)
		return out, false
	}
	switch {
	case status == http.StatusAccepted:
		x.accepted(in, told.Admission)
		return linear.Answer{OK: true, UID: told.UID, Duplicate: told.Deduplicated}, true
	case told.Error.Type == "submission_conflict":
		return linear.Answer{Refused: linear.Conflict}, true
	case told.Error.Type == "agent_instance_exists":
		return linear.Answer{Refused: linear.Condition, UID: told.Error.Meta.UID}, true
	case told.Error.Type == "agent_instance_not_found":
		return linear.Answer{Refused: linear.Condition, Untold: true}, true
	}
	x.complain("%s: a message was answered with %d %s", in.Instance, status, data)
	return out, false
}

// accepted notes how a message can be read.
func (x *inquiry) accepted(in linear.Request, a wire.Admission) {
	x.seen.Lock()
	defer x.seen.Unlock()
	for _, m := range x.ids[in.Instance] {
		if m.key != in.ID {
			continue
		}
		if m.submission != "" && m.submission != a.SubmissionID {
			x.complain("%s: %s was accepted as %s and as %s", in.Instance, in.ID, m.submission, a.SubmissionID)
		}
		if m.submission == "" {
			m.submission, m.offset = a.SubmissionID, a.Offset
		}
	}
}

func (x *inquiry) abort(ctx context.Context, in linear.Request) (out linear.Answer, known bool) {
	_, data, ok := x.request(ctx, http.MethodPost, "/agents/"+in.Instance+"/abort", nil)
	var told struct {
		Aborted bool `json:"aborted"`
	}
	if !ok || json.Unmarshal(data, &told) != nil {
		return out, false
	}
	return linear.Answer{OK: told.Aborted}, true
}

func (x *inquiry) read(ctx context.Context, in linear.Request, submission string) (out linear.Answer, known bool) {
	status, data, ok := x.request(ctx, http.MethodGet, "/agents/"+in.Instance, nil)
	if !ok {
		return out, false
	}
	var snap wire.Snapshot
	if err := json.Unmarshal(data, &snap); err != nil || status != http.StatusOK {
		x.complain("%s: %d %s: %v", in.Instance, status, data, err)
		return out, false
	}
	out.Outcome = outcomeIn(snap.Settlements, submission)
	return out, true
}

func outcomeIn(settlements []wire.Settlement, submission string) string {
	i := slices.IndexFunc(settlements, func(s wire.Settlement) bool { return s.SubmissionID == submission })
	if i < 0 {
		return ""
	}
	return settlements[i].Outcome
}

// await follows the conversation until the message is settled, but not for long.
func (x *inquiry) await(ctx context.Context, in linear.Request, of asked) (out linear.Answer, known bool) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	l := x.client.lives.current(ctx)
	if l == nil {
		return out, false
	}
	url := l.url + "/agents/" + in.Instance + "?view=updates&live=sse&offset=" + of.offset.String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err) // the URL is good
	}
	resp, err := x.client.http.Do(req)
	if err != nil {
		return out, false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		if data, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode < 500 {
			x.complain("%s: following after %s: %d %s", in.Instance, of.offset, resp.StatusCode, data)
		}
		return out, false
	}
	for events := sse.NewReader(resp.Body, 0); ; {
		e, err := events.Next()
		if err != nil {
			return out, false
		}
		var chunks []wire.Chunk
		if e.Name != "data" || json.Unmarshal(bytes.TrimSpace(e.Data), &chunks) != nil {
			continue
		}
		var seen wire.Conversation
		for i := range chunks {
			if c := &chunks[i]; c.Type == wire.ChunkReset || c.Type == wire.ChunkSettled {
				_ = seen.Apply(c)
			}
		}
		if out.Outcome = outcomeIn(seen.Settlements, of.submission); out.Outcome != "" {
			return out, true
		}
	}
}

// verdict waits until all is done that can be, reads everything once more, and
// judges what was seen.
func (x *inquiry) verdict(ctx context.Context) {
	x.rest(ctx)
	lost := x.resolve(ctx)
	for instance, ids := range x.ids {
		for _, m := range ids {
			if m.submission != "" && !x.any() {
				x.do(ctx, linear.Request{Instance: instance, Kind: linear.Read, ID: m.key, Held: instance[0] == 'h', Final: true}, *m)
			}
		}
	}
	owned := x.retire()
	holds := owned.operations()
	x.t.Logf("%d operations, %d more have had no effect, of %d nobody was told the outcome, %d steps, %d uses of ownership, %d instances, %s",
		x.count(), lost, len(x.unsure), len(x.world.steps.history()), len(holds), len(x.ids), time.Since(x.fleet.began).Round(time.Millisecond))
	x.report()
	for _, h := range []struct {
		model   linear.Model
		history []porcupine.Operation
	}{
		{linear.Intake(), x.history},
		{linear.Settlement(), x.history},
		{linear.Step(), x.world.steps.history()},
		{linear.Ownership(), holds},
	} {
		began := time.Now()
		if err := h.model.Check(h.history, judgeTime); err != nil {
			x.complain("%v", err)
		}
		x.t.Logf("%s: judged after %v", h.model.Name, short(time.Since(began)))
	}
}

// rest waits until no instance has anything left to do: a held one keeps what no
// abort covers.
func (x *inquiry) rest(ctx context.Context) {
	open := make(map[string]bool)
	for instance := range x.ids {
		open[instance] = true
	}
	for ctx.Err() == nil && len(open) > 0 {
		for instance := range open {
			want, _, err := x.admitted(ctx, instance)
			in, err2 := x.db.Instance(ctx, x.address(instance))
			if errors.Is(err, store.ErrNotFound) || err == nil && err2 == nil && in.Unsettled == want {
				delete(open, instance)
			}
		}
		if len(open) > 0 && time.Since(x.healed) > settleLimit {
			var of []store.Address
			for instance := range open {
				of = append(of, x.address(instance))
			}
			x.complain("%d instances do not come to rest: %s", len(open), x.describe(ctx, of))
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func (x *inquiry) address(instance string) store.Address {
	agent, id, _ := strings.Cut(instance, "/")
	return store.Address{Agent: agent, ID: id}
}

// A place is where a message was admitted.
type place struct {
	offset  int64
	uid     string
	created bool
	sub     string
}

// admitted reads from the journal which messages were, by what they say, and how
// many of them no abort covers.
func (x *inquiry) admitted(ctx context.Context, instance string) (open int, all map[string]place, err error) {
	all = make(map[string]place)
	held := instance[0] == 'h'
	a := &audit{db: x.db}
	page, err := a.whole(ctx, x.address(instance))
	if err != nil {
		return 0, nil, err
	}
	for _, b := range page.Batches {
		batch, err := journal.Decode(b.Payload)
		if err != nil {
			return 0, nil, err
		}
		for _, r := range batch.Records {
			switch r := r.(type) {
			case *journal.Admitted:
				all[r.Message.Body] = place{b.Offset, page.UID, len(all) == 0, r.Submission}
				if held {
					open++
				}
			case *journal.Abort:
				open = 0
			}
		}
	}
	return open, all, nil
}

// resolve finds out from the journals where messages were admitted, and which of
// the operations without a known outcome have happened, and adds those to the
// history. It returns how many have not.
func (x *inquiry) resolve(ctx context.Context) (lost int) {
	all := make(map[string]map[string]place)
	for instance := range x.ids {
		_, places, err := x.admitted(ctx, instance)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			x.complain("reading the journal of %s: %v", instance, err)
		}
		all[instance] = places
	}
	placed := func(op *porcupine.Operation) bool {
		in, out := op.Input.(linear.Request), op.Output.(linear.Answer)
		if in.Kind != linear.Admit || out.Refused != "" {
			return true
		}
		p, ok := all[in.Instance][in.ID+in.Identity]
		if out.Place, out.Created = p.offset, p.created; out.Unknown {
			out.UID = p.uid
		}
		op.Output = out
		return ok
	}
	for i := range x.history {
		if !placed(&x.history[i]) {
			x.complain("%+v was answered with %+v, and no journal has it", x.history[i].Input, x.history[i].Output)
		}
	}
	for _, op := range x.unsure {
		op.Output = linear.Answer{Unknown: true}
		if !placed(&op) {
			lost++
			continue
		}
		x.history = append(x.history, op)
	}
	return lost
}
