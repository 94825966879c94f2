package main

import (
	"regexp"

	"charm.land/catwalk/pkg/catwalk"
)

// correct mends what is wrong in the source and documented by the maker of the
// model. Each line says where. What is merely doubtful becomes unknown.
func correct(e *entry) {
	e.Levels = effortLevels(e)
	e.UpTo = priceBound(e)
	switch e.Provider + "/" + e.ID {
	// Anthropic's page of each model has a window of 1M, at one price.
	case "anthropic/claude-opus-4-6", "anthropic/claude-sonnet-4-6":
		e.Window = 1_000_000
	// Anthropic has kept the first price, 2 and 10. Nothing says that others
	// have not.
	case "amazon-bedrock/us.anthropic.claude-sonnet-5", "bedrock-europe/eu.anthropic.claude-sonnet-5":
		e.unpriced()
	// Anthropic has halved the price of reading from the cache, as above.
	case "amazon-bedrock/us.anthropic.claude-sonnet-5-5", "bedrock-europe/eu.anthropic.claude-sonnet-5-5":
		e.CacheRead = 0
	// Moonshot's page about the effort. It cannot be turned off.
	case "moonshot/kimi-k3":
		e.Levels = []string{"low", "high", "max"}
	// A model that does not reason, by its card; Groq refuses an effort for it.
	case "groq/moonshotai/kimi-k2-instruct-0905":
		e.Reasoning, e.Levels = false, nil
	}
}

func (e *entry) unpriced() { e.Input, e.Output, e.CacheRead, e.CacheWrite, e.UpTo = 0, 0, 0, 0, 0 }

// added are models that are missing in the source.
var added = []entry{
	{ // Anthropic's table of models and its price list
		Provider: "anthropic", ID: "claude-haiku-5-5", Name: "Claude Haiku 5.5", Window: 1_000_000, MaxOutput: 128_000,
		Reasoning: true, Levels: []string{"low", "medium", "high"}, Images: true, Input: 0.1, Output: 0.5, CacheRead: 0.01, CacheWrite: 0.125, UpTo: 100_000,
	},
}

var gptID = regexp.MustCompile(`^gpt-5(\.\d)?(-codex|-codex-max|-codex-mini|-mini|-nano|-pro)?$`)

// effortLevels are the levels that OpenAI's models have by its API reference and
// by what the API says when it refuses another, which is not what the source
// has for all of them: a level that is listed and not there fails requests.
func effortLevels(e *entry) []string {
	m := gptID.FindStringSubmatch(e.ID)
	if m == nil || (e.Provider != "openai" && e.Provider != "azure-openai") {
		return e.Levels
	}
	switch m[1] + m[2] {
	case "", "-mini", "-nano":
		return []string{"minimal", "low", "medium", "high"}
	case "-codex", ".1-codex", ".1-codex-mini":
		return []string{"low", "medium", "high"}
	case ".1":
		return []string{"off", "low", "medium", "high"}
	case ".2", ".4", ".5":
		return []string{"off", "low", "medium", "high", "xhigh"}
	case ".4-pro", ".5-pro":
		return []string{"medium", "high", "xhigh"}
	case ".1-codex-max", ".2-codex", ".3-codex":
		return []string{"low", "medium", "high", "xhigh"}
	}
	return e.Levels
}

// bounds are the sizes of a prompt above which a model's maker charges more per
// token, by its price list. The source has the price of short prompts only.
var bounds = []struct {
	id   *regexp.Regexp
	upTo int64
}{
	{regexp.MustCompile(`claude-haiku-5[-.]5`), 100_000},
	{regexp.MustCompile(`claude-sonnet-4([-.]5)?(-\d{8}.*)?$`), 200_000},
	{regexp.MustCompile(`gemini-\d(\.\d)?-pro`), 200_000},
	{regexp.MustCompile(`gpt-(5\.[4-9]|[6-9])`), 272_000},
	{regexp.MustCompile(`grok-`), 128_000},
}

// tiered are the providers that sell by the size of the prompt throughout, and
// up to where their lowest price holds.
var tiered = map[string]int64{
	string(catwalk.InferenceProviderAlibabaSingapore): 32_000,
	string(catwalk.InferenceProviderAlibabaUS):        32_000,
}

// priceBound returns up to which size of a prompt the prices of e hold, zero if
// that is the whole window.
func priceBound(e *entry) int64 {
	if e.Input == 0 {
		return 0
	}
	upTo := tiered[e.Provider]
	for _, b := range bounds {
		if upTo == 0 && b.id.MatchString(e.ID) {
			upTo = b.upTo
		}
	}
	if e.Window > 0 && upTo >= e.Window {
		return 0
	}
	return upTo
}
