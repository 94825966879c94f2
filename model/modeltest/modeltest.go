// Package modeltest tests an implementation of [model.Provider] that speaks
// HTTP: it plays recorded exchanges from a local server, whole and broken in
// every way in which a network and a service can break them, and checks that
// the provider keeps the contract.
//
//	func TestConformance(t *testing.T) {
//		modeltest.Run(t, modeltest.Suite{
//			New: func(s modeltest.Settings) model.Provider {
//				return acme.New(acme.Config{BaseURL: s.BaseURL, APIKey: s.APIKey, Client: s.Client, IdleTimeout: s.IdleTimeout})
//			},
//			Exchanges: []modeltest.Exchange{{Name: "hello", Stream: recorded, Complete: `"type":"done"`, ...}},
//		})
//	}
package modeltest

import (
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/model"
)

// A Suite describes the provider under test.
type Suite struct {
	// New returns a provider that uses the settings. It is called often.
	New func(Settings) model.Provider

	// Exchanges are recorded answers; at least one.
	Exchanges []Exchange

	// Failures are refusals beside those that every provider is tested with.
	Failures []Failure

	// Pings is what the service sends as a sign of life while it has nothing to
	// say, if it does. A provider must not wait for ever because of them.
	Pings []byte

	// Rules returns what the service would refuse of a request, given its body;
	// package rules has them for the APIs of several services. Requests with
	// random histories are held to them, if they are set.
	Rules func(body []byte) []string

	// Origins are what New's provider takes for its own in those histories: its
	// name with each model that it treats in another way.
	Origins []model.Origin
}

// Settings are what a provider under test must take over.
type Settings struct {
	BaseURL        string        // http://127.0.0.1:port, without a path
	APIKey         string        // must not appear in any error
	Client         *http.Client  // sends the requests
	IdleTimeout    time.Duration // bounds the silence within an answer; zero means the default
	FirstTimeout   time.Duration // bounds the wait for an answer's first byte; zero means the default
	ContentTimeout time.Duration // bounds the waits between pieces of content, whatever else comes; zero means the default
}

// An Exchange is a request and the recorded answer to it.
type Exchange struct {
	Name    string
	Request *model.Request // default: a user message that says hello
	Stream  []byte         // the body of the answer: server-sent events with LF line ends

	// Complete is text in the data of the event that completes the answer:
	// before its end a cut is a failure, after it no longer.
	Complete string

	// Blocks and Done are what the answer must amount to. A CallID of "*" in
	// Blocks stands for any id that is not empty and not used twice.
	Blocks []model.Block
	Done   model.Done
}

// A Failure is a refusal and what must be made of it.
type Failure struct {
	Name   string
	Status int
	Header map[string]string
	Body   string

	// Class and RetryAfter are what the error must say, Message what must be
	// in its text.
	Class      model.Class
	RetryAfter time.Duration
	Message    string
}

// Key is the APIKey of the Settings.
const Key = "sk-modeltest-4f1c2d3e"

// idle is the IdleTimeout of the tests that wait for it.
const idle = 60 * time.Millisecond

// Run runs the suite. It counts goroutines, so it must not run in parallel
// with other tests.
func Run(t *testing.T, s Suite) {
	if len(s.Exchanges) == 0 {
		t.Fatal("modeltest: a suite needs an exchange")
	}
	noLeaks := countGoroutines(t)
	r := &runner{Suite: s, client: &http.Client{Transport: &http.Transport{}}}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	defer noLeaks()
	defer r.client.CloseIdleConnections()
	defer r.server.Close()

	for _, x := range s.Exchanges {
		if x.Request == nil {
			x.Request = Hello()
		}
		t.Run(x.Name, func(t *testing.T) { r.exchange(t, x) })
	}
	first := s.Exchanges[0]
	if first.Request == nil {
		first.Request = Hello()
	}
	t.Run("Failures", r.failures)
	t.Run("Connection", r.connection)
	t.Run("Request", func(t *testing.T) { r.request(t, first) })
	t.Run("LateTools", func(t *testing.T) { r.lateTools(t, first) })
	t.Run("Prefix", func(t *testing.T) { r.prefix(t, first) })
	t.Run("Histories", r.histories)
	t.Run("Concurrent", func(t *testing.T) { r.concurrent(t, first) })
}

