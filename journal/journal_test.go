package journal_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
)

var update = flag.Bool("update", false, "write the golden journal")

// life is a journal with a record of every kind that the first release wrote.
func life() []journal.Batch {
	ms := int64(12)
	batches := [][]journal.Record{
		{&journal.Born{Agent: "a", ID: "c1", UID: "inst_1", Incarnation: "inc_1", InitialData: jsontext.Value(`{"issue":7}`)}},
		{&journal.Admitted{Submission: "sub_1", Origin: "direct", Traceparent: "00-1", Message: journal.Message{
			Kind: journal.User, Body: "look <&>", Attachments: []journal.Attachment{{ID: "att_1", MediaType: "image/png", Filename: "a.png", Size: 3}},
		}}},
		{
			&journal.Attempt{Submission: "sub_1", Ordinal: 1, Node: "n", Reason: "first", Deadline: 1_764_465_267_000, MaxAttempts: 10},
			&journal.Entry{ID: "e1", Submission: "sub_1", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "look <&>"}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_1"},
			&journal.TurnStarted{Turn: "t1", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{&journal.TurnDelta{Turn: "t1", Response: "r1", Block: 0, BlockKind: journal.Text, Text: "Let "}},
		{&journal.TurnDone{
			Turn: "t1", Response: "r1", Submission: "sub_1", Stop: journal.StopToolUse, Sent: []int{4, 0}, Provider: "p", Model: "m", Answered: "m-1",
			Usage: journal.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4, Reasoning: 1},
			Blocks: []journal.Block{
				{Kind: journal.Text, Text: "Let me see.", Opaque: jsontext.Value(`{"n":1.50,"b":1,"a":"\u00e9","b":2}`)},
				{Kind: journal.ToolCall, Call: "c1", Name: "look", Arguments: `{"x": 1}`},
			},
		}},
		{&journal.State{Name: "s", Value: jsontext.Value(`[1,2]`)}},
		{
			&journal.Outcome{Turn: "t1", Response: "r1", Call: "c1", Tool: "look", Content: "ok", Output: jsontext.Value(`"ok"`), EndTurn: true, DurationMS: &ms, Writes: []journal.VarWrite{{Seq: 1, Name: "n", Value: jsontext.Value(`true`)}}},
			&journal.ToolBatch{Turn: "t1"},
		},
		{&journal.Release{Submission: "sub_1", Node: "n"}},
		{&journal.Attempt{Submission: "sub_1", Ordinal: 1, Node: "n", Reason: "recovered"}, &journal.Seam{Name: journal.SeamClosed, Submission: "sub_1"}, &journal.Settled{Submission: "sub_1", Outcome: journal.Completed, AnsweredBy: "sub_1"}},
		{&journal.Admitted{Submission: "sub_2", Origin: "dispatch", Message: journal.Message{Kind: journal.Signal, Type: "ci", Body: "b", Attributes: map[string]string{"z": "1", "a": "2"}, TagName: "ci"}}},
		{&journal.Abort{}},
		{
			&journal.Entry{ID: "e2", Submission: "sub_2", Purpose: journal.Advisory, Ending: journal.Aborted, Message: journal.Message{Kind: journal.Signal, Type: journal.SignalAborted, Body: "Submission was aborted."}},
			&journal.Settled{Submission: "sub_2", Outcome: journal.Aborted, Error: jsontext.Value(`{"type":"submission_aborted"}`), AnsweredBy: "sub_2"},
		},
		{&journal.Unknown{Name: "from_the_future", Version: 2, Optional: true, Data: jsontext.Value(`{"x":[1]}`)}},
	}
	return timed(batches)
}

// hooksLife is a journal with a record of every kind, seam and purpose that came
// with hooks, and with every member that they have.
func hooksLife() []journal.Batch {
	return timed([][]journal.Record{
		{&journal.Born{Agent: "a", ID: "c2", UID: "inst_2", Incarnation: "inc_2"}},
		{&journal.Admitted{Submission: "sub_1", Message: journal.Message{Kind: journal.User, Body: "release 1.0"}}},
		{&journal.Admitted{Submission: "sub_2", Message: journal.Message{Kind: journal.User, Body: "and 1.1"}}},
		{&journal.Attempt{Submission: "sub_1", Ordinal: 1, Reason: "first", Deadline: 1_764_465_267_000, MaxAttempts: 10}},
		{&journal.Step{Scope: journal.StartScope("sub_1"), Name: "open the ticket", Value: jsontext.Value(`{"id":7}`)}},
		{
			&journal.Entry{ID: "e1", Submission: "sub_1", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "release 1.0"}},
			&journal.Entry{ID: "e2", Submission: "sub_1", Purpose: journal.Appended, Message: journal.Message{Kind: journal.Signal, Type: "ticket", Body: "Ticket 7 is open.", Attributes: map[string]string{"id": "7"}, TagName: "ticket"}},
			&journal.State{Name: "ticket", Value: jsontext.Value(`7`)},
			&journal.Data{Response: "r1", Submission: "sub_1", Opens: true, Name: "progress", Value: jsontext.Value(`{"percent":1.50}`)},
			&journal.Metadata{Response: "r1", Submission: "sub_1", Opens: true, Value: jsontext.Value(`{"by":{"name":"a"}}`)},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_1", Response: "r1", Settings: &journal.Settings{
				Model: "p/m", Fallbacks: []string{"q/n"}, Thinking: "high", Compaction: &journal.Compaction{Off: true, ReserveTokens: 1000, KeepRecentTokens: 2000, Model: "p/small"},
			}},
			&journal.Resources{Baseline: true, Instructions: "00aa", Declared: []journal.Resource{
				{Kind: journal.ResourceTool, Name: "approve", Description: "Approve.", Digest: "11bb"},
				{Kind: journal.ResourceSkill, Name: "notes", Description: "How to write notes."},
				{Kind: journal.ResourceSubagent, Name: "reviewer"},
			}},
			&journal.TurnStarted{Turn: "t1", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{&journal.TurnDone{Turn: "t1", Response: "r1", Submission: "sub_1", Stop: journal.StopToolUse, Provider: "p", Model: "m", Blocks: []journal.Block{
			{Kind: journal.ToolCall, Call: "c1", Name: "approve", Arguments: `{}`},
		}}},
		{&journal.Step{Scope: journal.CallScope("c1"), Name: "charge"}},
		{&journal.Step{Scope: journal.CallScope("c1"), Name: "charge", Value: jsontext.Value(`null`)}},
		{&journal.Data{Response: "r1", Submission: "sub_1", Name: "progress", Value: jsontext.Value(`{"percent":50}`)}},
		{
			&journal.Outcome{Turn: "t1", Response: "r1", Call: "c1", Tool: "approve", Content: "ok", Output: jsontext.Value(`"ok"`), Writes: []journal.VarWrite{{Seq: 1, Name: "approved", Value: jsontext.Value(`true`)}}},
			&journal.ToolBatch{Turn: "t1"},
			&journal.Entry{ID: "e3", Submission: "sub_2", Purpose: journal.Input, Turn: "t1", Message: journal.Message{Kind: journal.User, Body: "and 1.1"}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_2"},
			&journal.Entry{ID: "e4", Submission: "sub_1", Purpose: journal.Narration, Turn: "t1", Message: journal.Message{
				Kind: journal.Signal, Type: journal.SignalResources, Body: "New tool available:\n- **publish**\nAll available tools: approve, publish", Attributes: map[string]string{"resource": "tool"},
			}},
			&journal.Entry{ID: "e5", Submission: "sub_1", Purpose: journal.Narration, Turn: "t1", Message: journal.Message{Kind: journal.Signal, Type: journal.SignalInstructions, Body: "System instructions updated."}},
			&journal.Resources{Instructions: "22cc", Declared: []journal.Resource{
				{Kind: journal.ResourceTool, Name: "approve", Description: "Approve.", Digest: "11bb"},
				{Kind: journal.ResourceTool, Name: "publish", Digest: "33dd", After: "c1"},
			}},
			&journal.TurnStarted{Turn: "t2", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{&journal.TurnDone{Turn: "t2", Response: "r1", Submission: "sub_1", Stop: journal.StopEnd, Provider: "p", Model: "m", Blocks: []journal.Block{{Kind: journal.Text, Text: "Released."}}}},
		{
			&journal.Entry{ID: "e6", Submission: "sub_1", Purpose: journal.Appended, Turn: "t2", Message: journal.Message{Kind: journal.Signal, Type: "check", Body: "Where are the notes?"}},
			&journal.Seam{Name: journal.SeamCycle, Submission: "sub_1"},
			&journal.TurnStarted{Turn: "t3a", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{&journal.TurnDone{Turn: "t3a", Response: "r1", Submission: "sub_1", Stop: journal.StopError, Provider: "p", Model: "m", Error: &journal.TurnError{Class: "overload", Message: "529: Overloaded", Status: 529}}},
		{
			&journal.Fallback{Response: "r1", Submission: "sub_1", From: "p/m", To: "q/n", Class: "overload", Reason: "529: Overloaded"},
			&journal.TurnStarted{Turn: "t3", Response: "r1", Submission: "sub_1", Provider: "q", Model: "n"},
		},
		{&journal.TurnDone{Turn: "t3", Response: "r1", Submission: "sub_1", Stop: journal.StopEnd, Provider: "p", Model: "m", Blocks: []journal.Block{{Kind: journal.Text, Text: "Here."}}}},
		{&journal.Admitted{Submission: "sub_3", Message: journal.Message{Kind: journal.User, Body: "thanks"}}},
		{
			&journal.Seam{Name: journal.SeamFinish, Submission: "sub_1"},
			&journal.Entry{ID: "e7", Submission: "sub_3", Purpose: journal.Input, Turn: "t3", Message: journal.Message{Kind: journal.User, Body: "thanks"}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_3"},
			&journal.TurnStarted{Turn: "t4", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{
			&journal.TurnDone{Turn: "t4", Response: "r1", Submission: "sub_1", Stop: journal.StopEnd, Provider: "p", Model: "m", Blocks: []journal.Block{{Kind: journal.Text, Text: "You are welcome."}}},
			&journal.Metadata{Response: "r1", Submission: "sub_1", Value: jsontext.Value(`{"by":{"turns":4}}`)},
			&journal.Seam{Name: journal.SeamClosed, Submission: "sub_1"},
			&journal.Settled{Submission: "sub_2", Outcome: journal.Completed, AnsweredBy: "sub_1"},
			&journal.Settled{Submission: "sub_3", Outcome: journal.Completed, AnsweredBy: "sub_1"},
			&journal.Settled{Submission: "sub_1", Outcome: journal.Completed, AnsweredBy: "sub_1"},
		},
	})
}

// repairLife is a journal whose fourth batch has been spoiled, as it goes on.
func repairLife() []journal.Batch {
	return timed([][]journal.Record{
		{&journal.Born{Agent: "a", ID: "c3", UID: "inst_3", Incarnation: "inc_3"}},
		{&journal.Admitted{Submission: "sub_1", Message: journal.Message{Kind: journal.User, Body: "one"}}},
		{
			&journal.Attempt{Submission: "sub_1", Ordinal: 1, Reason: "first", Deadline: 1_764_465_267_000, MaxAttempts: 10},
			&journal.Entry{ID: "e1", Submission: "sub_1", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "one"}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_1", Response: "r1", Settings: &journal.Settings{Model: "p/m"}},
			&journal.TurnStarted{Turn: "t1", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{&journal.TurnDelta{Turn: "t1", Response: "r1", Block: 0, BlockKind: journal.Text, Text: "spoiled"}},
		{
			&journal.Repair{From: 3, To: 3, Reason: "the checksum is wrong", Open: []string{"sub_1"}, Messages: []string{"r1"}, Calls: []string{"c1"}},
			&journal.Entry{ID: "e2", Purpose: journal.Narration, Message: journal.Message{Kind: journal.Signal, Type: journal.SignalRepaired, Body: "The record was damaged."}},
			&journal.Entry{ID: "e3", Submission: "sub_1", Purpose: journal.Advisory, Ending: journal.Failed, Message: journal.Message{Kind: journal.Signal, Type: journal.SignalFailed, Body: "It failed."}},
			&journal.Settled{Submission: "sub_1", Outcome: journal.Failed, Error: jsontext.Value(`{"type":"conversation_damaged"}`), AnsweredBy: "sub_1"},
		},
	})
}

// compactionLife is a journal of a conversation that was compacted twice, the
// second time in vain.
func compactionLife() []journal.Batch {
	cost := int64(1_250_000)
	turn := func(id string, stop journal.Stop, blocks ...journal.Block) *journal.TurnDone {
		return &journal.TurnDone{Turn: id, Response: "r1", Submission: "sub_1", Stop: stop, Blocks: blocks, Usage: journal.Usage{Input: 900, Output: 9}, Provider: "p", Model: "m"}
	}
	call := func(id string) journal.Block {
		return journal.Block{Kind: journal.ToolCall, Call: id, Name: "look", Arguments: `{}`}
	}
	start := func(id string, fitted bool) *journal.TurnStarted {
		return &journal.TurnStarted{Turn: id, Response: "r1", Submission: "sub_1", Provider: "p", Model: "m", Fitted: fitted}
	}
	return timed([][]journal.Record{
		{&journal.Born{Agent: "a", ID: "c4", UID: "inst_4", Incarnation: "inc_4"}},
		{&journal.Admitted{Submission: "sub_1", Message: journal.Message{Kind: journal.User, Body: "never publish on Fridays", Pinned: true}}},
		{
			&journal.Attempt{Submission: "sub_1", Ordinal: 1, Reason: "first", Deadline: 1_764_465_267_000, MaxAttempts: 10},
			&journal.Entry{ID: "e1", Submission: "sub_1", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "never publish on Fridays", Pinned: true}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_1", Response: "r1", Settings: &journal.Settings{Model: "p/m"}},
			&journal.Resources{Baseline: true, Instructions: "00aa"},
			start("t1", false),
		},
		{turn("t1", journal.StopToolUse, call("c1"))},
		{&journal.Outcome{Turn: "t1", Response: "r1", Call: "c1", Tool: "look", Content: "much"}, &journal.ToolBatch{Turn: "t1"}, start("t2", false)},
		{turn("t2", journal.StopToolUse, call("c2"))},
		{&journal.Outcome{Turn: "t2", Response: "r1", Call: "c2", Tool: "look", Content: "more"}, &journal.ToolBatch{Turn: "t2"}},
		{
			&journal.Compacted{
				ID: "cmp_1", Submission: "sub_1", Reason: journal.CompactionThreshold, Summary: "It looked.", First: "t2", Keep: []string{"e1"},
				Resources: &journal.Resources{Baseline: true, Instructions: "11bb"}, Before: 1900, After: 700,
				Provider: "p", Model: "small", Usage: journal.Usage{Input: 1000, Output: 50}, Calls: 1, Cost: &cost,
			},
			start("t3", true),
		},
		{&journal.TurnDone{Turn: "t3", Response: "r1", Submission: "sub_1", Stop: journal.StopError, Error: &journal.TurnError{Class: journal.ClassOverflow, Message: "too long"}, Provider: "p", Model: "m"}},
		{
			&journal.Compacted{ID: "cmp_2", Submission: "sub_1", Reason: journal.CompactionOverflow, Summary: "Nothing is known of it.", Dropped: true, First: "t2", Calls: 2},
			start("t4", false),
		},
		{
			turn("t4", journal.StopEnd, journal.Block{Kind: journal.Text, Text: "Done."}),
			&journal.Seam{Name: journal.SeamClosed, Submission: "sub_1"},
			&journal.Settled{Submission: "sub_1", Outcome: journal.Completed, AnsweredBy: "sub_1"},
		},
		{&journal.Uncompacted{ID: "cmp_2", Submission: "sub_2"}},
	})
}

// summaryLife is a journal of a conversation of which no summary could be had, nor
// by the process that died over one, and then it could.
func summaryLife() []journal.Batch {
	cost := int64(2_000_000)
	start := func(id string) *journal.TurnStarted {
		return &journal.TurnStarted{Turn: id, Response: "r1", Submission: "sub_1", Provider: "p", Model: "m", Fitted: true}
	}
	call := func(id, call string) *journal.TurnDone {
		return &journal.TurnDone{Turn: id, Response: "r1", Submission: "sub_1", Stop: journal.StopToolUse, Provider: "p", Model: "m", Blocks: []journal.Block{
			{Kind: journal.ToolCall, Call: call, Name: "look", Arguments: `{}`},
		}}
	}
	outcome := func(id, call string) []journal.Record {
		return []journal.Record{&journal.Outcome{Turn: id, Response: "r1", Call: call, Tool: "look", Content: "much"}, &journal.ToolBatch{Turn: id}}
	}
	begun := &journal.Summarizing{
		Submission: "sub_1", Reason: journal.CompactionThreshold, Provider: "p", Model: "small",
		Guess: journal.Usage{Input: 1000, Output: 256}, AtMost: 1_256_000,
	}
	return timed([][]journal.Record{
		{&journal.Born{Agent: "a", ID: "c6", UID: "inst_6", Incarnation: "inc_6"}},
		{&journal.Admitted{Submission: "sub_1", Message: journal.Message{Kind: journal.User, Body: "look at all of it"}}},
		{
			&journal.Attempt{Submission: "sub_1", Ordinal: 1, Reason: "first", Deadline: 1_764_465_267_000, MaxAttempts: 10},
			&journal.Entry{ID: "e1", Submission: "sub_1", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "look at all of it"}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_1", Response: "r1", Settings: &journal.Settings{Model: "p/m", Compaction: &journal.Compaction{Model: "p/small"}}},
			start("t1"),
		},
		{call("t1", "c1")},
		append(outcome("t1", "c1"), begun),
		{
			&journal.Unsummarized{
				Submission: "sub_1", Reason: journal.CompactionThreshold, Error: &journal.TurnError{Class: "auth", Message: "401: no such key", Status: 401},
				Next: 1_764_461_727_000, Provider: "p", Model: "m", Usage: journal.Usage{Input: 900, Output: 3}, Guess: journal.Usage{Output: 7}, Calls: 3, Cost: &cost,
			},
			start("t2"),
		},
		{call("t2", "c2")},
		append(outcome("t2", "c2"), begun),
		{
			&journal.Unsummarized{Submission: "sub_1", Reason: journal.CompactionThreshold, Provider: "p", Model: "small", Guess: journal.Usage{Input: 1000, Output: 256}, Calls: 1, AtMost: 1_256_000},
			&journal.Attempt{Submission: "sub_1", Ordinal: 2, Reason: "recovered in phase model"},
			&journal.Summarizing{Submission: "sub_1", Reason: journal.CompactionThreshold, Provider: "p", Model: "free", Cost: new(int64)},
		},
		{
			&journal.Compacted{ID: "cmp_1", Submission: "sub_1", Reason: journal.CompactionThreshold, Summary: "It looked.", First: "t2", Provider: "p", Model: "free", Calls: 1, Cost: new(int64)},
			start("t3"),
		},
		{
			&journal.TurnDone{Turn: "t3", Response: "r1", Submission: "sub_1", Stop: journal.StopEnd, Provider: "p", Model: "m", Blocks: []journal.Block{{Kind: journal.Text, Text: "Done."}}},
			&journal.Seam{Name: journal.SeamClosed, Submission: "sub_1"},
			&journal.Settled{Submission: "sub_1", Outcome: journal.Completed, AnsweredBy: "sub_1"},
		},
	})
}

// calledLife is a journal of a turn whose calls run one after another.
func calledLife() []journal.Batch {
	ms := int64(3)
	outcome := func(call string) *journal.Outcome {
		return &journal.Outcome{Turn: "t1", Response: "r1", Call: call, Tool: "look", Content: "ok", DurationMS: &ms}
	}
	return timed([][]journal.Record{
		{&journal.Born{Agent: "a", ID: "c5", UID: "inst_5", Incarnation: "inc_5"}},
		{&journal.Admitted{Submission: "sub_1", Message: journal.Message{Kind: journal.User, Body: "look at both"}}},
		{
			&journal.Attempt{Submission: "sub_1", Ordinal: 1, Reason: "first", Deadline: 1_764_465_267_000, MaxAttempts: 10},
			&journal.Entry{ID: "e1", Submission: "sub_1", Purpose: journal.Input, Message: journal.Message{Kind: journal.User, Body: "look at both"}},
			&journal.Seam{Name: journal.SeamStart, Submission: "sub_1", Response: "r1", Settings: &journal.Settings{Model: "p/m"}},
			&journal.TurnStarted{Turn: "t1", Response: "r1", Submission: "sub_1", Provider: "p", Model: "m"},
		},
		{
			&journal.TurnDone{Turn: "t1", Response: "r1", Submission: "sub_1", Stop: journal.StopToolUse, Provider: "p", Model: "m", Named: true, Blocks: []journal.Block{
				{Kind: journal.ToolCall, Call: "c1", Name: "look", Arguments: `{"n":1}`, Again: true},
				{Kind: journal.ToolCall, Call: "c2", Name: "look", Arguments: `{"n":2}`},
				{Kind: journal.ToolCall, Call: "c3", Name: "look", Arguments: `{"n":3}`},
			}},
			&journal.Called{Turn: "t1", Calls: []string{"c1"}},
		},
		{outcome("c1"), &journal.Called{Turn: "t1", Calls: []string{"c2"}}},
		{&journal.Abort{}},
		{
			&journal.Outcome{Turn: "t1", Response: "r1", Call: "c2", Tool: "look", Failed: true, Content: "stopped", DurationMS: &ms},
			&journal.Outcome{Turn: "t1", Response: "r1", Call: "c3", Tool: "look", Failed: true, Content: "not run"},
			&journal.ToolBatch{Turn: "t1"},
			&journal.Entry{ID: "e2", Submission: "sub_1", Purpose: journal.Advisory, Ending: journal.Aborted, Message: journal.Message{Kind: journal.Signal, Type: journal.SignalAborted, Body: "Submission was aborted."}},
			&journal.Settled{Submission: "sub_1", Outcome: journal.Aborted, Error: jsontext.Value(`{"type":"submission_aborted"}`), AnsweredBy: "sub_1"},
		},
	})
}

// lives are batches with a record of every kind that there is.
func lives() []journal.Batch {
	return slices.Concat(life(), hooksLife(), repairLife(), compactionLife(), calledLife(), summaryLife())
}

// timed makes batches of records, a millisecond apart.
func timed(batches [][]journal.Record) []journal.Batch {
	out := make([]journal.Batch, len(batches))
	for i, rs := range batches {
		out[i] = journal.Batch{At: time.UnixMilli(1_764_461_667_000 + int64(i)).UTC(), Records: rs}
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	kinds := make(map[journal.Kind]bool)
	for i, b := range lives() {
		data, err := journal.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := journal.Decode(data)
		if err != nil {
			t.Fatalf("batch %d: %v\n%s", i, err, data)
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Errorf("batch %d (-written +read):\n%s", i, diff)
		}
		for _, r := range b.Records {
			kinds[r.Kind()] = true
		}
	}
	for _, k := range journal.Kinds() {
		if !kinds[k] {
			t.Errorf("kind %s is not tried", k)
		}
	}
	if len(kinds) != len(journal.Kinds())+1 { // and an unknown one
		t.Errorf("%d kinds are tried: %v", len(kinds), kinds)
	}
}

// A journal that the first release wrote must be read for ever, to the same
// state.
func TestJournalOfTheFirstRelease(t *testing.T) {
	st := golden(t, "v1.jsonl", life())
	if st.Phase != fold.Idle || st.Unsettled() || string(st.Vars["n"]) != "true" || string(st.Vars["s"]) != "[1,2]" || len(st.Context) != 4 {
		t.Errorf("the state is %+v", st)
	}
	if st.Told != nil || st.Baseline != nil || len(st.Steps) != 0 {
		t.Errorf("it knows nothing of hooks, and the state has %+v, %+v, %+v", st.Told, st.Baseline, st.Steps)
	}
}

// So must one of an agent with hooks.
func TestJournalOfHooks(t *testing.T) {
	st := golden(t, "v1-hooks.jsonl", hooksLife())
	if st.Phase != fold.Idle || st.Unsettled() || string(st.Vars["ticket"]) != "7" || string(st.Vars["approved"]) != "true" {
		t.Errorf("the state is %+v", st)
	}
	if len(st.Steps) != 0 || st.Delivery.Body != "thanks" {
		t.Errorf("steps %v are left, the delivery is %+v", st.Steps, st.Delivery)
	}
	if len(st.Baseline.Declared) != 3 || len(st.Told.Declared) != 2 || st.Told.Declared[1].After != "c1" {
		t.Errorf("the baseline is %+v, told was %+v", st.Baseline, st.Told)
	}
	var context []string
	for _, it := range st.Context {
		switch {
		case it.Entry != nil:
			context = append(context, string(it.Entry.Purpose))
		case it.Turn != nil:
			context = append(context, it.Turn.Turn)
		default:
			context = append(context, it.Outcomes[0].Call)
		}
	}
	want := []string{"input", "appended", "t1", "c1", "input", "narration", "narration", "t2", "appended", "t3", "input", "t4"}
	if diff := cmp.Diff(want, context); diff != "" {
		t.Errorf("the model's context (-want +got):\n%s", diff)
	}
}

// One whose calls are named before they run.
func TestJournalOfCalled(t *testing.T) {
	st := golden(t, "v1-called.jsonl", calledLife())
	if st.Phase != fold.Idle || st.Unsettled() || len(st.Context) != 4 || len(st.Context[2].Outcomes) != 3 {
		t.Errorf("the state is %+v", st)
	}
}

// One of a conversation of which summaries were asked for in vain.
func TestJournalOfSummaries(t *testing.T) {
	st := golden(t, "v1-summaries.jsonl", summaryLife())
	if st.Phase != fold.Idle || st.Unsettled() || len(st.Context) != 4 || st.Summarizing != nil || st.Unsummarized != (fold.Unsummarized{}) {
		t.Errorf("the state is %+v", st)
	}
	if st.Usage.Input != 900 || st.Spent.Guessed != 7+1256 || st.Cost.Nano != 2_000_000 || st.Cost.AtMost != 1_256_000 {
		t.Errorf("it has used %+v and %+v, which cost %+v", st.Usage, st.Spent, st.Cost)
	}
}

// And one that was repaired.
func TestJournalOfRepair(t *testing.T) {
	read := goldenFile(t, "v1-repair.jsonl", repairLife())
	st, err := fold.Replay(func(yield func(fold.Batch, error) bool) {
		for i, b := range read {
			fb := fold.Batch{Offset: int64(i), Records: b.Records}
			if i == 3 {
				fb = fold.Batch{Offset: 3, Err: errors.New("the checksum is wrong")}
			}
			if !yield(fb, nil) {
				return
			}
		}
	})
	if err != nil || st.Phase != fold.Idle || st.Unsettled() || st.Head != 4 || len(st.Context) != 3 {
		t.Errorf("the state is %+v, %v", st, err)
	}
}

// golden holds what is written of the batches to the file, and folds the file.
// So must one of a conversation that was compacted.
func TestJournalOfCompaction(t *testing.T) {
	read := goldenFile(t, "v1-compaction.jsonl", compactionLife())
	st, err := fold.Replay(func(yield func(fold.Batch, error) bool) {
		for i, b := range read {
			if !yield(fold.Batch{Offset: int64(i), Records: b.Records}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var context []string
	for _, it := range st.Context {
		context = append(context, it.ID())
	}
	if want := []string{"", "e1", "t2", "", "t4"}; !slices.Equal(context, want) || st.Compaction().ID != "cmp_1" || !st.Context[1].Entry.Message.Pinned {
		t.Errorf("the context is %q after %+v", context, st.Compaction())
	}
	if st.Usage.Input != 3700 || st.Baseline.Instructions != "11bb" {
		t.Errorf("the usage is %+v, the baseline %+v", st.Usage, st.Baseline)
	}
}

func golden(t *testing.T, name string, batches []journal.Batch) *fold.State {
	t.Helper()
	st := &fold.State{Head: -1}
	for i, b := range goldenFile(t, name, batches) {
		for _, r := range b.Records {
			if err := st.Apply(r); err != nil {
				t.Fatalf("batch %d: %v", i, err)
			}
		}
	}
	return st
}

// goldenFile holds what is written of the batches to the file, and reads it.
func goldenFile(t *testing.T, name string, batches []journal.Batch) []journal.Batch {
	t.Helper()
	path := filepath.Join("testdata", name)
	var lines [][]byte
	for _, b := range batches {
		data, err := journal.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, data)
	}
	written := append(bytes.Join(lines, []byte("\n")), '\n')
	if *update {
		if err := os.WriteFile(path, written, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, written) {
		t.Errorf("what is written has changed:\n%s", cmp.Diff(string(golden), string(written)))
	}
	var read []journal.Batch
	for i, line := range bytes.Split(bytes.TrimSpace(golden), []byte("\n")) {
		b, err := journal.Decode(line)
		if err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		read = append(read, b)
	}
	return read
}

// Nothing that a model, a provider or a tool says may make a batch unwritable.
func TestHostileContent(t *testing.T) {
	b := journal.Batch{Records: []journal.Record{
		&journal.Outcome{Call: "c\xff", Tool: "t", Content: "a\xff\xfeb\xed\xa0\x80", Output: jsontext.Value("\"\xff\"")},
		&journal.TurnDone{Blocks: []journal.Block{
			{Kind: journal.Text, Text: "ok\xf0\x9f", Opaque: jsontext.Value(`{"a":1,"a":2,"s":"\ud83d","n":12345678901234567890.10}`)},
			{Kind: journal.ToolCall, Arguments: "{\"s\":\"\\ud83d\"}{\x00"},
		}, Sent: []int{4}},
		&journal.State{Name: "x", Value: jsontext.Value(`{"k":1,"k":2}`)},
	}}
	data, err := journal.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := journal.Decode(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	done := got.Records[1].(*journal.TurnDone)
	if string(done.Blocks[0].Opaque) != `{"a":1,"a":2,"s":"\ud83d","n":12345678901234567890.10}` {
		t.Errorf("what the provider wants back unchanged came back as %s", done.Blocks[0].Opaque)
	}
	if c := got.Records[0].(*journal.Outcome).Content; !strings.HasPrefix(c, "a") || strings.ContainsRune(c, 0) {
		t.Errorf("content %q", c)
	}
	again, err := journal.Encode(got)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("written again: %v\n%s\n%s", err, data, again)
	}
}

func TestVersions(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want journal.Record // nil for a FormatError
	}{
		"a member that is not known": {`{"v":1,"at":0,"later":1,"r":[{"k":"batch","x":2,"d":{"turn":"t","more":[1]}}]}`, &journal.ToolBatch{Turn: "t"}},
		"a kind that is not known":   {`{"v":1,"at":0,"r":[{"k":"later","d":{"a":1}}]}`, &journal.Unknown{Name: "later", Version: 1, Data: jsontext.Value(`{"a":1}`)}},
		"a newer version of a kind":  {`{"v":1,"at":0,"r":[{"k":"batch","v":2,"opt":true,"d":{}}]}`, &journal.Unknown{Name: "batch", Version: 2, Optional: true, Data: jsontext.Value(`{}`)}},
		"another envelope":           {`{"v":2,"at":0,"r":[]}`, nil},
		"not JSON":                   {`{"v":1`, nil},
		"nothing":                    {``, nil},
		"a record of the wrong form": {`{"v":1,"at":0,"r":[{"k":"batch","d":{"turn":5}}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := journal.Decode([]byte(tt.in))
			if tt.want == nil {
				var format *journal.FormatError
				if !errors.As(err, &format) || format.Newer != (name == "another envelope") {
					t.Errorf("error %#v, want a FormatError that says whether a newer version wrote it", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]journal.Record{tt.want}, b.Records); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range lives() {
		data, err := journal.Encode(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := journal.Decode(data)
		if err != nil {
			return
		}
		out, err := journal.Encode(b)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := journal.Decode(out)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, out)
		}
		twice, err := journal.Encode(again)
		if err != nil || !bytes.Equal(out, twice) {
			t.Fatalf("unstable: %v\n%s\n%s", err, out, twice)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	batch := life()[4]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := journal.Encode(batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	data, err := journal.Encode(life()[4])
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := journal.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}
