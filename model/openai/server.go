package openai

import (
	"crypto/sha256"
	"net/url"
	"regexp"
	"strings"

	"github.com/flue-go/flue/model"
)

// A Server names a service or a program that offers the Chat Completions API,
// for what it does in its own way; docs/providers.md has the list.
type Server string

// The servers that are known. Those with an address of their own are recognized
// by it.
const (
	ServerByAddress  Server = ""
	ServerStandard   Server = "standard" // nothing is different
	ServerCerebras   Server = "cerebras"
	ServerDeepSeek   Server = "deepseek"
	ServerFireworks  Server = "fireworks"
	ServerGroq       Server = "groq"
	ServerLMStudio   Server = "lmstudio"
	ServerMistral    Server = "mistral"
	ServerMoonshot   Server = "moonshot"
	ServerOllama     Server = "ollama"
	ServerOpenRouter Server = "openrouter"
	ServerTogether   Server = "together"
	ServerVLLM       Server = "vllm"
	ServerXAI        Server = "xai"
)

// serverAt returns the server at an address.
func serverAt(u *url.URL) Server {
	host := u.Hostname()
	for domain, server := range map[string]Server{
		"api.cerebras.ai": ServerCerebras, "api.deepseek.com": ServerDeepSeek, "api.fireworks.ai": ServerFireworks,
		"api.groq.com": ServerGroq, "api.mistral.ai": ServerMistral, "api.moonshot.ai": ServerMoonshot, "api.moonshot.cn": ServerMoonshot,
		"openrouter.ai": ServerOpenRouter, "api.together.ai": ServerTogether, "api.together.xyz": ServerTogether, "api.x.ai": ServerXAI,
	} {
		if host == domain {
			return server
		}
	}
	if u.Port() == "11434" { // nobody else's
		return ServerOllama
	}
	return ServerStandard
}

// quirks are what a server does in its own way.
type quirks struct {
	maxTokens bool // the limit of an answer is called max_tokens
	replay    bool // wants reasoning back, as reasoning_content

	// levels are the levels of effort that it takes for a model of which none
	// are known.
	levels []model.Thinking
	// effort, if set, decides about a level that was asked for.
	effort func(id string, level model.Thinking) string
	// turnsOff, if set, reports whether the reasoning of a model is turned off
	// by "thinking": {"type": "disabled"}.
	turnsOff func(id string) bool
	// parses, if set, reports whether a model's reasoning has to be asked for
	// apart from its text.
	parses func(id string) bool

	// keyHeader is the header by which a conversation stays where it was read
	// before.
	keyHeader string
	// marks, if set, reports whether a model keeps what it has read only where
	// that is marked.
	marks func(id string) bool

	callID    func(string) string // makes an id one that it takes
	names     bool                // a tool's result has the name of the tool
	bridges   bool                // a user's message must not follow a tool's result
	tellsCost bool                // the usage has what the call cost, in US dollars
}

const bridge = "I have the results of the tools."

func quirksOf(s Server) quirks {
	const off, low, medium, high, xhigh = model.ThinkingOff, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh
	switch s {
	case ServerDeepSeek:
		return quirks{maxTokens: true, replay: true, turnsOff: func(string) bool { return true }}
	case ServerFireworks:
		return quirks{maxTokens: true, levels: []model.Thinking{off, low, medium, high}, keyHeader: "X-Session-Affinity"}
	case ServerGroq:
		return quirks{effort: groqEffort, parses: isQwen}
	case ServerMistral:
		return quirks{maxTokens: true, levels: []model.Thinking{off, high}, callID: mistralID, names: true, bridges: true}
	case ServerMoonshot:
		return quirks{maxTokens: true, replay: true, turnsOff: kimiTurnsOff}
	case ServerOllama:
		return quirks{maxTokens: true, levels: []model.Thinking{off, low, medium, high}}
	case ServerOpenRouter:
		return quirks{levels: []model.Thinking{off, model.ThinkingMinimal, low, medium, high, xhigh, model.ThinkingMax}, tellsCost: true, keyHeader: "X-Session-Id", marks: isClaude}
	case ServerXAI:
		return quirks{keyHeader: "X-Grok-Conv-Id"}
	case ServerLMStudio, ServerTogether:
		return quirks{maxTokens: true}
	}
	return quirks{}
}

func isQwen(id string) bool { return strings.Contains(strings.ToLower(id), "qwen") }

// groqEffort is what Groq takes: three levels for OpenAI's open models, on and
// off for Qwen, and nothing for others, whose requests it refuses with one.
func groqEffort(id string, level model.Thinking) string {
	switch {
	case level == model.ThinkingDefault:
		return ""
	case isQwen(id) && level == model.ThinkingOff:
		return "none"
	case isQwen(id):
		return "default"
	case !strings.Contains(id, "gpt-oss"):
		return ""
	case level == model.ThinkingOff, level == model.ThinkingMinimal:
		return "low"
	case level == model.ThinkingXHigh, level == model.ThinkingMax:
		return "high"
	}
	return string(level)
}

var kimiSwitch = regexp.MustCompile(`^kimi-k2\.[56](?:\D|$)`)

// kimiTurnsOff names the models of Moonshot that can do without reasoning. Those
// before and after them do not, or refuse to be asked.
func kimiTurnsOff(id string) bool { return kimiSwitch.MatchString(id) }

var mistralCall = regexp.MustCompile(`^[A-Za-z0-9]{9}$`)

// mistralID makes the id of a call one that Mistral takes: nine letters or
// digits.
func mistralID(id string) string {
	if mistralCall.MatchString(id) {
		return id
	}
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(id))
	out := make([]byte, 9)
	for i := range out {
		out[i] = digits[int(sum[i])%len(digits)]
	}
	return string(out)
}

// reason asks for reasoning in the way of the server.
func (p *Provider) reason(r *request, req *model.Request) {
	q := &p.quirks
	if q.parses != nil && q.parses(req.Model) {
		r.ReasoningFormat = "parsed"
	}
	switch {
	case req.Thinking == model.ThinkingOff && q.turnsOff != nil && q.turnsOff(req.Model):
		r.Thinking = &thinking{Type: "disabled"}
	case q.effort != nil:
		r.ReasoningEffort = q.effort(req.Model, req.Thinking)
	default:
		r.ReasoningEffort = p.chatEffort(req)
	}
}
