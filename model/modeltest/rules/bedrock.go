package rules

import (
	"slices"
	"strings"
)

// Bedrock judges a request of Converse.
func Bedrock(body []byte) []string {
	j := bedrock{calls: map[string]bool{}}
	o := j.read(body)
	j.only(o, "body", `messages system toolConfig inferenceConfig additionalModelRequestFields additionalModelResponseFieldPaths requestMetadata performanceConfig guardrailConfig promptVariables serviceTier outputConfig`)
	if v, sent := o["system"]; sent {
		for i, b := range j.objects(v, "system") {
			j.must(b["cachePoint"] != nil || !blank(b["text"]), index("system", i), "blank")
		}
	}
	if c, ok := o["inferenceConfig"].(object); ok && c["maxTokens"] != nil {
		n, ok := integer(c["maxTokens"])
		j.must(ok && n >= 1, "inferenceConfig.maxTokens", "%v is no limit", c["maxTokens"])
	}
	j.tools(o["toolConfig"])
	messages := j.objects(o["messages"], "messages")
	if !j.must(len(messages) > 0, "messages", "none") {
		return j.problems
	}
	j.must(str(messages[0]["role"]) == "user", "messages[0]", "a conversation must start with a user message")
	j.must(str(messages[len(messages)-1]["role"]) == "user", "messages", "the last message is not a user's")
	for i, m := range messages {
		j.message(m, index("messages", i))
	}
	return j.problems
}

type bedrock struct {
	judge
	offered bool
	role    string
	waiting []string
	calls   map[string]bool
}

func (j *bedrock) tools(v any) {
	c, ok := v.(object)
	if !ok {
		return
	}
	j.offered = true
	var names []string
	j.only(c, "toolConfig", `tools toolChoice`)
	if choice, ok := c["toolChoice"].(object); ok { // there is none that forbids to call
		j.only(choice, "toolConfig.toolChoice", `auto any tool`)
	}
	tools := j.objects(c["tools"], "toolConfig.tools")
	j.must(len(tools) > 0, "toolConfig.tools", "none")
	for i, t := range tools {
		at := index("toolConfig.tools", i)
		spec, ok := t["toolSpec"].(object)
		if !ok {
			j.must(t["cachePoint"] != nil, at, "no tool")
			continue
		}
		names = append(names, str(spec["name"]))
		if d, sent := spec["description"]; sent {
			j.must(str(d) != "", at, "an empty description")
		}
		in, _ := spec["inputSchema"].(object)
		j.schema(in["json"], at+".inputSchema.json", "anyOf", "oneOf", "allOf", "$ref")
	}
	j.toolNames(names, "toolConfig.tools", plainName)
}

func (j *bedrock) message(m object, at string) {
	role := str(m["role"])
	j.must(role != j.role, at, "two messages of %q in a row", role)
	j.role = role
	blocks := j.objects(m["content"], at+".content")
	j.must(len(blocks) > 0, at, "no content")
	var answered, called []string
	thinking := false // the last block is
	for i, b := range blocks {
		at := index(at+".content", i)
		j.must(len(b) == 1, at, "a block with %d contents", len(b))
		thinking = b["reasoningContent"] != nil
		switch {
		case b["text"] != nil:
			j.must(!blank(b["text"]), at, "blank")
		case b["image"] != nil:
			j.must(role == "user", at, "an image of the assistant")
			img, _ := b["image"].(object)
			src, _ := img["source"].(object)
			j.image(at, "image/"+strings.Replace(str(img["format"]), "jpg", "jpeg", 1), str(src["bytes"]), imageTypes)
		case b["toolUse"] != nil:
			called = append(called, j.use(b["toolUse"], role, at))
		case b["toolResult"] != nil:
			answered = append(answered, j.result(b["toolResult"], role, at))
		case b["reasoningContent"] != nil:
			j.reasoning(b["reasoningContent"], role, at)
		case b["cachePoint"] != nil:
		default:
			j.bad(at, "a block of no known kind")
		}
	}
	j.must(!thinking || role != "assistant", at, "the message ends with reasoning")
	for _, id := range answered {
		j.must(slices.Contains(j.waiting, id), at, "a result of %q, which the message before it does not call", id)
	}
	for _, id := range j.waiting {
		j.must(slices.Contains(answered, id), at, "no result of the call %q", id)
	}
	j.must(len(answered) <= len(j.waiting), at, "more results than calls")
	j.waiting = called
}

func (j *bedrock) use(v any, role, at string) string {
	u, _ := v.(object)
	id := str(u["toolUseId"])
	j.must(role == "assistant", at, "a user calls a tool")
	j.must(j.offered, at, "a call, and no tools are offered")
	j.must(plainName.MatchString(id), at, "the id %q is not taken", id)
	j.must(!j.calls[id], at, "a second call has the id %q", id)
	j.must(plainName.MatchString(str(u["name"])), at, "the name %q is not taken", u["name"])
	_, ok := u["input"].(object)
	j.must(ok, at, "the input is no object")
	j.calls[id] = true
	return id
}

func (j *bedrock) result(v any, role, at string) string {
	r, _ := v.(object)
	j.must(role == "user", at, "a result of the assistant's")
	j.must(j.offered, at, "a result, and no tools are offered")
	content := j.objects(r["content"], at+".content")
	j.must(len(content) > 0, at, "no content")
	for i, c := range content {
		if text, ok := c["text"].(string); ok {
			j.must(!blank(text), index(at, i), "blank")
		}
	}
	if s, sent := r["status"]; sent {
		j.must(s == "success" || s == "error", at, "the status %v is not known", s)
	}
	return str(r["toolUseId"])
}

func (j *bedrock) reasoning(v any, role, at string) {
	r, _ := v.(object)
	j.must(role == "assistant", at, "reasoning of a user")
	text, isText := r["reasoningText"].(object)
	_, redacted := r["redactedContent"].(string)
	j.must(isText != redacted, at, "reasoning that is neither text nor redacted, or both")
	if isText {
		_, ok := text["text"].(string)
		j.must(ok, at, "reasoning without text")
	}
}
