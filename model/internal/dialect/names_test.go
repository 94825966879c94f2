package dialect_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/dialect"
)

var nameRules = map[string]struct {
	rule dialect.NameRule
	form *regexp.Regexp
}{
	"anthropic": {dialect.AnthropicNames(), regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)},
	"openai":    {dialect.OpenAINames(), regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)},
	"gemini":    {dialect.GeminiNames(), regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)},
	"bedrock":   {dialect.BedrockNames(), regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)},
}

var oddNames = []string{
	"", " ", "github.search", "github/search", "github search", "9lives", "-x", "größe", "a.b", "a/b", "a:b", "a_b", "ok", "ok-2",
	"\xff", strings.Repeat("long.", 100), strings.Repeat("long.", 100) + "er", strings.Repeat("x", 65), strings.Repeat("x", 129),
}

func tools(names ...string) []model.Tool {
	var all []model.Tool
	for _, n := range names {
		all = append(all, model.Tool{Name: n})
	}
	return all
}

func TestNames(t *testing.T) {
	for provider, p := range nameRules {
		all := p.rule.Names(tools(oddNames...), nil)
		aliases := map[string]string{}
		for _, name := range oddNames {
			alias := all.Alias(name)
			switch {
			case !p.form.MatchString(alias):
				t.Errorf("%s: %q is called %q, which is not accepted", provider, name, alias)
			case p.form.MatchString(name) && alias != name:
				t.Errorf("%s: %q is called %q without need", provider, name, alias)
			case aliases[alias] != "" && aliases[alias] != name:
				t.Errorf("%s: %q and %q are both called %q", provider, name, aliases[alias], alias)
			case all.Name(alias) != name:
				t.Errorf("%s: %q is called %q, which is %q", provider, name, alias, all.Name(alias))
			}
			aliases[alias] = name
			if alone := p.rule.Names(tools(name), nil).Alias(name); alone != alias {
				t.Errorf("%s: %q is called %q, and %q when it is alone", provider, name, alias, alone)
			}
		}
		if got := all.Name("made_up"); got != "made_up" {
			t.Errorf("%s: a name that is no alias becomes %q", provider, got)
		}
	}
}

// A tool that has the very alias of another one keeps its name.
func TestNamesCollide(t *testing.T) {
	rule := dialect.OpenAINames()
	taken := rule.Names(tools("a.b"), nil).Alias("a.b")
	for _, order := range [][]string{{"a.b", taken}, {taken, "a.b"}} {
		n := rule.Names(tools(order...), nil)
		if n.Alias(taken) != taken || n.Alias("a.b") == taken || n.Name(n.Alias("a.b")) != "a.b" || n.Name(taken) != taken {
			t.Errorf("%q: called %q and %q", order, n.Alias(order[0]), n.Alias(order[1]))
		}
	}
}

// A tool that is no longer offered is called in the history by the same name as
// when it was, and the model may call it so again.
func TestNamesOfTheHistory(t *testing.T) {
	rule := dialect.OpenAINames()
	history := []model.Message{{Role: model.RoleAssistant, Blocks: []model.Block{{Kind: model.ToolCall, Name: "gone.tool"}}}}
	before := rule.Names(tools("gone.tool"), nil).Alias("gone.tool")
	n := rule.Names(tools("other"), history)
	if n.Alias("gone.tool") != before || n.Name(before) != "gone.tool" {
		t.Errorf("called %q, was %q; %q is %q", n.Alias("gone.tool"), before, before, n.Name(before))
	}
}

func ExampleNameRule_Names() {
	names := dialect.OpenAINames().Names([]model.Tool{{Name: "lookup_order"}, {Name: "github.search"}}, nil)
	fmt.Println(names.Alias("lookup_order"), names.Alias("github.search"))
	fmt.Println(names.Name(names.Alias("github.search")))
	// Output:
	// lookup_order github_search_6d8eba8b
	// github.search
}

func ExampleDialect_Convert() {
	r := dialect.GeminiJSON().Convert([]byte(`{"type":"object","properties":{"site":{"type":"string","format":"uri"}}}`))
	fmt.Println(string(r.Schema))
	for _, l := range r.Losses {
		fmt.Println(l.Path, "-", l.Text)
	}
	// Output:
	// {"type":"object","properties":{"site":{"type":"string","description":"Must also fit the JSON Schema {\"format\":\"uri\"}"}}}
	// /properties/site/format - the format uri is not understood; it is put in words
}
