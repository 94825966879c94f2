package rules

import "slices"

// Anthropic judges a request of the Messages API.
func Anthropic(body []byte) []string {
	j := anthropic{calls: map[string]bool{}}
	o := j.read(body)
	j.only(o, "body", `model max_tokens system messages tools tool_choice thinking output_config stream metadata stop_sequences temperature top_p top_k service_tier`)
	j.must(str(o["model"]) != "", "model", "missing")
	limit, ok := integer(o["max_tokens"])
	j.must(ok && limit >= 1, "max_tokens", "%v is no limit", o["max_tokens"])
	j.system(o["system"])
	j.tools(o)
	j.thinking(o, limit)
	j.messages(o)
	j.must(j.marks <= 4, "cache_control", "%d marks, more than 4", j.marks)
	return j.problems
}

type anthropic struct {
	judge
	marks    int             // of the cache
	calls    map[string]bool // ids of all calls
	declared map[string]bool // names of tools
	budget   bool            // thinking is asked for with a budget
}

func (j *anthropic) mark(block object) {
	if block["cache_control"] != nil {
		j.marks++
	}
}

func (j *anthropic) system(v any) {
	switch v := v.(type) {
	case nil:
	case string:
		j.must(!blank(v), "system", "blank")
	default:
		for i, b := range j.objects(v, "system") {
			j.must(str(b["type"]) == "text" && !blank(b["text"]), index("system", i), "no text")
			j.mark(b)
		}
	}
}

func (j *anthropic) tools(o object) {
	v, sent := o["tools"]
	if !sent {
		j.choice(o["tool_choice"], nil, "tool_choice")
		return
	}
	j.choice(o["tool_choice"], v, "tool_choice", "auto", "any", "tool", "none")
	var names []string
	loaded := 0
	for i, t := range j.objects(v, "tools") {
		at := index("tools", i)
		names = append(names, str(t["name"]))
		j.schema(t["input_schema"], at+".input_schema", "anyOf", "oneOf", "allOf")
		j.properties(t["input_schema"], at+".input_schema")
		if t["defer_loading"] == true {
			j.must(t["cache_control"] == nil, at, "a deferred tool is marked for the cache")
		} else {
			loaded++
		}
		j.mark(t)
	}
	j.must(loaded > 0, "tools", "no tool that is not deferred")
	j.declared = j.toolNames(names, "tools", longName)
}

// properties checks the names of properties wherever they are.
func (j *anthropic) properties(v any, at string) {
	switch v := v.(type) {
	case object:
		if p, ok := v["properties"].(object); ok {
			for name := range p {
				j.must(propertyID.MatchString(name), at+".properties", "the name %q is not taken", name)
			}
		}
		for name, item := range v {
			j.properties(item, at+"."+name)
		}
	case list:
		for i, item := range v {
			j.properties(item, index(at, i))
		}
	}
}

func (j *anthropic) thinking(o object, limit int64) {
	t, ok := o["thinking"].(object)
	if !ok {
		return
	}
	typ := str(t["type"])
	j.must(slices.Contains([]string{"enabled", "disabled", "adaptive", "between_tools"}, typ), "thinking.type", "%q is not known", typ)
	if typ == "enabled" {
		j.budget = true
		n, ok := integer(t["budget_tokens"])
		j.must(ok && n >= 1024 && n < limit, "thinking.budget_tokens", "%v is not between 1024 and max_tokens, %d", t["budget_tokens"], limit)
	}
}

func (j *anthropic) messages(o object) {
	messages := j.objects(o["messages"], "messages")
	if !j.must(len(messages) > 0, "messages", "none") {
		return
	}
	j.must(str(messages[0]["role"]) == "user", "messages[0]", "the first message is not a user's")
	j.must(str(messages[len(messages)-1]["role"]) == "user", "messages", "the last message is not a user's")
	var waiting []string // calls of the message before
	for i, m := range messages {
		at := index("messages", i)
		j.only(m, at, "role content")
		content, text := m["content"].(string)
		var blocks []object
		if text {
			j.must(!blank(content), at, "blank")
		} else {
			blocks = j.objects(m["content"], at+".content")
			j.must(len(blocks) > 0, at, "no content")
		}
		switch role := str(m["role"]); role {
		case "user":
			j.user(blocks, at, waiting)
			waiting = nil
		case "assistant":
			j.must(len(waiting) == 0, at, "the calls %q before it have no results", waiting)
			waiting = j.assistant(blocks, at)
		default:
			j.bad(at, "the role %q is not known", role)
		}
	}
	if j.budget {
		j.turnBegins(messages)
	}
}

