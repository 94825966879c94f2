package openai_test

import (
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
	"github.com/flue-go/flue/model/openai"
)

// Tools that must not be called are sent, and forbidden.
func TestToolsOff(t *testing.T) {
	for name, api := range map[string]struct {
		send  func(req *model.Request) []byte
		rules func([]byte) []string
	}{
		"Chat Completions": {func(req *model.Request) []byte { return sent(t, openai.Config{}, req) }, rules.ChatCompletions},
		"Responses":        {func(req *model.Request) []byte { return sentResponse(t, openai.Config{}, req) }, rules.Responses},
	} {
		t.Run(name, func(t *testing.T) {
			req := modeltest.Conversation(model.Origin{Provider: "openai", Model: "m"}, nil)
			on := string(api.send(req))
			req.ToolsOff = true
			off := string(api.send(req))
			if strings.Contains(on, "tool_choice") || !strings.Contains(off, `"tool_choice":"none"`) || !strings.Contains(off, `"name":"lookup_order"`) {
				t.Errorf("with tools off: %s", off)
			}
			if problems := api.rules([]byte(off)); len(problems) > 0 {
				t.Errorf("the service would refuse it: %q", problems)
			}
			req = modeltest.Hello()
			req.ToolsOff = true
			if body := string(api.send(req)); strings.Contains(body, "tool") {
				t.Errorf("without tools: %s", body)
			}
		})
	}
}
