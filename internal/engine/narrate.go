package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/flue-go/flue/journal"
)

// declared is what the plan declares, in the form in which it is told.
func (p *Plan) declared() *journal.Resources {
	r := &journal.Resources{Instructions: digest([]byte(p.Instructions))}
	for i := range p.Tools {
		spec := &p.Tools[i].Spec
		r.Declared = append(r.Declared, journal.Resource{
			Kind: journal.ResourceTool, Name: spec.Name, Description: spec.Description, Digest: digest(spec.Schema),
		})
	}
	r.Declared = append(r.Declared, p.Resources...)
	return r
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// narrate tells the model how what is declared now differs from what it was
// told last. The first turn of a conversation is the baseline: there is nothing
// to tell.
func (d *driver) narrate() error {
	now, told := d.plan.declared(), d.state.Told
	if told == nil {
		now.Baseline = true
		return d.stage(now)
	}
	anchor(now, told, d.state.Response.Unlocker)
	var records []journal.Record
	for _, kind := range kinds {
		if c := compare(kind.kind, told.Declared, now.Declared); c.changed() {
			records = append(records, d.narration(journal.SignalResources, c.text(kind), map[string]string{"resource": string(kind.kind)}))
		}
	}
	if told.Instructions != now.Instructions {
		records = append(records, d.narration(journal.SignalInstructions, instructionsUpdated, nil))
	}
	if len(records) == 0 {
		return nil
	}
	return d.stage(append(records, now)...)
}

// anchor notes which call brought each tool in: what was noted before, or for a
// new one the call that has just been committed.
func anchor(now, told *journal.Resources, unlocker string) {
	for i := range now.Declared {
		r := &now.Declared[i]
		if r.Kind != journal.ResourceTool {
			continue
		}
		if old := find(told.Declared, r.Kind, r.Name); old != nil {
			r.After = old.After
		} else {
			r.After = unlocker
		}
	}
}

// instructionsUpdated is all that is said of new instructions: the system prompt
// has them already, and the signal marks when they changed.
const instructionsUpdated = "System instructions updated."

func (d *driver) narration(signal, text string, attributes map[string]string) *journal.Entry {
	return &journal.Entry{
		ID: newID("entry_"), Submission: d.state.Active.Submission, Purpose: journal.Narration,
		Message: journal.Message{Kind: journal.Signal, Type: signal, Body: text, Attributes: attributes},
	}
}

// kinds are the kinds of resource with what the model calls them.
var kinds = []resourceKind{
	{journal.ResourceSkill, "skill", "skills"},
	{journal.ResourceTool, "tool", "tools"},
	{journal.ResourceSubagent, "agent", "agents"},
}

type resourceKind struct {
	kind     journal.ResourceKind
	singular string
	plural   string
}

// A change is how the resources of one kind differ.
type change struct {
	added, updated []journal.Resource
	removed, all   []string
}

func (c *change) changed() bool { return len(c.added)+len(c.updated)+len(c.removed) > 0 }

func compare(kind journal.ResourceKind, told, now []journal.Resource) change {
	var c change
	for _, r := range now {
		if r.Kind != kind {
			continue
		}
		c.all = append(c.all, r.Name)
		switch old := find(told, kind, r.Name); {
		case old == nil:
			c.added = append(c.added, r)
		case old.Description != r.Description || old.Digest != r.Digest:
			c.updated = append(c.updated, r)
		}
	}
	for _, r := range told {
		if r.Kind == kind && find(now, kind, r.Name) == nil {
			c.removed = append(c.removed, r.Name)
		}
	}
	return c
}

func find(list []journal.Resource, kind journal.ResourceKind, name string) *journal.Resource {
	i := slices.IndexFunc(list, func(r journal.Resource) bool { return r.Kind == kind && r.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// text is the change in words. It ends with all names, so that the last of a
// chain of changes is a complete picture. Of a tool that was updated it gives the
// name only: the request itself has its new form.
func (c *change) text(kind resourceKind) string {
	var lines []string
	switch len(c.added) {
	case 0:
	case 1:
		lines = append(lines, "New "+kind.singular+" available:")
	default:
		lines = append(lines, "New "+kind.plural+" available:")
	}
	for _, r := range c.added {
		lines = append(lines, catalogLine(r))
	}
	for _, name := range c.removed {
		lines = append(lines, fmt.Sprintf("The %s %q is no longer available.", kind.singular, name))
	}
	for _, r := range c.updated {
		if kind.kind == journal.ResourceTool {
			lines = append(lines, fmt.Sprintf("The tool %q was updated.", r.Name))
			continue
		}
		lines = append(lines, fmt.Sprintf("The %s %q was updated:", kind.singular, r.Name), catalogLine(r))
	}
	all := "none"
	if len(c.all) > 0 {
		all = strings.Join(c.all, ", ")
	}
	return strings.Join(append(lines, "All available "+kind.plural+": "+all), "\n")
}

func catalogLine(r journal.Resource) string {
	if r.Description == "" {
		return "- **" + r.Name + "**"
	}
	return "- **" + r.Name + "** — " + r.Description
}

// catalog lists, for the system prompt, what the model uses by name rather than
// by calling it. It is that of the baseline: the prompt stays the same, and with
// it the provider's cache, while changes are narrated.
func catalog(baseline *journal.Resources) string {
	var parts []string
	for _, kind := range kinds {
		if kind.kind == journal.ResourceTool { // the request lists tools
			continue
		}
		var lines []string
		for _, r := range baseline.Declared {
			if r.Kind == kind.kind {
				lines = append(lines, catalogLine(r))
			}
		}
		if len(lines) > 0 {
			parts = append(parts, "Available "+kind.plural+":\n"+strings.Join(lines, "\n"))
		}
	}
	return strings.Join(parts, "\n\n")
}
