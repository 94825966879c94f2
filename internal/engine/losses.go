package engine

import (
	"hash/maphash"
	"sync"

	"github.com/flue-go/flue/model"
)

// maxOffered bounds what is remembered of the tools that were offered.
const maxOffered = 4096

// An offer is a tool that was offered to the models of a provider.
type offer struct {
	provider, tool string
	schema         uint64 // a hash: a tool's schema may change
}

// offers are the tools whose losses were told already, by all conversations.
type offers struct {
	mu   sync.Mutex
	seed maphash.Seed
	told map[offer]bool
}

// fresh returns those of tools that were not offered to the provider before.
func (o *offers) fresh(provider string, tools []model.Tool) []model.Tool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.told) > maxOffered || o.told == nil { // told twice is better than kept for ever
		o.seed, o.told = maphash.MakeSeed(), map[offer]bool{}
	}
	var fresh []model.Tool
	for _, t := range tools {
		key := offer{provider, t.Name, maphash.Bytes(o.seed, t.Schema)}
		if !o.told[key] {
			o.told[key] = true
			fresh = append(fresh, t)
		}
	}
	return fresh
}

// tellLosses says once of each tool what its provider cannot be told of the
// arguments.
func (d *driver) tellLosses(m Model, tools []model.Tool) {
	if m.Losses == nil {
		return
	}
	fresh := d.e.offers.fresh(m.Origin.Provider, tools)
	if len(fresh) == 0 {
		return
	}
	losses := map[string][]model.Loss{}
	for _, l := range d.e.lossesOf(m, fresh) {
		losses[l.Tool] = append(losses[l.Tool], l)
	}
	for _, t := range fresh {
		lost := losses[t.Name]
		if lost == nil {
			continue
		}
		texts := make([]string, len(lost))
		for i, l := range lost {
			texts[i] = l.Path + ": " + l.Text
		}
		d.e.cfg.Log.Warn("the model is told less of a tool's arguments than they are checked for", "tool", t.Name, "provider", m.Origin.Provider, "lost", texts)
		d.emit(Event{Type: EventSchemaReduced, Tool: t.Name, Model: m.Origin.Provider + "/" + m.Origin.Model, Losses: lost})
	}
}
