package flue_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// overHTTP serves the stage's agent until the test ends or the process dies.
func (s *stage) overHTTP() *httptest.Server {
	s.t.Helper()
	server := httptest.NewServer(s.rt.Handler(s.agent.Name))
	s.t.Cleanup(server.Close)
	return server
}

// post sends a message over HTTP and returns its submission.
func (s *stage) post(server *httptest.Server, body string) string {
	s.t.Helper()
	res, err := http.Post(server.URL+"/one", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusAccepted {
		s.t.Fatalf("%s: %v, %s", res.Status, err, data)
	}
	var receipt struct {
		SubmissionID string `json:"submissionId"`
	}
	if err := json.Unmarshal(data, &receipt); err != nil {
		s.t.Fatal(err)
	}
	return receipt.SubmissionID
}

type account struct {
	Customer string `json:"customer"`
	Plan     int    `json:"plan"`
}

// The creation data is that of the message that created the instance, for ever.
func TestInitialDataIsRecordedOnce(t *testing.T) {
	first, other := account{"c-1", 2}, account{"c-2", 9}
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		s.note("%s: %+v", flue.UseDelivery(r).Body, flue.UseInitialData[account](r))
		flue.UseTool(r, acting("work", nil))
	}), callsFirst("work"))
	receipt, err := s.in.Dispatch(t.Context(), flue.User("one"), flue.SendOptions{InitialData: first})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(receipt.Submission); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(s.send(flue.User("two"), flue.SendOptions{InitialData: other})); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(s.send(flue.User("three"), flue.SendOptions{UID: receipt.UID})); err != nil {
		t.Fatal(err)
	}
	// A message that must or must not create the instance cannot change it either.
	if _, err := s.in.Dispatch(t.Context(), flue.User("x"), flue.SendOptions{UID: receipt.UID, InitialData: other}); !errors.Is(err, &flue.Error{Code: flue.CodeInvalidRequest}) {
		t.Errorf("with a uid: %v", err)
	}
	if _, err := s.in.Dispatch(t.Context(), flue.User("x"), flue.SendOptions{CreateOnly: true, InitialData: other}); !errors.Is(err, &flue.Error{Code: flue.CodeInstanceExists}) {
		t.Errorf("as a creation: %v", err)
	}
	if _, err := s.read(s.post(s.overHTTP(), `{"kind":"user","body":"four","initialData":{"customer":"c-2","plan":9}}`)); err != nil {
		t.Fatal(err)
	}
	s.restart()
	if _, err := s.read(s.send(flue.User("five"), flue.SendOptions{InitialData: other})); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, body := range []string{"one", "two", "three", "four", "five"} {
		for range 2 { // before the call and after it
			want = append(want, body+": {Customer:c-1 Plan:2}")
		}
	}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("what renders read (-want +got):\n%s", diff)
	}
	births := 0
	for _, r := range s.records() {
		if b, ok := r.(*journal.Born); ok {
			if births++; string(b.InitialData) != `{"customer":"c-1","plan":2}` {
				t.Errorf("the journal has the data %s", b.InitialData)
			}
		}
	}
	if births != 1 {
		t.Errorf("the instance was born %d times", births)
	}
}

// Without creation data there is the zero value. Data that does not fit the type
// that reads it fails the submission with a HookError.
func TestInitialDataThatDoesNotFit(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		type reads struct {
			Struct  account
			Pointer *account
			Number  int
			Any     any
			List    []string
		}
		var got reads
		s := newStage(t, plain(func(r *flue.Render) {
			got = reads{
				flue.UseInitialData[account](r), flue.UseInitialData[*account](r), flue.UseInitialData[int](r),
				flue.UseInitialData[any](r), flue.UseInitialData[[]string](r),
			}
		}), sayOK)
		s.say("go")
		if diff := cmp.Diff(reads{}, got); diff != "" {
			t.Errorf("without data (-zero +got):\n%s", diff)
		}
	})
	t.Run("of another type", func(t *testing.T) {
		s := newStage(t, plain(func(r *flue.Render) {
			if flue.UseDelivery(r).Body == "read" {
				flue.UseInitialData[account](r)
			}
		}), sayOK)
		if _, err := s.read(s.send(flue.User("create"), flue.SendOptions{InitialData: map[string]any{"customer": 7}})); err != nil {
			t.Fatal(err)
		}
		err := s.failure(flue.User("read"))
		var misuse *flue.HookError
		if !errors.As(err, &misuse) || misuse.Hook != "UseInitialData" || misuse.Agent != "actor" ||
			!strings.Contains(misuse.Reason, "account") || !strings.Contains(misuse.Reason, "customer") || !strings.Contains(misuse.Fix, "Agent.InitialData") {
			t.Errorf("the error is %v", err)
		}
		if got := s.say("go on"); got != "ok" {
			t.Errorf("the next message is answered with %q", got)
		}
	})
}

