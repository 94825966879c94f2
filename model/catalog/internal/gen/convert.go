package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"charm.land/catwalk/pkg/catwalk"
)

// An entry is one model in the data file; package catalog reads the same form.
type entry struct {
	Provider   string   `json:"p"`
	ID         string   `json:"id"`
	Name       string   `json:"name,omitempty"`
	Window     int64    `json:"window,omitempty"`
	MaxOutput  int64    `json:"out,omitempty"`
	Reasoning  bool     `json:"reason,omitempty"`
	Levels     []string `json:"levels,omitempty"`
	Images     bool     `json:"images,omitempty"`
	Deferred   bool     `json:"defer,omitempty"`
	Input      float64  `json:"cin,omitempty"`
	Output     float64  `json:"cout,omitempty"`
	CacheRead  float64  `json:"cread,omitempty"`
	CacheWrite float64  `json:"cwrite,omitempty"`
	UpTo       int64    `json:"upto,omitempty"`
}

// names maps catwalk's provider ids to ours where they differ.
var names = map[catwalk.InferenceProvider]string{
	catwalk.InferenceProviderGemini:   "google",
	catwalk.InferenceProviderVertexAI: "google-vertex",
	catwalk.InferenceProviderAzure:    "azure-openai",
	catwalk.InferenceProviderBedrock:  "amazon-bedrock",
}

// convert returns the models, and more, sorted by provider and id. Two of the same id are
// an error, since nothing says which is right.
func convert(providers []catwalk.Provider, more ...entry) ([]entry, error) {
	entries := slices.Clone(more)
	for _, p := range providers {
		for _, m := range p.Models {
			if elsewhere(p.ID, m.ID) {
				continue
			}
			entries = append(entries, convertModel(p.ID, m))
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.ID, b.ID))
	})
	for i, e := range entries {
		if e.Provider == "" || e.ID == "" {
			return nil, fmt.Errorf("the model %q of the provider %q lacks a name", e.ID, e.Provider)
		}
		if i > 0 && e.Provider == entries[i-1].Provider && e.ID == entries[i-1].ID {
			return nil, fmt.Errorf("the provider %s has two models %s", e.Provider, e.ID)
		}
	}
	return entries, nil
}

func convertModel(p catwalk.InferenceProvider, m catwalk.Model) entry {
	e := entry{
		Provider: cmp.Or(names[p], string(p)), ID: m.ID,
		Window: window(p, m), MaxOutput: maxOutput(p, m),
		Reasoning: m.CanReason, Levels: levels(m), Images: m.SupportsImages,
		Deferred: deferredTools(p, m.ID),
		Input:    price(p, m.CostPer1MIn), Output: price(p, m.CostPer1MOut),
	}
	e.CacheRead, e.CacheWrite = cachePrices(p, m)
	if m.Name != m.ID {
		e.Name = m.Name
	}
	if e.Output > maxRatio*e.Input {
		e.unpriced()
	}
	correct(&e)
	return e
}

// elsewhere reports whether a service offers a model in another API than the one
// that the provider of its name speaks: Vertex AI has Claude in Anthropic's.
func elsewhere(p catwalk.InferenceProvider, id string) bool {
	return p == catwalk.InferenceProviderVertexAI && strings.HasPrefix(id, "claude-")
}

// maxRatio bounds how much more output costs than input. A model whose prices
// are further apart has one of them from another seller.
const maxRatio = 20

// guessed are the context windows that catwalk gives to a provider's models
// when it knows none.
var guessed = map[catwalk.InferenceProvider][]int64{
	catwalk.InferenceProviderXAI: {131_072, 200_000},
	"pioneer":                    {8192},
}

func window(p catwalk.InferenceProvider, m catwalk.Model) int64 {
	unknown := m.ContextWindow < 1000 || m.ContextWindow > 20_000_000 || slices.Contains(guessed[p], m.ContextWindow) ||
		p == catwalk.InferenceProviderOpenCodeZen && m.ContextWindow == 200_000 && m.DefaultMaxTokens == 20_000
	if unknown {
		return 0
	}
	return m.ContextWindow
}

