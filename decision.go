package flue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/journal"
)

// useApprovals carries out a decision that has been delivered, and tells the
// model what has come of decisions. It belongs to every agent: a call that was
// gated when it was made stays so.
func useApprovals(r *Render, agent *Agent) {
	all, err := decodeApprovals(r.view.Vars)
	if err != nil {
		r.misuse("UseApprovalGate", err.Error(), "The state was written by another version of this program.")
	}
	r.expiries(all)
	for _, a := range all {
		if !a.Told {
			r.waiting = append(r.waiting, a.Call)
		}
	}
	slices.Sort(r.waiting)
	var decided *approvalRecord
	if m := r.view.Delivery; m.Kind == journal.Signal && m.Type == journal.SignalApproval {
		if a := all[m.Attributes["approvalId"]]; a != nil && (a.Decision == nil || a.Status == approvalRunning) {
			decided = a
		}
	}
	untold := slices.ContainsFunc(slices.Collect(maps.Values(all)), func(a *approvalRecord) bool { return a.Decision != nil && !a.Told })
	if decided == nil && !untold {
		return
	}
	c := &carrier{agent: agent, view: r.view, self: r.self, all: all}
	r.before = append(r.before, engine.Hook{Name: "UseApprovalGate", Run: func(ctx context.Context, w *engine.Work) error {
		if decided != nil {
			if err := c.carryOut(ctx, w, decided); err != nil {
				return err
			}
		}
		return c.tell(w)
	}})
}

// A carrier carries decisions out. Each step of it is durable at once, whatever
// becomes of the response that it belongs to: what was run must not be forgotten
// because a hook beside it fails, or somebody aborts.
type carrier struct {
	agent *Agent
	view  engine.View
	self  *Instance
	all   approvals
}

// keep makes an approval durable, with what its call has written.
func (c *carrier) keep(ctx context.Context, w *engine.Work, a *approvalRecord, writes ...journal.VarWrite) error {
	raw, err := encodeValue("what is kept of an approval", a, maxApproval)
	if err != nil && len(a.Shown) > 0 { // the call has run: that must not be forgotten for what it has shown
		a.Shown = nil
		raw, err = encodeValue("what is kept of an approval", a, maxApproval)
	}
	if err != nil {
		return err
	}
	return w.Keep(ctx, approvalState(a.ID), raw, writes)
}

// carryOut does what was decided.
func (c *carrier) carryOut(ctx context.Context, w *engine.Work, a *approvalRecord) error {
	again := a.Status == approvalRunning // a process has begun it and died
	if !again {
		d := decision(c.view.Delivery.Attributes, w.Now().UTC())
		a.Decision = &d
	}
	if !a.Decision.Approve {
		a.Status, a.Result = approvalDenied, a.denial()
		return c.keep(ctx, w, a)
	}
	tool := c.tool(a)
	switch {
	case tool == nil && again, tool != nil && again && !tool.Again:
		a.Status, a.Result = approvalUnknown, unknownCall
		return c.keep(ctx, w, a)
	case tool == nil:
		a.Status, a.Result = approvalWithdrawn, "It was not run: the tool is no longer there."
		return c.keep(ctx, w, a)
	}
	if !again {
		a.Status = approvalRunning
		if err := c.keep(ctx, w, a); err != nil {
			return err
		}
	}
	_, err := w.Run(ctx, tool, a.Call, a.Key, string(a.effective()), func(r engine.Result, writes []journal.VarWrite, shown []journal.Data) error {
		a.Status, a.Result, a.Shown = approvalExecuted, "It was run. Result: "+r.Content, shown
		var unfit *ToolInputError
		switch {
		case errors.As(r.Err, &unfit):
			a.Status, a.Result = approvalFailed, "It was not run: "+r.Content
		case r.Failed:
			a.Status, a.Result = approvalFailed, "It was run and failed: "+r.Content
		}
		return c.keep(ctx, w, a, writes...)
	})
	return err
}

const unknownCall = "It was begun and then interrupted, and is not run again. Whether it took effect is unknown: find out before you do anything that depends on it."

// decision reads what a person has decided from the attributes of the message.
func decision(attributes map[string]string, now time.Time) Decision {
	d := Decision{Approve: attributes["decision"] == "approve", By: attributes["approver"], Reason: attributes["reason"], At: now}
	if edited, ok := attributes["arguments"]; ok {
		d.Arguments = json.RawMessage(edited)
	}
	return d
}

// effective returns the arguments that an approved call runs with.
func (a *approvalRecord) effective() json.RawMessage {
	if a.Decision.Arguments != nil {
		return a.Decision.Arguments
	}
	return a.Arguments
}

// denial is what the model is told of a call that was denied.
func (a *approvalRecord) denial() string {
	text := "It was not run. Do not call the tool again for the same purpose; ask how to proceed."
	if a.Decision.Reason != "" {
		return "Reason: " + a.Decision.Reason + ". " + text
	}
	return text
}

// tool returns the tool of an approved call, or nil if the agent has none of the
// name. It is that of a render with the message in front of the model that was
// there when the call was made: a tool that is bound to a customer by the message
// is bound to the same one.
func (c *carrier) tool(a *approvalRecord) *engine.Tool {
	view := c.view
	if a.Delivery != nil {
		view.Delivery = *a.Delivery
	}
	r := &Render{agent: c.agent.Name, view: view, self: c.self}
	if _, err := r.run(c.agent.Render); err != nil {
		return nil // the render of the response fails in the same way, and says so
	}
	i := slices.IndexFunc(r.tools, func(t *ToolDefinition) bool { return t.name == a.Tool })
	if i < 0 {
		return nil
	}
	t := r.tools[i]
	if t.ungated != nil {
		t = t.ungated
	}
	tool := t.engineTool()
	return &tool
}

// tell appends what has come of decisions that the model has not been told of.
// It lands with the seam, and so does the note that it was told.
func (c *carrier) tell(w *engine.Work) error {
	var untold []*approvalRecord
	for _, a := range c.all {
		if a.Decision != nil && !a.Told {
			untold = append(untold, a)
		}
	}
	slices.SortFunc(untold, func(a, b *approvalRecord) int { return a.Decision.At.Compare(b.Decision.At) })
	for _, a := range untold {
		if a.Status == approvalRunning { // in a response that has ended since
			a.Status, a.Result = approvalUnknown, unknownCall
		}
		if err := w.Append(a.told()); err != nil {
			return err
		}
		w.Reshow(a.Shown)
		a.Told = true
		a.Arguments, a.Delivery, a.Result, a.Shown = nil, nil, "", nil
		raw, err := encodeValue("what is kept of an approval", a, maxApproval)
		if err != nil {
			return err
		}
		if err := w.Set(approvalState(a.ID), raw); err != nil {
			return err
		}
	}
	return nil
}

// told is the signal that tells the model what has come of a decision.
func (a *approvalRecord) told() journal.Message {
	verb := "denied"
	if a.Decision.Approve {
		verb = "approved"
	}
	text := fmt.Sprintf("%s %s the call %s of %s", a.Decision.By, verb, a.ID, a.Tool)
	if a.Decision.Arguments != nil {
		text += " with changed arguments: " + string(a.Decision.Arguments)
	}
	return journal.Message{
		Kind: journal.Signal, Type: journal.SignalApprovalResult, Body: text + ". " + a.Result,
		Attributes: map[string]string{"approvalId": a.ID, "tool": a.Tool, "status": string(a.Status)},
	}
}
