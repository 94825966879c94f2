package flue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
)

// delegate renders fn as a subagent is rendered: in a frame of its own, with the
// task as the delivery, and with all that the parent's instance has in reach.
func delegate(fn func(r *Render) string) (*engine.Plan, error) {
	r := &Render{agent: "scout", frame: subagentFrame, self: &Instance{}, view: engine.View{
		ID: "one", InitialData: json.RawMessage(`{"issue":7}`), Vars: map[string]json.RawMessage{"n": json.RawMessage(`7`)},
		Delivery: journal.Message{Kind: journal.User, Body: "Find the file.", Attachments: []journal.Attachment{{ID: "att_1", MediaType: "image/png", Size: 3}}},
	}}
	return r.run(fn)
}

// Hooks that belong to an instance or to its clients fail in a subagent, each
// with its own name and what to do instead.
func TestSubagentFrameRefusesHooksOfTheInstance(t *testing.T) {
	tool := NewTool(Tool{Name: "look", Description: "Look."}, func(context.Context, struct{}) (string, error) { return "", nil })
	for name, hook := range map[string]func(r *Render){
		"UseModel":           func(r *Render) { UseModel(r, "fake/any") },
		"UsePersistentState": func(r *Render) { UsePersistentState(r, "n", 0) },
		"UseDataWriter":      func(r *Render) { UseDataWriter[int](r, "n") },
		"UseDispatchMessage": func(r *Render) { UseDispatchMessage(r) },
		"UseAgentStart":      func(r *Render) { UseAgentStart(r, func(context.Context, *AgentStart) error { return nil }) },
		"UseAgentFinish":     func(r *Render) { UseAgentFinish(r, func(context.Context, *AgentFinish) error { return nil }) },
		"UseResponseStart": func(r *Render) {
			UseResponseStart(r, func(context.Context, *ResponseStart) (Metadata, error) { return nil, nil })
		},
		"UseResponseFinish": func(r *Render) {
			UseResponseFinish(r, func(context.Context, *ResponseFinish) (Metadata, error) { return nil, nil })
		},
		"UseApprovalGate": func(r *Render) { UseApprovalGate(r, tool, ApprovalPolicy{}) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, within := range []string{"the agent function", "a custom hook"} {
				reached := false
				plan, err := delegate(func(r *Render) string {
					UseInstruction(r, "before")
					if within == "a custom hook" {
						func(r *Render) { hook(r) }(r)
					} else {
						hook(r)
					}
					reached = true
					return ""
				})
				var misuse *HookError
				if !errors.As(err, &misuse) || plan != nil || reached {
					t.Fatalf("in %s: plan %v, error %v, went on %v; want a HookError", within, plan, err, reached)
				}
				if misuse.Hook != name || misuse.Agent != "scout" || !strings.Contains(misuse.Reason, "in a subagent") || misuse.Fix == "" {
					t.Errorf("in %s: %+v", within, misuse)
				}
			}
		})
	}
}

// Tools, instruction and custom hooks compose in a subagent as anywhere. It has
// no creation data, and its delivery is the task.
func TestSubagentFrameComposes(t *testing.T) {
	look := NewTool(Tool{Name: "look", Description: "Look."}, func(context.Context, struct{}) (string, error) { return "", nil })
	type ticket struct {
		Issue int `json:"issue"`
	}
	var data ticket
	var task Message
	useLooking := func(r *Render) {
		UseTool(r, look)
		UseInstruction(r, "Look closely.")
	}
	plan, err := delegate(func(r *Render) string {
		data = UseInitialData[ticket](r)
		task = UseDelivery(r)
		useLooking(r)
		UseInstruction(r, "Be quick.")
		return "You find files."
	})
	if err != nil {
		t.Fatal(err)
	}
	if data != (ticket{}) {
		t.Errorf("the creation data is %+v, want none", data)
	}
	if task.Kind != KindUser || task.Body != "Find the file." || len(task.Attachments) != 1 || task.Attachments[0].ID != "att_1" {
		t.Errorf("the delivery is %+v, want the task", task)
	}
	if want := "You find files.\n\nLook closely.\n\nBe quick."; plan.Instructions != want {
		t.Errorf("the instruction is %q, want %q", plan.Instructions, want)
	}
	if len(plan.Tools) != 1 || plan.Tools[0].Spec.Name != "look" {
		t.Errorf("the tools are %+v", plan.Tools)
	}
	if plan.Settings.Model != "" {
		t.Errorf("the settings are %+v: a subagent's model is that of its declaration", plan.Settings)
	}
	// Names are unique there, too, and the frame ends with its render.
	var kept *Render
	_, err = delegate(func(r *Render) string {
		kept = r
		useLooking(r)
		UseTool(r, look)
		return ""
	})
	var conflict *ToolNameConflictError
	if !errors.As(err, &conflict) || conflict.Tool != "look" {
		t.Errorf("a tool twice: %v", err)
	}
	defer func() {
		if misuse, ok := recover().(*HookError); !ok || !strings.Contains(misuse.Reason, "outside its render") {
			t.Errorf("a hook after the render: %v", misuse)
		}
	}()
	UseInstruction(kept, "late")
}