// Hello returns a request with one user message.
func Hello() *model.Request {
	return &model.Request{Model: "test-model", Messages: []model.Message{
		{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Hello"}}},
	}}
}

// An Answer is what a stream amounts to.
type Answer struct {
	Events []model.Event
	Blocks []model.Block // from the BlockDone events
	Done   *model.Done   // nil when the stream failed
}

// Collect reads a stream to its end and returns what it yielded, and the error
// that ended it. It reports each violation of the contract to t.
func Collect(t testing.TB, stream iter.Seq2[model.Event, error]) (Answer, error) {
	t.Helper()
	var a Answer
	var failure error
	texts := map[int]*strings.Builder{}
	firsts := map[int]model.Delta{}
	for e, err := range stream {
		if failure != nil || a.Done != nil {
			t.Errorf("the stream goes on after its end: %#v, %v", e, err)
			return a, failure
		}
		if err != nil {
			if e != nil {
				t.Errorf("an error comes with event %#v", e)
			}
			failure = err
			continue
		}
		a.Events = append(a.Events, e)
		switch e := e.(type) {
		case model.Delta:
			a.delta(t, e, texts, firsts)
		case model.BlockDone:
			a.block(t, e, texts, firsts)
		case model.Done:
			a.Done = &e
			for i := range texts {
				if i >= len(a.Blocks) {
					t.Errorf("block %d has deltas and no end", i)
				}
			}
		default:
			t.Errorf("unknown event %#v", e)
		}
	}
	if failure == nil && a.Done == nil {
		t.Error("the stream ends with neither an error nor a Done")
	}
	return a, failure
}

// delta checks a delta, and keeps its text and the first delta of each block. A
// call may have its id and name only in later ones, but never others.
func (a *Answer) delta(t testing.TB, e model.Delta, texts map[int]*strings.Builder, firsts map[int]model.Delta) {
	t.Helper()
	first := firsts[e.Index]
	switch {
	case e.Kind != model.Text && e.Kind != model.Reasoning && e.Kind != model.ToolCall:
		t.Errorf("delta of a %s block", e.Kind)
	case e.Kind != model.ToolCall && (e.CallID != "" || e.Name != ""):
		t.Errorf("delta of a %s block names the call %q of %q", e.Kind, e.CallID, e.Name)
	case e.Index < len(a.Blocks):
		t.Errorf("delta of block %d after its end", e.Index)
	case e.Text == "":
		t.Errorf("empty delta of block %d", e.Index)
	case texts[e.Index] == nil:
		texts[e.Index], firsts[e.Index] = &strings.Builder{}, e
	case first.Kind != e.Kind:
		t.Errorf("block %d is a %s block and has a delta of %s", e.Index, first.Kind, e.Kind)
	case other(first.CallID, e.CallID) || other(first.Name, e.Name):
		t.Errorf("a delta of block %d is of the call %q of %q, another of %q of %q", e.Index, first.CallID, first.Name, e.CallID, e.Name)
	}
	if texts[e.Index] != nil {
		texts[e.Index].WriteString(e.Text)
	}
}

// other reports whether what was known before is another now.
func other(before, now string) bool { return before != "" && before != now }

func (a *Answer) block(t testing.TB, e model.BlockDone, texts map[int]*strings.Builder, firsts map[int]model.Delta) {
	t.Helper()
	if e.Index != len(a.Blocks) {
		t.Errorf("block %d ends, want block %d", e.Index, len(a.Blocks))
	}
	a.Blocks = append(a.Blocks, e.Block)
	deltas, streamed := "", false
	if b := texts[e.Index]; b != nil {
		deltas, streamed = b.String(), true
	}
	first := firsts[e.Index]
	if streamed && first.Kind != e.Block.Kind {
		t.Errorf("block %d is a %s block and had deltas of %s", e.Index, e.Block.Kind, first.Kind)
	}
	switch e.Block.Kind {
	case model.Text, model.Reasoning:
		if deltas != e.Block.Text {
			t.Errorf("deltas of block %d add up to %q, its text is %q", e.Index, deltas, e.Block.Text)
		}
	case model.ToolCall:
		if e.Block.CallID == "" {
			t.Errorf("call %d has no id", e.Index)
		}
		if streamed && deltas != e.Block.Arguments {
			t.Errorf("deltas of block %d add up to %q, its arguments are %q", e.Index, deltas, e.Block.Arguments)
		}
		if other(first.CallID, e.Block.CallID) || other(first.Name, e.Block.Name) {
			t.Errorf("call %d is %q of %q, its deltas were of %q of %q", e.Index, e.Block.CallID, e.Block.Name, first.CallID, first.Name)
		}
	default:
		t.Errorf("an answer cannot hold a %s block", e.Block.Kind)
	}
}
