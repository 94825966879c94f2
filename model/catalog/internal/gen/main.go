// Command gen writes the data of package catalog from Charm's catwalk, whose
// version go.mod names. It is a module of its own so that catwalk is not a
// requirement of programs.
//
//	go generate ./model/catalog
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"charm.land/catwalk/pkg/catwalk"
	"charm.land/catwalk/pkg/embedded"
)

// A record is one model in the data file; package catalog reads the same form.
type record struct {
	Provider   string   `json:"p"`
	ID         string   `json:"id"`
	Name       string   `json:"name,omitempty"`
	Window     int64    `json:"window,omitempty"`
	Output     int64    `json:"out,omitempty"`
	Reasoning  bool     `json:"reason,omitempty"`
	Levels     []string `json:"levels,omitempty"`
	Images     bool     `json:"images,omitempty"`
	Input      float64  `json:"cin,omitempty"`
	OutputCost float64  `json:"cout,omitempty"`
	CacheRead  float64  `json:"cread,omitempty"`
	CacheWrite float64  `json:"cwrite,omitempty"`
}

// names maps catwalk's provider ids to ours where they differ.
var names = map[catwalk.InferenceProvider]string{
	catwalk.InferenceProviderGemini:   "google",
	catwalk.InferenceProviderVertexAI: "google-vertex",
	catwalk.InferenceProviderAzure:    "azure-openai",
	catwalk.InferenceProviderBedrock:  "amazon-bedrock",
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	var records []record
	for _, p := range embedded.GetAll() {
		name := names[p.ID]
		if name == "" {
			name = string(p.ID)
		}
		for _, m := range p.Models {
			records = append(records, convert(name, m))
		}
	}
	slices.SortFunc(records, func(a, b record) int {
		if c := strings.Compare(a.Provider, b.Provider); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	records = slices.CompactFunc(records, func(a, b record) bool { return a.Provider == b.Provider && a.ID == b.ID })
	data, err := json.Marshal(records)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// convert keeps what is known. Catwalk writes 0 for what it does not know, and
// names the price of writing to the cache that of cached input, the price of
// reading from it that of cached output.
func convert(provider string, m catwalk.Model) record {
	r := record{
		Provider: provider, ID: m.ID, Window: m.ContextWindow, Output: m.DefaultMaxTokens, Reasoning: m.CanReason,
		Levels: m.ReasoningLevels, Images: m.SupportsImages,
		Input: m.CostPer1MIn, OutputCost: m.CostPer1MOut, CacheWrite: m.CostPer1MInCached, CacheRead: m.CostPer1MOutCached,
	}
	if m.Name != m.ID {
		r.Name = m.Name
	}
	for _, c := range []*float64{&r.Input, &r.OutputCost, &r.CacheWrite, &r.CacheRead} {
		*c = max(*c, 0) // -1 stands for a price that varies
	}
	return r
}
