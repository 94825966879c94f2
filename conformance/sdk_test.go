package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/conformance/tap"
	"github.com/flue-go/flue/conformance/transcript"
)

// sdkScenarios are the recordings that were made with the client.
var sdkScenarios = []string{
	"01-sdk-send-wait-history", "02-sdk-read-admission", "03-sdk-wait-slow-reply", "04-sdk-observe-longpoll", "05-sdk-observe-sse",
	"06-sdk-observe-existing-sse", "07-sdk-observe-reconnect-sse", "08-sdk-wait-reconnect-longpoll", "09-sdk-abort", "10-sdk-abort-queued",
	"11-sdk-attachments", "12-sdk-uid-conditions", "13-sdk-initial-data", "14-sdk-idempotency", "15-sdk-signals", "16-sdk-tool",
	"17-sdk-tool-sse-live", "18-sdk-durable-tool", "20-sdk-reasoning", "22-sdk-busy-join", "23-sdk-provider-error", "24-sdk-provider-down", "25-sdk-provider-cut",
	"26-sdk-render-throws", "28-sdk-headers-token",
}

func recording(t *testing.T, name string) *transcript.Transcript {
	t.Helper()
	r, err := transcript.ReadFile(filepath.Join("testdata", "wire", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The client must see of this server what it saw of the recorded one.
func TestClient(t *testing.T) {
	needNode(t)
	for _, name := range sdkScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareScenario(t, name, start(t))
		})
	}
}

// compareScenario runs a scenario and compares it with its recording.
func compareScenario(t *testing.T, name string, p *tap.Tap) {
	t.Helper()
	notes := runScenario(t, p, name)
	s := &scenario{t: t, name: name, recorded: recording(t, name), got: p.Exchanges()}
	s.notes(notes)
	s.answers()
	s.headers()
	s.histories()
	s.updates()
}

// A scenario is compared from several sides.
type scenario struct {
	t        *testing.T
	name     string
	recorded *transcript.Transcript
	got      []*transcript.Exchange
}

// comparers returns one for what was recorded and one for what this server does.
func (s *scenario) comparers() (recorded, got *comparer) {
	words := strings.Contains(s.name, "abort")
	return &comparer{words: words}, &comparer{words: words}
}

// compare compares one thing, unless it is known to differ: then it must be
// what the difference makes of what was recorded.
func (s *scenario) compare(where string, recorded, got any) {
	s.t.Helper()
	for _, d := range differencesAt(s.name, where) {
		changed := d.change(recorded)
		if cmp.Equal(changed, recorded) {
			s.t.Errorf("%s: the difference %s changes nothing", where, d.id)
		}
		recorded = changed
	}
	if diff := cmp.Diff(recorded, got); diff != "" {
		s.t.Errorf("%s (-recorded +got):\n%s", where, diff)
	}
}

// notes compares what the calls of the client gave.
func (s *scenario) notes(got []note) {
	s.t.Helper()
	var want []note
	for _, n := range s.recorded.Notes {
		if label, value, ok := strings.Cut(n.Text, " -> "); ok {
			want = append(want, note{Label: label, Value: result(value)})
		}
	}
	if len(want) != len(got) {
		s.t.Errorf("the client noted %d results, recorded were %d", len(got), len(want))
		return
	}
	slices.SortStableFunc(want, byLabelIfParallel)
	slices.SortStableFunc(got, byLabelIfParallel)
	for i := range want {
		where := fmt.Sprintf("note %d: %s", i+1, want[i].Label)
		w, g := s.comparers()
		if want[i].Label != got[i].Label {
			s.t.Errorf("%s: the label is %s", where, got[i].Label)
			continue
		}
		s.compare(where, w.value(plain(want[i].Value)), g.value(plain(got[i].Value)))
	}
}

// byLabelIfParallel orders the replies that were waited for side by side.
func byLabelIfParallel(a, b note) int {
	if strings.HasPrefix(a.Label, "SDK read(") && strings.HasPrefix(b.Label, "SDK read(") {
		return strings.Compare(a.Label, b.Label)
	}
	return 0
}

// plain makes a note's value what JSON makes of it, without what is compared
// elsewhere or depends on how many deltas there were.
func plain(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var out any
	_ = json.Unmarshal(b, &out)
	switch o := out.(type) {
	case map[string]any:
		if thrown, ok := o["thrown"].(map[string]any); ok {
			delete(thrown, "body")
		}
	case []any:
		return slices.CompactFunc(o, func(a, b any) bool { return a == b })
	}
	return out
}