// No client is given the creation data, whichever way it reads.
func TestInitialDataIsPrivate(t *testing.T) {
	const mark = "marked-7f3a"
	s := newStage(t, plain(func(r *flue.Render) {
		if got := flue.UseInitialData[account](r).Customer; got != mark {
			t.Errorf("the agent reads %q", got)
		}
		flue.UseTool(r, acting("work", nil))
	}), callsFirst("work"))
	if _, err := s.read(s.send(flue.User("go"), flue.SendOptions{InitialData: account{mark, 1}})); err != nil {
		t.Fatal(err)
	}
	stored := false
	for _, r := range s.records() {
		stored = stored || strings.Contains(string(asJSON(r)), mark)
	}
	if !stored {
		t.Error("the journal does not have it")
	}
	reply, err := s.read(s.send(flue.User("again")))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{"Conversation": string(asJSON(s.snapshot())), "Read": string(asJSON(reply))}
	server := s.overHTTP()
	for name, query := range map[string]string{
		"history": "", "updates": "?view=updates&offset=-1", "long-poll": "?view=updates&offset=-1&live=long-poll", "sse": "?view=updates&offset=-1&live=sse",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/one"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body strings.Builder
		for lines := bufio.NewScanner(io.TeeReader(res.Body, &body)); lines.Scan(); {
			if name == "sse" && strings.Contains(lines.Text(), `"upToDate":true`) {
				break // such a stream does not end
			}
		}
		cancel()
		res.Body.Close()
		if res.StatusCode != http.StatusOK || !strings.Contains(body.String(), "again") {
			t.Fatalf("%s: %s %s", name, res.Status, body.String())
		}
		seen[name] = body.String() + fmt.Sprint(res.Header)
	}
	for name, text := range seen {
		if strings.Contains(text, mark) || strings.Contains(text, "initialData") {
			t.Errorf("%s shows it: %s", name, text)
		}
	}
}

// The delivery is what the model reads last of what was sent: it moves with
// messages that join and signals that callbacks append, in their order, and with
// nothing else. It is one throughout a render.
func TestDeliveryCursor(t *testing.T) {
	var mu sync.Mutex
	var latest string
	var s *stage
	s = newStage(t, plain(func(r *flue.Render) {
		began := flue.UseDelivery(r)
		turn := flue.UsePersistentState(r, "turn", 0)
		checked := flue.UsePersistentState(r, "checked", false)
		flue.UseAgentStart(r, func(ctx context.Context, a *flue.AgentStart) error {
			if began.Body == "wake" {
				return a.Append(flue.Signal("briefing", "brief", nil))
			}
			return nil
		})
		flue.UseAgentFinish(r, func(ctx context.Context, a *flue.AgentFinish) error {
			if checked.Value() {
				return nil
			}
			return errors.Join(checked.Set(ctx, true), a.Append(flue.Signal("check", "check", nil)))
		})
		flue.UseTool(r, acting("work", func(ctx context.Context) error {
			if turn.Value() == 0 { // two messages come while it runs
				s.send(flue.User("second"))
				s.send(flue.Signal("third", "third", map[string]string{"n": "3"}))
			}
			return turn.Set(ctx, turn.Value()+1)
		}))
		if turn.Value() > 1 { // the model is told of both
			flue.UseTool(r, acting("late", nil))
			flue.UseInstruction(r, "Be late.")
		}
		func(r *flue.Render) { // in a custom hook, at the end
			if again := flue.UseDelivery(r); !cmp.Equal(began, again) {
				t.Errorf("within one render the delivery is %+v and then %+v", began, again)
			}
		}(r)
		s.note("%s", began.Body)
		mu.Lock()
		defer mu.Unlock()
		latest = began.Body
	}), func(req *model.Request) script.Turn {
		mu.Lock()
		defer mu.Unlock()
		text, _ := heard(req)
		if !strings.Contains(text, latest) {
			t.Errorf("the model reads %q last, and its render had %q", text, latest)
		}
		batches := 0
		for _, m := range req.Messages {
			if m.Role == model.RoleTool {
				batches++
			}
		}
		if batches < 3 {
			return script.Call("work", struct{}{})
		}
		return script.Say("ok")
	})
	s.say("wake")
	want := []string{"wake", "brief", "second", "third", "third", "third", "third", "check"}
	if diff := cmp.Diff(want, s.noted()); diff != "" {
		t.Errorf("the deliveries of the renders (-want +got):\n%s", diff)
	}
	requests := s.asked()
	var read []string
	for _, m := range requests[len(requests)-1].Messages {
		if m.Role == model.RoleUser {
			body := m.Blocks[0].Text
			if lines := strings.Split(body, "\n"); len(lines) == 3 {
				body = lines[1]
			} else if isNarration(m) {
				body = "resources"
			}
			read = append(read, body)
		}
	}
	if diff := cmp.Diff([]string{"wake", "brief", "second", "third", "resources", "System instructions updated.", "check"}, read); diff != "" {
		t.Errorf("what the model reads (-want +got):\n%s", diff)
	}
}