// limits names the providers whose DefaultMaxTokens is the model's limit. It
// need not be: catwalk means by it what a client should ask for, and for many
// providers that is half of the limit, a part of the window or a round number,
// sometimes above the limit. Asking for that cuts answers or is refused.
//
// Where the limits are kept by hand, smaller values than the one here are such
// stand-ins. With 1, all values are the provider's own statements.
var limits = map[catwalk.InferenceProvider]int64{
	catwalk.InferenceProviderAnthropic:     1,
	catwalk.InferenceProviderBedrock:       1,
	catwalk.InferenceProviderBedrockEurope: 1,
	catwalk.InferenceAIHubMix:              1,
	catwalk.InferenceProviderAvian:         1,
	catwalk.InferenceProviderChutes:        1,
	catwalk.InferenceProviderCopilot:       1,
	catwalk.InferenceProviderNeuralwatt:    1,
	catwalk.InferenceProviderOpenCodeGo:    1,
	catwalk.InferenceProviderOpenCodeZen:   1,
	catwalk.InferenceProviderVenice:        1,
	catwalk.InferenceProviderVercel:        1,

	catwalk.InferenceProviderAlibabaSingapore: 65_536,
	catwalk.InferenceProviderAlibabaUS:        65_536,
	catwalk.InferenceProviderAzure:            128_000,
	catwalk.InferenceProviderDeepSeek:         384_000,
	catwalk.InferenceProviderFireworks:        65_536,
	catwalk.InferenceProviderGemini:           65_536,
	catwalk.InferenceProviderMiniMax:          131_072,
	catwalk.InferenceProviderMiniMaxChina:     131_072,
	catwalk.InferenceProviderMoonshot:         131_072,
	catwalk.InferenceProviderOpenAI:           128_000,
	catwalk.InferenceProviderZAI:              131_072,
	catwalk.InferenceProviderZhipu:            131_072,
	catwalk.InferenceProviderZhipuCoding:      131_072,
}

func maxOutput(p catwalk.InferenceProvider, m catwalk.Model) int64 {
	n, least := m.DefaultMaxTokens, limits[p]
	switch {
	case least == 0, n < least:
	case n == m.ContextWindow/10, n == 20_000, n == 50_000: // stand-ins
	case n >= m.ContextWindow: // says nothing beyond the window
	default:
		return n
	}
	return 0
}

// levels are the reasoning levels that a request may name. A level that package
// model has no name for is left out: it must not stand for another that the
// model might refuse.
func levels(m catwalk.Model) []string {
	var ls []string
	for _, l := range m.ReasoningLevels {
		switch l {
		case "none":
			l = "off"
		case "minimal", "low", "medium", "high", "xhigh", "max":
		default:
			continue
		}
		if m.CanReason && !slices.Contains(ls, l) {
			ls = append(ls, l)
		}
	}
	return ls
}

// deferring are the families of Anthropic's models that load a tool where a
// tool result refers to it, with the first version of each, which catwalk says
// nothing of. Anthropic's documentation of tool search has them from version 4
// on and Haiku 4.5 too; @flue/runtime 2.0.3 relies on it from 4.5 on and not at
// all for Haiku. Only what both say is believed: a model that is wrongly listed
// here refuses requests, one that is wrongly missing costs a prompt cache.
var deferring = map[string]int{"opus": 405, "sonnet": 405, "fable": 500, "mythos": 500}

var claudeID = regexp.MustCompile(`^claude-([a-z]+)-(\d+)(?:-(\d{1,2}))?(?:-\d{8})?$`)

// deferredTools reports whether a model can load tools in the middle of a
// conversation. Servers of others that offer the same models may not pass it on.
func deferredTools(p catwalk.InferenceProvider, id string) bool {
	m := claudeID.FindStringSubmatch(id)
	if p != catwalk.InferenceProviderAnthropic || m == nil {
		return false
	}
	first, known := deferring[m[1]]
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3]) // none is zero
	return known && major*100+minor >= first
}

// price is a price in dollars per million tokens, zero when it is not known.
func price(p catwalk.InferenceProvider, dollars float64) float64 {
	switch {
	case !(dollars > 0 && dollars <= 1000): // -1 stands for one that varies
		return 0
	case (p == catwalk.InferenceProviderOpenCodeGo || p == catwalk.InferenceProviderOpenCodeZen) && dollars < 0.1:
		return 0 // rounded to a cent, a price below ten is too far off
	}
	// Some have been through binary fractions: 0.09999999999999999.
	return round(dollars)
}

// round keeps millionths of a dollar.
func round(dollars float64) float64 { return math.Round(dollars*1e6) / 1e6 }

// readFirst names the providers for which catwalk has the two prices of the
// cache the other way round, where that does not show in the prices.
var readFirst = map[catwalk.InferenceProvider]bool{
	catwalk.InferenceProviderMiniMax:      true,
	catwalk.InferenceProviderMiniMaxChina: true,
}

// cachePrices returns the prices of reading from and writing to the cache.
// Catwalk means them by CostPer1MOutCached and CostPer1MInCached, in this
// order, but has them swapped or repeated for many models. They are told apart
// by the rule that reading costs at most half of plain input and writing more; a
// price that does not fit is taken to be unknown. It may be that of keeping a
// cache for an hour.
func cachePrices(p catwalk.InferenceProvider, m catwalk.Model) (read, write float64) {
	in, out := round(m.CostPer1MIn), round(m.CostPer1MOut)
	a, b := price(p, m.CostPer1MOutCached), price(p, m.CostPer1MInCached)
	if readFirst[p] {
		a, b = b, a
	}
	isRead := func(c float64) bool { return c > 0 && c <= in/2 }
	// The price of output stands in the place of either for some.
	isWrite := func(c float64) bool { return in > 0 && c > in && c != out }
	if !isRead(a) && isRead(b) {
		a, b = b, a
	}
	if isRead(a) {
		read = a
	}
	if isWrite(b) {
		write = b
	}
	return read, write
}