// answers compares, one by one, the answers that do not depend on how far the
// engine has come: everything but successful reads of a conversation.
func (s *scenario) answers() {
	s.t.Helper()
	want, got := slices.DeleteFunc(slices.Clone(s.recorded.Exchanges), isRead), slices.DeleteFunc(slices.Clone(s.got), isRead)
	if len(want) != len(got) {
		s.t.Errorf("%d answers, recorded were %d", len(got), len(want))
		return
	}
	w, g := s.comparers()
	for i := range want {
		where := fmt.Sprintf("answer %d: %s %s", i+1, want[i].Method, want[i].Target)
		if strings.Contains(want[i].Target, "/attachments/att_") {
			where = fmt.Sprintf("answer %d: %s attachment", i+1, want[i].Method)
		}
		s.compare(where, answer(w, want[i]), answer(g, got[i]))
	}
}

func isRead(x *transcript.Exchange) bool {
	u, err := url.ParseRequestURI(x.Target)
	if err != nil || x.Response == nil {
		return true // a read whose client left
	}
	return x.Method == "GET" && x.Response.Status == 200 && strings.Count(strings.Trim(u.Path, "/"), "/") == 2
}

func answer(c *comparer, x *transcript.Exchange) any {
	body := c.body(x.Response.Body)
	if strings.HasPrefix(x.Response.Header.Get("Content-Type"), "image/") {
		body = "<image>"
	}
	return map[string]any{"status": x.Response.Status, "headers": c.headers(x.Response.Header), "body": body}
}

// headers compares the headers of reads by what was asked and how it went.
func (s *scenario) headers() {
	s.t.Helper()
	first := func(xs []*transcript.Exchange) map[string]*transcript.Exchange {
		m := map[string]*transcript.Exchange{}
		for _, x := range xs {
			if k := kindOf(x); k != "" && m[k] == nil && isRead(x) {
				m[k] = x
			}
		}
		return m
	}
	want, got := first(s.recorded.Exchanges), first(s.got)
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] == nil {
			continue // how often a client has to ask depends on the engine's speed
		}
		w, g := s.comparers()
		a, b := w.headers(want[k].Response.Header), g.headers(got[k].Response.Header)
		if strings.Contains(k, " updates ") { // it may be absent whenever something is being written
			delete(a, "Stream-Up-To-Date")
			delete(b, "Stream-Up-To-Date")
		}
		s.compare("headers of "+k, a, b)
	}
}

// histories compares the last snapshot that was read of each conversation.
func (s *scenario) histories() {
	s.t.Helper()
	last := func(xs []*transcript.Exchange) map[string][]byte {
		m := map[string][]byte{}
		for _, x := range xs {
			if u, err := url.ParseRequestURI(x.Target); err == nil && isRead(x) && x.Response != nil && u.Query().Get("view") == "history" {
				m[u.Path] = x.Response.Body
			}
		}
		return m
	}
	want, got := last(s.recorded.Exchanges), last(s.got)
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if s.isLive() {
			continue // it was read while the reply was being written
		}
		w, g := s.comparers()
		s.compare("history of "+path, w.body(want[path]), g.body(got[path]))
	}
}

// isLive reports whether the scenario reads snapshots at moments that depend
// on the engine's speed.
func (s *scenario) isLive() bool {
	return strings.Contains(s.name, "observe") || strings.Contains(s.name, "live")
}

// updates compares the changes that were read of each conversation. Where a
// snapshot came first, the changes that are missing are those at the front.
func (s *scenario) updates() {
	s.t.Helper()
	want, got := updates(s.recorded.Exchanges), updates(s.got)
	for _, path := range slices.Sorted(maps.Keys(want)) {
		w, g := joined(want[path]), joined(got[path])
		w, g = withoutReset(w), withoutReset(g)
		if s.name == "24-sdk-provider-down" { // how often it was tried depends on the pauses in between
			w, g = withoutEmptyTurns(w), withoutEmptyTurns(g)
		}
		if n := min(len(w), len(g)); s.isLive() && len(w) != len(g) {
			w, g = w[len(w)-n:], g[len(g)-n:]
			if n > 0 && w[0]["type"] == "message-delta" && g[0]["type"] == "message-delta" {
				w, g = w[1:], g[1:] // one of them may have begun in a snapshot
			}
		}
		cw, cg := s.comparers()
		s.compare("updates of "+path, masked(cw, w), masked(cg, g))
	}
}

// withoutReset drops the change that only a read from the start begins with.
func withoutReset(cs []chunk) []chunk {
	if len(cs) > 0 && cs[0]["type"] == "conversation-reset" {
		return cs[1:]
	}
	return cs
}

// withoutEmptyTurns drops the turns in which the model said nothing.
func withoutEmptyTurns(cs []chunk) []chunk {
	var out []chunk
	for _, c := range cs {
		if last := len(out) - 1; last >= 0 && c["type"] == "message-completed" && out[last]["type"] == "message-started" {
			out = out[:last]
			continue
		}
		out = append(out, c)
	}
	return out
}

func masked(c *comparer, cs []chunk) []any {
	out := make([]any, len(cs))
	for i := range cs {
		out[i] = c.value(cs[i])
	}
	return out
}
