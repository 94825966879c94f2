package rules

import (
	"regexp"
	"slices"
	"strings"
)

// ChatCompletions judges a request of OpenAI's Chat Completions, and of the many
// servers that offer the same.
func ChatCompletions(body []byte) []string {
	j := chat{ids: map[string]bool{}}
	o := j.read(body)
	j.must(str(o["model"]) != "", "model", "missing")
	j.limits(o, "max_tokens", "max_completion_tokens")
	j.cacheKey(o)
	j.effort(o["reasoning_effort"], "reasoning_effort")
	j.tools(o["tools"])
	j.choice(o["tool_choice"], o["tools"], "tool_choice", "none", "auto", "required", "function", "allowed_tools")
	messages := j.objects(o["messages"], "messages")
	j.must(len(messages) > 0, "messages", "none")
	j.must(strings.Count(string(body), `"cache_control":{`) <= 4, "messages", "more than 4 marks of the cache")
	for i, m := range messages {
		j.message(m, index("messages", i))
	}
	j.close("the end")
	if n := len(messages); n > 0 {
		j.must(str(messages[n-1]["role"]) != "assistant", "messages", "the last message is the assistant's")
	}
	return j.problems
}

type chat struct {
	judge
	waiting []string        // calls of the message before that have no result yet
	ids     map[string]bool // of the calls of the message before
}

// limits checks that at most one of the limits of an answer is set.
func (j *judge) limits(o object, names ...string) {
	n := 0
	for _, name := range names {
		if o[name] == nil {
			continue
		}
		n++
		v, ok := integer(o[name])
		j.must(ok && v >= 1, name, "%v is no limit", o[name])
	}
	j.must(n <= 1, strings.Join(names, ", "), "both are set")
}

func (j *judge) cacheKey(o object) {
	if key, sent := o["prompt_cache_key"]; sent {
		j.must(str(key) != "" && len(str(key)) <= 64, "prompt_cache_key", "%q is not of 1 to 64 characters", key)
	}
}

func (j *judge) effort(v any, at string) {
	j.must(v == nil || slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, str(v)), at, "%q is not known", v)
}

func (j *chat) tools(v any) {
	if v == nil {
		return
	}
	var names []string
	tools := j.objects(v, "tools")
	j.must(len(tools) > 0, "tools", "an empty list")
	for i, t := range tools {
		at := index("tools", i)
		j.must(str(t["type"]) == "function", at, "the type %q is not known", t["type"])
		f, _ := t["function"].(object)
		names = append(names, str(f["name"]))
		j.parameters(f["parameters"], f["strict"], at+".function")
	}
	j.toolNames(names, "tools", plainName)
}

// parameters checks the schema of a tool, which must be closed where it is strict.
func (j *judge) parameters(v, strict any, at string) {
	j.schema(v, at+".parameters", "anyOf", "oneOf", "allOf", "enum", "not")
	if o, ok := v.(object); ok {
		_, properties := o["properties"].(object)
		j.must(properties, at+".parameters", "an object without properties")
	}
	j.arrays(v, at+".parameters")
	if strict == true {
		j.closed(v, at+".parameters")
	}
}

// arrays checks that each array says what it holds.
func (j *judge) arrays(v any, at string) {
	j.walk(v, at, func(o object, at string) {
		if t, ok := o["type"].(string); ok && t == "array" {
			j.must(o["items"] != nil, at, "an array without items")
		}
	})
}

// closed checks that a schema can be enforced.
func (j *judge) closed(v any, at string) {
	j.walk(v, at, func(o object, at string) {
		for _, name := range []string{"oneOf", "allOf", "not", "if", "patternProperties", "dependentRequired", "default", "minLength", "maxLength"} {
			j.must(o[name] == nil, at+"."+name, "cannot be enforced")
		}
		p, ok := o["properties"].(object)
		if !ok {
			return
		}
		j.must(o["additionalProperties"] == false, at, "an enforced object is not closed")
		required, _ := o["required"].(list)
		for name := range p {
			j.must(slices.Contains(required, any(name)), at, "the property %q of an enforced object is not required", name)
		}
	})
}

