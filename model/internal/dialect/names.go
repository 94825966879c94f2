package dialect

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/flue-go/flue/model"
)

// A NameRule is what a provider accepts as the name of a tool: letters, digits
// and '_', and what the rule allows beside them.
type NameRule struct {
	Max    int    // bytes
	Others string // further characters
	Letter bool   // a letter or '_' comes first
}

// AnthropicNames is the rule of the Messages API.
func AnthropicNames() NameRule { return NameRule{Max: 128, Others: "-"} }

// OpenAINames is the rule of Chat Completions and Responses.
func OpenAINames() NameRule { return NameRule{Max: 64, Others: "-"} }

// GeminiNames is the rule of Gemini and Vertex.
func GeminiNames() NameRule { return NameRule{Max: 64, Others: "-.:", Letter: true} }

// BedrockNames is the rule of Converse, for all of its models.
func BedrockNames() NameRule { return NameRule{Max: 64, Others: "-", Letter: true} }

func (r NameRule) allows(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || strings.ContainsRune(r.Others, c)
}

func (r NameRule) first(c byte) bool {
	return !r.Letter || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
}

func (r NameRule) accepts(name string) bool {
	return name != "" && len(name) <= r.Max && r.first(name[0]) && strings.IndexFunc(name, func(c rune) bool { return !r.allows(c) }) < 0
}

// alias returns the try-th name that stands for one that is not accepted: what
// can be kept of it, and a digest that tells apart what looks alike then.
func (r NameRule) alias(name string, try int) string {
	seed := name
	if try > 0 {
		seed += "\x00" + strconv.Itoa(try)
	}
	sum := sha256.Sum256([]byte(seed))
	digest := "_" + hex.EncodeToString(sum[:4])
	kept := strings.Map(func(c rune) rune {
		if r.allows(c) {
			return c
		}
		return '_'
	}, name)
	if kept == "" {
		kept = "unnamed"
	}
	if !r.first(kept[0]) {
		kept = "_" + kept
	}
	return kept[:min(len(kept), r.Max-len(digest))] + digest
}

// Names are the names of the tools of a request, as a provider accepts them. The
// alias of a tool depends on its own name alone, unless another tool has that
// very name, so that it is the same in every request of a conversation.
type Names struct {
	rule    NameRule
	aliases map[string]string // by name
	names   map[string]string // by alias
}

// Names returns the names of the tools offered and of those that were called.
func (r NameRule) Names(tools []model.Tool, messages []model.Message) *Names {
	n := &Names{rule: r, aliases: map[string]string{}, names: map[string]string{}}
	var odd []string
	add := func(name string) {
		if _, known := n.aliases[name]; known {
			return
		}
		if r.accepts(name) {
			n.aliases[name], n.names[name] = name, name
			return
		}
		n.aliases[name] = ""
		odd = append(odd, name)
	}
	for _, t := range tools {
		add(t.Name)
	}
	for _, m := range messages {
		for _, b := range m.Blocks {
			if b.Kind == model.ToolCall {
				add(b.Name)
			}
		}
	}
	for _, name := range odd {
		alias := r.alias(name, 0)
		for try := 1; n.names[alias] != "" && try < 100; try++ {
			alias = r.alias(name, try)
		}
		n.aliases[name], n.names[alias] = alias, name
	}
	return n
}

// Alias returns what a tool is called in the request.
func (n *Names) Alias(name string) string {
	if alias, ok := n.aliases[name]; ok {
		return alias
	}
	if n.rule.accepts(name) {
		return name
	}
	return n.rule.alias(name, 0)
}

// Name returns the tool that an answer calls by its alias. What is no alias is
// returned itself.
func (n *Names) Name(alias string) string {
	if name, ok := n.names[alias]; ok {
		return name
	}
	return alias
}
