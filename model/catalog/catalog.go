// Package catalog has the data of well-known models: context window, output
// limit, price, reasoning levels, image input.
//
// The data is generated from catwalk (https://github.com/charmbracelet/catwalk,
// MIT licence, see LICENSE.catwalk) by go generate. It is as old as the release
// that contains it. A model that is not in it works all the same; what is not
// known of a model is zero, never a guess.
package catalog

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/flue-go/flue/model"
)

//go:generate go -C internal/gen run . ../../models.json.gz

//go:embed models.json.gz
var compressed []byte

type record struct {
	Provider   string   `json:"p"`
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Window     int      `json:"window"`
	Output     int      `json:"out"`
	Reasoning  bool     `json:"reason"`
	Levels     []string `json:"levels"`
	Images     bool     `json:"images"`
	Input      float64  `json:"cin"`
	OutputCost float64  `json:"cout"`
	CacheRead  float64  `json:"cread"`
	CacheWrite float64  `json:"cwrite"`
}

// records are the models sorted by provider and id. They are read when first
// asked for, because most programs ask for one or two.
var records = sync.OnceValue(func() []record {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		panic("catalog: the generated data is damaged: " + err.Error())
	}
	var rs []record
	if err := json.NewDecoder(z).Decode(&rs); err != nil {
		panic("catalog: the generated data is damaged: " + err.Error())
	}
	return rs
})

// Lookup returns what is known of a provider's model. The provider is named as
// in a specifier, such as "anthropic"; the id is the model's at that provider.
// It is safe for concurrent use.
func Lookup(provider, id string) (model.Info, bool) {
	rs := records()
	i, ok := slices.BinarySearchFunc(rs, record{Provider: provider, ID: id}, func(a, b record) int {
		if c := strings.Compare(a.Provider, b.Provider); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	if !ok && (i == len(rs) || rs[i].Provider != provider || !dated(rs[i].ID, id)) {
		return model.Info{}, false
	}
	return rs[i].info(), true
}

// dated reports whether full is the id with a date behind it, as in
// claude-haiku-4-5-20251001: providers accept both.
func dated(full, id string) bool {
	date, ok := strings.CutPrefix(full, id+"-")
	return ok && len(date) == len("20060102") && strings.Trim(date, "0123456789") == ""
}

// Providers returns the names of the providers, sorted.
func Providers() []string {
	var names []string
	for _, r := range records() {
		if len(names) == 0 || names[len(names)-1] != r.Provider {
			names = append(names, r.Provider)
		}
	}
	return names
}

// Models returns the models of a provider by id, sorted.
func Models(provider string) iter.Seq2[string, model.Info] {
	return func(yield func(string, model.Info) bool) {
		for _, r := range records() {
			if r.Provider == provider && !yield(r.ID, r.info()) {
				return
			}
		}
	}
}

func (r record) info() model.Info {
	info := model.Info{
		Name: r.Name, ContextWindow: r.Window, MaxOutput: r.Output, Reasoning: r.Reasoning, Images: r.Images,
		Cost: model.Cost{Input: r.Input, Output: r.OutputCost, CacheRead: r.CacheRead, CacheWrite: r.CacheWrite},
	}
	if info.Name == "" {
		info.Name = r.ID
	}
	for _, l := range r.Levels {
		if t := level(l); t != "" && !slices.Contains(info.Levels, t) {
			info.Levels = append(info.Levels, t)
		}
	}
	return info
}

// level is a reasoning level by the name that providers give it.
func level(name string) model.Thinking {
	switch name {
	case "none", "off":
		return model.ThinkingOff
	case "max":
		return model.ThinkingXHigh
	}
	if t := model.Thinking(name); t.Valid() {
		return t
	}
	return ""
}