// walk calls f for each schema within a schema.
func (j *judge) walk(v any, at string, f func(o object, at string)) {
	switch v := v.(type) {
	case object:
		f(v, at)
		for name, item := range v {
			switch name {
			case "properties", "$defs", "patternProperties", "dependentSchemas":
				named, _ := item.(object)
				for key, s := range named {
					j.walk(s, at+"."+name+"."+key, f)
				}
			case "enum", "const", "default", "examples", "required", "type", "description":
			default:
				j.walk(item, at+"."+name, f)
			}
		}
	case list:
		for i, item := range v {
			j.walk(item, index(at, i), f)
		}
	}
}

func (j *chat) message(m object, at string) {
	role := str(m["role"])
	if role == "tool" {
		id := str(m["tool_call_id"])
		if j.must(j.ids[id], at, "a result of %q, which the message before does not call", id) {
			i := slices.Index(j.waiting, id)
			if j.must(i >= 0, at, "a second result of %q", id) {
				j.waiting = slices.Delete(j.waiting, i, i+1)
			}
		}
		j.must(!blank(said(m["content"])), at, "a result without a word")
		return
	}
	j.close(at)
	switch role {
	case "system", "developer":
		j.must(!blank(said(m["content"])), at, "blank")
	case "user":
		j.user(m["content"], at)
	case "assistant":
		j.assistant(m, at)
	default:
		j.bad(at, "the role %q is not known", role)
	}
}

// said returns a text, which may come as a list of one.
func said(content any) any {
	if parts, ok := content.(list); ok && len(parts) == 1 {
		p, _ := parts[0].(object)
		return p["text"]
	}
	return content
}

// close reports calls that have no result where the results end.
func (j *chat) close(at string) {
	for _, id := range j.waiting {
		j.bad(at, "no result of the call %q", id)
	}
	j.waiting, j.ids = nil, map[string]bool{}
}

func (j *chat) user(content any, at string) {
	if s, ok := content.(string); ok {
		j.must(!blank(s), at, "blank")
		return
	}
	parts := j.objects(content, at+".content")
	j.must(len(parts) > 0, at, "no content")
	for i, p := range parts {
		at := index(at+".content", i)
		switch str(p["type"]) {
		case "text":
			j.must(!blank(p["text"]), at, "blank")
		case "image_url":
			u, _ := p["image_url"].(object)
			j.dataURL(str(u["url"]), at)
		default:
			j.bad(at, "a user cannot say a part of type %q", p["type"])
		}
	}
}

var dataURL = regexp.MustCompile(`^data:([a-z/+.-]+);base64,(.*)$`)

func (j *judge) dataURL(url, at string) {
	parts := dataURL.FindStringSubmatch(url)
	if j.must(parts != nil, at, "no image in a data URL") {
		j.image(at, parts[1], parts[2], imageTypes)
	}
}

func (j *chat) assistant(m object, at string) {
	calls, called := m["tool_calls"]
	switch content := m["content"].(type) {
	case nil:
		j.must(called, at, "an answer without content and calls")
	case string:
		j.must(!blank(content) || called, at, "blank")
	default:
		j.bad(at, "the content is no text")
	}
	if !called {
		return
	}
	all := j.objects(calls, at+".tool_calls")
	j.must(len(all) > 0, at+".tool_calls", "an empty list")
	for i, c := range all {
		at := index(at+".tool_calls", i)
		id := str(c["id"])
		j.must(id != "" && len(id) <= 40, at, "the id %q is not of 1 to 40 characters", id)
		j.must(!j.ids[id], at, "a second call has the id %q", id)
		j.must(str(c["type"]) == "function", at, "the type %q is not known", c["type"])
		f, _ := c["function"].(object)
		j.must(plainName.MatchString(str(f["name"])), at, "the name %q is not taken", f["name"])
		j.argumentsText(f["arguments"], at)
		j.ids[id] = true
		j.waiting = append(j.waiting, id)
	}
}
