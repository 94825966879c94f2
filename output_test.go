package flue_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// reading is a model that asks for a long log, and then for parts of it as the
// messages tell it to.
func reading(log string) (*flue.Agent, func(req *model.Request) script.Turn) {
	show := flue.NewTool(flue.Tool{Name: "show_log", Description: "Show the log."}, func(context.Context, struct{}) (string, error) {
		return log, nil
	})
	agent := &flue.Agent{Render: func(r *flue.Render) string {
		flue.UseModel(r, "fake/any")
		flue.UseTool(r, show)
		return ""
	}}
	return agent, func(req *model.Request) script.Turn {
		last := req.Messages[len(req.Messages)-1]
		if last.Role == model.RoleTool {
			return script.Say("done")
		}
		asked := last.Blocks[len(last.Blocks)-1].Text
		if name, arguments, ok := strings.Cut(asked, " "); ok && !strings.HasPrefix(asked, "<") {
			return script.Call(name, arguments)
		}
		return script.Say("done")
	}
}

// lastResult returns the text of the newest tool result that the model has read.
func (s *stage) lastResult() string {
	asked := s.asked()
	for _, m := range slices.Backward(asked[len(asked)-1].Messages) {
		if m.Role == model.RoleTool {
			return m.Blocks[0].Text
		}
	}
	return ""
}

// offers reports whether the model was offered the tool in its latest call.
func (s *stage) offers(tool string) bool {
	asked := s.asked()
	return slices.ContainsFunc(asked[len(asked)-1].Tools, func(t model.Tool) bool { return t.Name == tool })
}

var keptID = regexp.MustCompile(`output_[0-9a-f]{16}`)

// Of a long result the model is shown the head and the tail. It can read on, in
// this process and the next, and clients can fetch all of it.
func TestLongResult(t *testing.T) {
	var b strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&b, "%d: nothing to report\n", i+1)
		if i == 30_000 {
			b.WriteString("ERROR: the disk of héllo-7 is full\n")
		}
	}
	log := b.String()
	agent, reply := reading(log)
	s := newStage(t, agent, reply)

	s.say("show_log {}")
	shown := s.lastResult()
	if len(shown) > 33<<10 || !strings.HasPrefix(shown, "1: nothing") || !strings.HasSuffix(shown, "50000: nothing to report\n") {
		t.Fatalf("the model is shown %d bytes: %.100q", len(shown), shown)
	}
	id := keptID.FindString(shown)
	if !s.offers("read_output") {
		t.Error("the model is not offered a way to read on")
	}

	s.restart()
	for _, tt := range []struct{ ask, want string }{
		{`{"id":"` + id + `","from":30000,"lines":3}`, "[Lines 30000 to 30002 of 50001.]\n30000: nothing to report\n30001: nothing to report\nERROR: the disk of héllo-7 is full\n"},
		{`{"id":"` + id + `","find":"ERROR"}`, "[1 lines contain the text.]\n30002 (offset "},
		{`{"id":"` + id + `","find":"no such words"}`, `[No line contains "no such words".]`},
		{`{"id":"` + id + `","offset":3}`, "[Bytes 3 to 24579 of "},
		{`{"id":"` + id + `","from":60000}`, "[The output has 50001 lines.]"},
		{`{"id":"output_0000000000000000"}`, "there is no output"},
		{`{"id":"../secret"}`, "there is no output"},
		{`{}`, "id"},
	} {
		s.say("read_output " + tt.ask)
		if got := s.lastResult(); !strings.Contains(got, tt.want) {
			t.Errorf("read_output %s: %.200q, want %q in it", tt.ask, got, tt.want)
		}
	}

	server := httptest.NewServer(http.StripPrefix("/agents/actor", s.rt.Handler("actor")))
	defer server.Close()
	resp, err := http.Get(server.URL + "/agents/actor/one/attachments/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(got) != log {
		t.Errorf("the attachment: status %d, %d bytes, %v", resp.StatusCode, len(got), err)
	}
}

// A tool may show more or less, and an agent without long results has no tool of
// the framework.
func TestMaxShown(t *testing.T) {
	text := strings.Repeat("é", 40<<10)
	for _, tt := range []struct {
		shown int
		kept  bool
	}{{0, true}, {-1, false}, {1024, true}, {100 << 10, false}} {
		t.Run(fmt.Sprint(tt.shown), func(t *testing.T) {
			tool := flue.NewTool(flue.Tool{Name: "show_log", Description: "Show it.", MaxShown: tt.shown}, func(context.Context, struct{}) (string, error) { return text, nil })
			_, reply := reading(text)
			s := newStage(t, &flue.Agent{Render: func(r *flue.Render) string {
				flue.UseModel(r, "fake/any")
				flue.UseTool(r, tool)
				return ""
			}}, reply)
			s.say("show_log {}")
			if kept := keptID.MatchString(s.lastResult()); kept != tt.kept || s.offers("read_output") != tt.kept {
				t.Errorf("kept: %v, offered: %v, want %v", kept, s.offers("read_output"), tt.kept)
			}
		})
	}
	if _, err := flue.MakeTool(flue.Tool{Name: "t", Description: "d", MaxShown: 10}, func(context.Context, struct{}) (string, error) { return "", nil }); err == nil {
		t.Error("a tool that shows ten bytes is made")
	}
	if _, err := flue.MakeTool(flue.Tool{Name: "read_output", Description: "d"}, func(context.Context, struct{}) (string, error) { return "", nil }); err == nil {
		t.Error("a tool of the framework's name is made")
	}
}

// What a model asks of a kept result may be anything, and the result may be one
// line.
func TestReadOutputAsksAnything(t *testing.T) {
	line := `{"items":[` + strings.Repeat(`{"name":"nothing to report"},`, 20_000) + `{"name":"the needle"}]}`
	agent, reply := reading(line)
	s := newStage(t, agent, reply)
	s.say("show_log {}")
	id := keptID.FindString(s.lastResult())
	for _, tt := range []struct{ ask, want string }{
		{`"lines":9223372036854775807`, "[Lines 1 to 1 of 1. Line 1 is longer: go on with offset 24576.]"},
		{`"from":1,"lines":9223372036854775806`, "[Lines 1 to 1 of 1."},
		{`"from":9223372036854775807`, "[The output has 1 lines.]"},
		{`"from":-9223372036854775808,"lines":-1`, "[Lines 1 to 1 of 1."},
		{`"offset":9223372036854775807`, "[The output has 580033 bytes.]"},
		{`"offset":-1`, "[Lines 1 to 1 of 1."},
		{`"find":"the needle"`, "1 (offset 579919): …"},
	} {
		s.say(`read_output {"id":"` + id + `",` + tt.ask + `}`)
		if got := s.lastResult(); !strings.Contains(got, tt.want) {
			t.Errorf("read_output %s: %.200q, want %q in it", tt.ask, got, tt.want)
		}
	}
}
