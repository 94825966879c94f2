// Package catalog has the data of well-known models: context window, output
// limit, price, reasoning levels, image input, tools loaded in mid-conversation.
//
//	rt, err := flue.Open(ctx, flue.Config{Catalog: catalog.Lookup, ...})
//
// The data is as old as the release that contains it. A model that is not in
// it works all the same. What is not known for certain is zero: a price of zero
// means that the price is unknown, not that the model is free.
//
// The data comes from catwalk (https://github.com/charmbracelet/catwalk), whose
// MIT licence is in LICENSE.catwalk. To take a newer version, change it in
// internal/gen/go.mod and run go generate in this directory; which of catwalk's
// numbers are believed is decided in internal/gen/convert.go, and what is wrong
// in it is mended in correct.go beside. The generator is a module of its own, so
// that programs depend neither on catwalk nor on the newer Go that it asks for.
package catalog

import (
	"cmp"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/flue-go/flue/model"
)

//go:generate env GOTOOLCHAIN=go1.27.3 go -C internal/gen run . ../../models.json.gz

//go:embed models.json.gz
var compressed string

// An entry is one model of the data file, which internal/gen writes sorted by
// provider and id.
type entry struct {
	Provider   string           `json:"p"`
	ID         string           `json:"id"`
	Name       string           `json:"name"` // left out when it is the id
	Window     int              `json:"window"`
	MaxOutput  int              `json:"out"`
	Reasoning  bool             `json:"reason"`
	Levels     []model.Thinking `json:"levels"`
	Images     bool             `json:"images"`
	Deferred   bool             `json:"defer"`
	Input      float64          `json:"cin"`
	Output     float64          `json:"cout"`
	CacheRead  float64          `json:"cread"`
	CacheWrite float64          `json:"cwrite"`
	UpTo       int              `json:"upto"`
}

// entries are all models. They are read when first asked for, because a program
// may have a catalog of its own, and are not changed after that.
var entries = sync.OnceValue(func() []entry {
	z, err := gzip.NewReader(strings.NewReader(compressed))
	if err != nil {
		panic("catalog: the embedded data is damaged: " + err.Error())
	}
	var all []entry
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		panic("catalog: the embedded data is damaged: " + err.Error())
	}
	return all
})

// Lookup returns what is known of a provider's model, and whether it is in the
// catalog. The provider is named as in a specifier, such as "anthropic"; the id
// is the model's at that provider. An id may leave out the date that the
// catalog's ends in, as claude-haiku-4-5 does of claude-haiku-4-5-20251001,
// provided that only one date is known.
//
// Lookup is safe for concurrent use. The result is the caller's to change.
func Lookup(provider, modelID string) (model.Info, bool) {
	all := of(provider)
	i, ok := slices.BinarySearchFunc(all, modelID, func(e entry, id string) int { return cmp.Compare(e.ID, id) })
	if !ok {
		if i, ok = dated(all, i, modelID); !ok {
			return model.Info{}, false
		}
	}
	return all[i].info(), true
}

// dated finds the one entry of all, from index from on, whose id is id and a
// date. Two are as good as none: their prices may differ.
func dated(all []entry, from int, id string) (int, bool) {
	found := -1
	for i := from; i < len(all) && strings.HasPrefix(all[i].ID, id); i++ {
		date, ok := strings.CutPrefix(all[i].ID[len(id):], "-")
		if !ok || len(date) != len("20060102") || strings.Trim(date, "0123456789") != "" {
			continue
		}
		if found >= 0 {
			return 0, false
		}
		found = i
	}
	return found, found >= 0
}

// Providers returns the names of the providers that have models in the catalog,
// sorted. It is safe for concurrent use.
func Providers() []string {
	var names []string
	for _, e := range entries() {
		if len(names) == 0 || names[len(names)-1] != e.Provider {
			names = append(names, e.Provider)
		}
	}
	return names
}

// Models yields the models of a provider, sorted by id; none when the catalog
// does not have the provider. It is safe for concurrent use.
func Models(provider string) iter.Seq2[string, model.Info] {
	return func(yield func(string, model.Info) bool) {
		for _, e := range of(provider) {
			if !yield(e.ID, e.info()) {
				return
			}
		}
	}
}

// of returns the entries of a provider.
func of(provider string) []entry {
	all := entries()
	from, ok := slices.BinarySearchFunc(all, provider, func(e entry, p string) int { return cmp.Compare(e.Provider, p) })
	if !ok {
		return nil
	}
	n, _ := slices.BinarySearchFunc(all[from:], provider, func(e entry, p string) int {
		if e.Provider == p {
			return -1
		}
		return 1
	})
	return all[from : from+n]
}

func (e *entry) info() model.Info {
	return model.Info{
		Name: cmp.Or(e.Name, e.ID), ContextWindow: e.Window, MaxOutput: e.MaxOutput,
		Reasoning: e.Reasoning, Levels: slices.Clone(e.Levels), Images: e.Images, DeferredTools: e.Deferred, Known: true,
		Cost: model.Cost{Input: e.Input, Output: e.Output, CacheRead: e.CacheRead, CacheWrite: e.CacheWrite, UpTo: e.UpTo},
	}
}