// user checks a user message. It must begin with the results of the calls in the
// message before it, one for each.
func (j *anthropic) user(blocks []object, at string, waiting []string) {
	var answered []string
	others := false
	for i, b := range blocks {
		at := index(at+".content", i)
		j.mark(b)
		switch str(b["type"]) {
		case "text":
			others = true
			j.must(!blank(b["text"]), at, "blank")
		case "image":
			others = true
			s, _ := b["source"].(object)
			j.must(str(s["type"]) == "base64", at, "no data")
			j.image(at, str(s["media_type"]), str(s["data"]), imageTypes)
		case "tool_result":
			id := str(b["tool_use_id"])
			j.must(!others, at, "a result behind something else")
			j.must(slices.Contains(waiting, id), at, "a result of %q, which the message before it does not call", id)
			j.must(!slices.Contains(answered, id), at, "a second result of %q", id)
			answered = append(answered, id)
			j.result(b, at)
		default:
			j.bad(at, "a user cannot say a block of type %q", b["type"])
		}
	}
	for _, id := range waiting {
		j.must(slices.Contains(answered, id), at, "no result of the call %q", id)
	}
}

func (j *anthropic) result(b object, at string) {
	switch content := b["content"].(type) {
	case string:
		j.must(b["is_error"] != true || content != "", at, "a failure without a word")
	case list:
		for i, c := range j.objects(content, at+".content") {
			switch str(c["type"]) {
			case "tool_reference":
				j.must(j.declared[str(c["tool_name"])], index(at, i), "refers to the tool %q, which is not offered", c["tool_name"])
			case "text":
				j.must(!blank(c["text"]), index(at, i), "blank")
			default:
				j.bad(index(at, i), "a result cannot hold a block of type %q", c["type"])
			}
		}
	default:
		j.bad(at, "no content")
	}
}

// assistant checks an answer and returns the ids of its calls.
func (j *anthropic) assistant(blocks []object, at string) []string {
	var calls []string
	for i, b := range blocks {
		at := index(at+".content", i)
		switch str(b["type"]) {
		case "text":
			j.must(!blank(b["text"]), at, "blank")
		case "thinking":
			_, ok := b["thinking"].(string)
			j.must(ok && str(b["signature"]) != "", at, "thinking without a signature")
			j.must(i < len(blocks)-1, at, "the message ends with thinking")
			j.must(b["cache_control"] == nil, at, "thinking cannot be marked for the cache")
		case "redacted_thinking":
			j.must(str(b["data"]) != "", at, "no data")
			j.must(i < len(blocks)-1, at, "the message ends with thinking")
		case "tool_use":
			id := str(b["id"])
			j.must(longName.MatchString(id), at, "the id %q is not taken", id)
			j.must(!j.calls[id], at, "a second call has the id %q", id)
			j.must(longName.MatchString(str(b["name"])), at, "the name %q is not taken", b["name"])
			_, ok := b["input"].(object)
			j.must(ok, at, "the input is no object")
			j.must(j.declared != nil, at, "a call, and no tools are offered")
			j.calls[id] = true
			calls = append(calls, id)
		default:
			j.bad(at, "an answer cannot hold a block of type %q", b["type"])
		}
	}
	return calls
}

// turnBegins checks that a turn which is under way began with thinking, without
// which it cannot be turned on.
func (j *anthropic) turnBegins(messages []object) {
	first := -1
	for i := len(messages) - 1; i >= 0; i-- {
		content, _ := messages[i]["content"].(list)
		if str(messages[i]["role"]) == "assistant" {
			first = i
			continue
		}
		if b, _ := append(content, object{})[0].(object); str(b["type"]) != "tool_result" {
			break
		}
	}
	if first < 0 {
		return
	}
	content, _ := messages[first]["content"].(list)
	b, _ := append(content, object{})[0].(object)
	typ := str(b["type"])
	j.must(typ == "thinking" || typ == "redacted_thinking", index("messages", first), "a turn that is under way begins with %q, and thinking is on", typ)
}