// A message is the same to the agent however it came: over HTTP, from code of the
// program, from the agent itself, or appended by a callback.
func TestDeliveryOfEveryOrigin(t *testing.T) {
	want := flue.Message{
		Kind: flue.KindSignal, Type: "ci.failed", Body: "line one\nline <two> & \"three\"", TagName: "build",
		Attributes: map[string]string{"job": "7", "empty": ""},
	}
	inJSON := `{"kind":"signal","type":"ci.failed","body":"line one\nline <two> & \"three\"","tagName":"build","attributes":{"job":"7","empty":""}}`
	var mu sync.Mutex
	var seen []flue.Message
	var texts []string
	s := newStage(t, plain(func(r *flue.Render) {
		d := flue.UseDelivery(r)
		dispatch := flue.UseDispatchMessage(r)
		if d.Kind == flue.KindSignal {
			mu.Lock()
			seen = append(seen, d)
			mu.Unlock()
		}
		flue.UseAgentStart(r, func(_ context.Context, a *flue.AgentStart) error {
			if d.Body == "append" {
				return a.Append(want)
			}
			return nil
		})
		flue.UseTool(r, acting("dispatch", func(ctx context.Context) error {
			_, err := dispatch(ctx, want)
			return err
		}))
	}), func(req *model.Request) script.Turn {
		text, rounds := heard(req)
		if text == "dispatch" && rounds == 0 {
			return script.Call("dispatch", struct{}{})
		}
		mu.Lock()
		defer mu.Unlock()
		texts = append(texts, text)
		return script.Say("ok")
	})
	await := func(submission string) {
		t.Helper()
		if _, err := s.read(submission); err != nil {
			t.Fatal(err)
		}
	}
	origins := []struct {
		name string
		send func()
	}{
		{"HTTP", func() { await(s.post(s.overHTTP(), inJSON)) }},
		{"Dispatch", func() { await(s.send(want)) }},
		{"UseDispatchMessage", func() { s.say("dispatch") }},
		{"append", func() { s.say("append") }},
	}
	var words string
	for _, origin := range origins {
		mu.Lock()
		seen, texts = nil, nil
		mu.Unlock()
		origin.send()
		if len(seen) == 0 {
			t.Fatalf("%s: no render has had it", origin.name)
		}
		for _, got := range seen {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", origin.name, diff)
			}
		}
		got := texts[len(texts)-1]
		if words == "" {
			words = got
		}
		if got != words || !strings.HasPrefix(got, `<build type="ci.failed"`) {
			t.Errorf("%s: the model reads %q, and first it was %q", origin.name, got, words)
		}
	}
}

// The customer of the guide: who the customer is, is said by the code that sent
// the signal. What the model writes does not matter.
func TestDeliveryBindsTheCustomer(t *testing.T) {
	orders := map[string]map[string]string{"cust_1": {"A1": "shipped"}, "cust_2": {"B2": "packed"}}
	type lookup struct {
		Customer string `json:"customerId"`
		Order    string `json:"orderId"`
	}
	var writes atomic.Pointer[lookup]
	s := newStage(t, plain(func(r *flue.Render) {
		customer := flue.UseDelivery(r).Attributes["customerId"]
		flue.UseTool(r, flue.NewTool(flue.Tool{Name: "lookup_order", Description: "Look up one of the customer's orders."},
			func(_ context.Context, in lookup) (string, error) {
				s := orders[customer][in.Order]
				if s == "" {
					return "no such order", nil
				}
				return s, nil
			}))
	}), func(req *model.Request) script.Turn {
		if _, rounds := heard(req); rounds == 0 {
			return script.Call("lookup_order", *writes.Load())
		}
		return script.Say(script.LastResults(req)[0].Text)
	})
	ask := func(m flue.Message, in lookup) string {
		t.Helper()
		writes.Store(&in)
		reply, err := s.read(s.send(m))
		if err != nil {
			t.Fatal(err)
		}
		return reply.Text
	}
	from := func(customer string) flue.Message {
		return flue.Signal("chat", "Where is my order?", map[string]string{"customerId": customer})
	}
	for _, tt := range []struct {
		name string
		from flue.Message
		in   lookup
		want string
	}{
		{"the customer's own", from("cust_1"), lookup{"cust_1", "A1"}, "shipped"},
		{"the model writes another customer", from("cust_1"), lookup{"cust_2", "A1"}, "shipped"},
		{"another customer's order", from("cust_1"), lookup{"cust_2", "B2"}, "no such order"},
		{"the next message is another customer's", from("cust_2"), lookup{"cust_1", "B2"}, "packed"},
		{"and has no claim on the first one's", from("cust_2"), lookup{"cust_1", "A1"}, "no such order"},
		{"a user message", flue.User("I am cust_1. Where is A1?"), lookup{"cust_1", "A1"}, "no such order"},
		{"a signal without the attribute", flue.Signal("chat", "customerId=cust_1", nil), lookup{"cust_1", "A1"}, "no such order"},
		{"a signal with another attribute", flue.Signal("chat", "", map[string]string{"customer": "cust_1"}), lookup{"cust_1", "A1"}, "no such order"},
	} {
		if got := ask(tt.from, tt.in); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if !slices.ContainsFunc(s.asked(), func(req *model.Request) bool { return len(signalsIn(req, "chat")) > 0 }) {
		t.Error("the model was shown no signal")
	}
}
