package anthropic_test

import (
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/modeltest/rules"
)

// Tools that must not be called are sent, and forbidden.
func TestToolsOff(t *testing.T) {
	req := modeltest.Conversation(model.Origin{Provider: "anthropic", Model: "m"}, nil)
	on := string(sent(t, anthropic.Config{}, req))
	req.ToolsOff = true
	off := string(sent(t, anthropic.Config{}, req))
	if strings.Contains(on, "tool_choice") || !strings.Contains(off, `"tool_choice":{"type":"none"}`) || !strings.Contains(off, `"name":"lookup_order"`) {
		t.Errorf("with tools off: %s", off)
	}
	if problems := rules.Anthropic([]byte(off)); len(problems) > 0 {
		t.Errorf("the service would refuse it: %q", problems)
	}
	req = modeltest.Hello()
	req.ToolsOff = true
	if body := string(sent(t, anthropic.Config{}, req)); strings.Contains(body, "tool") {
		t.Errorf("without tools: %s", body)
	}
}
