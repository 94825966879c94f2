package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/flue-go/flue/internal/near"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/catalog"
	"github.com/flue-go/flue/model/providers"
)

func (p *program) modelsCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "models [flags] [provider]",
		Short: "Show the model providers, or what is known of the models of one",
		Long: `Show the model providers, or what is known of the models of one.

Without arguments it lists the providers: whether each is set up, and which
variable would do that. With the name of a provider it lists those of its models
that the catalog knows, with their prices in US dollars per million tokens. A
"-" is what is not known. Other models of the provider work, too.

It makes no request and needs no key. Providers that the program sets up when it
starts are not shown.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := loadEnv(p.envFile, c.Flags().Changed("env-file")); err != nil {
				return err
			}
			m, err := newModels(&p.app, os.Environ())
			if err != nil {
				return err
			}
			out := bufio.NewWriter(p.out)
			if len(args) == 0 {
				err = m.listProviders(out, asJSON)
			} else {
				err = m.listModels(out, args[0], asJSON)
			}
			return errors.Join(err, out.Flush())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON: one object for each provider or model")
	return c
}

// A listedProvider is a line of the list of providers.
type listedProvider struct {
	Name   string `json:"provider"`
	Title  string `json:"title,omitempty"`
	API    string `json:"api,omitempty"`
	Ready  bool   `json:"ready"`
	Needs  string `json:"needs,omitempty"` // what it takes to use it
	Models int    `json:"models"`          // that the catalog knows
}

func (m *models) listProviders(w io.Writer, asJSON bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	enc := json.NewEncoder(w)
	if !asJSON {
		fmt.Fprintln(table, "PROVIDER\tREADY\tKNOWN MODELS\tNEEDS")
	}
	for _, name := range slices.Sorted(maps.Keys(m.providers)) {
		l := m.listed(name)
		if asJSON {
			if err := enc.Encode(l); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", line(l.Name), either(l.Ready, "yes", "no"), number(l.Models), cmp.Or(line(l.Needs), "-"))
	}
	return table.Flush()
}

// listed looks at a provider. One that is local is ready as far as anybody knows.
func (m *models) listed(name string) listedProvider {
	s, _ := providers.Lookup(name)
	l := listedProvider{Name: name, Title: s.Title, API: string(s.API), Ready: true}
	for range catalog.Models(name) {
		l.Models++
	}
	u, missing := m.missing[name]
	if !missing {
		u, missing = m.providers[name].(*model.Unavailable)
	}
	switch c, ok := m.providers[name].(model.Checker); {
	case missing:
		l.Ready, l.Needs = false, u.Needs()
	case ok && c.Check("") != nil:
		l.Ready, l.Needs = false, c.Check("").Error()
	case s.Local:
		l.Needs = "a server that runs"
	}
	return l
}

// A listedModel is a line of the list of models. What is not known is left out.
type listedModel struct {
	Model         string           `json:"model"` // the specifier
	Name          string           `json:"name,omitempty"`
	ContextWindow int              `json:"contextWindow,omitempty"`
	MaxOutput     int              `json:"maxOutput,omitempty"`
	Reasoning     bool             `json:"reasoning,omitempty"`
	Levels        []model.Thinking `json:"levels,omitempty"`
	Images        bool             `json:"images,omitempty"`
	Cost          *listedCost      `json:"cost,omitempty"`
}

// A listedCost is the price of a million tokens in US dollars.
type listedCost struct {
	Input      float64 `json:"input,omitempty"`
	Output     float64 `json:"output,omitempty"`
	CacheRead  float64 `json:"cacheRead,omitempty"`
	CacheWrite float64 `json:"cacheWrite,omitempty"`
	UpTo       int     `json:"upToPromptTokens,omitempty"`
	Free       bool    `json:"free,omitempty"`
}

func (m *models) listModels(w io.Writer, provider string, asJSON bool) error {
	if m.providers[provider] == nil {
		names := slices.Sorted(maps.Keys(m.providers))
		return fmt.Errorf("there is no provider %q%s", provider, cmp.Or(near.Hint(provider, names), "; there is "+strings.Join(names, ", ")))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	enc := json.NewEncoder(w)
	if !asJSON {
		fmt.Fprintln(table, "MODEL\tCONTEXT\tOUTPUT\t$ IN\t$ OUT\t$ CACHE READ\t$ CACHE WRITE\tPROMPTS TO\tIMAGES\tTHINKING")
	}
	some := false
	for id := range catalog.Models(provider) {
		info, _ := m.catalog(provider, id)
		some = true
		if asJSON {
			if err := enc.Encode(asListed(provider+"/"+id, info)); err != nil {
				return err
			}
			continue
		}
		c := info.Cost
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", provider+"/"+id, number(info.ContextWindow), number(info.MaxOutput),
			price(c, c.Input), price(c, c.Output), price(c, c.CacheRead), price(c, c.CacheWrite), number(c.UpTo), either(info.Images, "yes", "-"), thinking(info))
	}
	if !some && !asJSON {
		fmt.Fprintf(table, "The catalog knows no models of %s. They work all the same, as %s/<id of the model>.\n", provider, provider)
	}
	return table.Flush()
}

func asListed(specifier string, info model.Info) listedModel {
	l := listedModel{
		Model: specifier, Name: info.Name, ContextWindow: info.ContextWindow, MaxOutput: info.MaxOutput,
		Reasoning: info.Reasoning, Levels: info.Levels, Images: info.Images,
	}
	if c := info.Cost; c != (model.Cost{}) {
		l.Cost = &listedCost{Input: c.Input, Output: c.Output, CacheRead: c.CacheRead, CacheWrite: c.CacheWrite, UpTo: c.UpTo, Free: c.Free}
	}
	return l
}

// number is a count, "-" if it is not known.
func number(n int) string {
	if n <= 0 {
		return "-"
	}
	return thousands(n)
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func price(c model.Cost, dollars float64) string {
	switch {
	case c.Free:
		return "0"
	case dollars == 0:
		return "-"
	}
	return fmt.Sprint(dollars)
}

func thinking(info model.Info) string {
	var levels []string
	for _, l := range info.Levels {
		levels = append(levels, string(l))
	}
	return cmp.Or(strings.Join(levels, " "), either(info.Reasoning, "yes", "-"))
}
