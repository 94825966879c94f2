package catalog

import (
	"slices"

	"github.com/flue-go/flue/internal/near"
	"github.com/flue-go/flue/model"
)

// Over returns a lookup that knows what own says of models, by specifier, and
// for the rest what base says; a nil base knows nothing. It is for prices of a
// contract, models that are newer than the catalog, and those of a server of
// one's own:
//
//	flue.Config{Catalog: catalog.Over(catalog.Lookup, map[string]model.Info{
//		"ollama/qwen3:8b":            {ContextWindow: 32_768, Cost: model.Cost{Free: true}},
//		"anthropic/claude-haiku-4-5": {Cost: model.Cost{Input: 0.9, Output: 4.5, CacheRead: 0.09, CacheWrite: 1.125}},
//	})}
//
// A field of own that is zero leaves what base says; Cost and Levels are
// replaced as a whole. To take away what base says, write a lookup of your own.
// Own is copied, and the result is safe for concurrent use if base is.
func Over(base func(provider, id string) (model.Info, bool), own map[string]model.Info) func(provider, id string) (model.Info, bool) {
	entries := make(map[string]model.Info, len(own))
	for specifier, info := range own {
		info.Levels = slices.Clone(info.Levels)
		entries[specifier] = info
	}
	return func(provider, id string) (info model.Info, known bool) {
		if base != nil {
			info, known = base(provider, id)
		}
		o, ok := entries[provider+"/"+id]
		if !ok {
			return info, known
		}
		o.Levels = slices.Clone(o.Levels)
		return merge(info, o), true
	}
}

// merge returns info with what is known in o.
func merge(info, o model.Info) model.Info {
	if o.Name != "" {
		info.Name = o.Name
	}
	if o.ContextWindow != 0 {
		info.ContextWindow = o.ContextWindow
	}
	if o.MaxOutput != 0 {
		info.MaxOutput = o.MaxOutput
	}
	if o.Levels != nil {
		info.Levels = o.Levels
	}
	if o.Cost != (model.Cost{}) {
		info.Cost = o.Cost
	}
	info.Reasoning = info.Reasoning || o.Reasoning
	info.Images = info.Images || o.Images
	info.Known = info.Known || o.Known
	info.DeferredTools = info.DeferredTools || o.DeferredTools
	return info
}

// Similar returns ids of models of the provider that are like an id which the
// catalog does not have, to say what may have been meant. They are few, the
// nearest first.
func Similar(provider, id string) []string {
	var ids []string
	for _, e := range of(provider) {
		ids = append(ids, e.ID)
	}
	return near.Names(id, ids)
}
