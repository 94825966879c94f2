package rules

import "slices"

// Responses judges a request of OpenAI's Responses API that keeps nothing at the
// server.
func Responses(body []byte) []string {
	j := responses{calls: map[string]bool{}, results: map[string]bool{}, ids: map[string]bool{}}
	o := j.read(body)
	j.must(str(o["model"]) != "", "model", "missing")
	if limit, sent := o["max_output_tokens"]; sent {
		n, ok := integer(limit)
		j.must(ok && n >= 16, "max_output_tokens", "%v is not at least 16", limit)
	}
	if s, sent := o["instructions"]; sent {
		j.must(!blank(s), "instructions", "blank")
	}
	j.must(o["store"] == false, "store", "the server is to keep nothing")
	j.must(o["previous_response_id"] == nil, "previous_response_id", "refers to what the server does not keep")
	j.cacheKey(o)
	if r, ok := o["reasoning"].(object); ok {
		j.effort(r["effort"], "reasoning.effort")
	}
	j.tools(o["tools"])
	j.choice(o["tool_choice"], o["tools"], "tool_choice", "none", "auto", "required", "function", "allowed_tools")
	input := j.objects(o["input"], "input")
	j.must(len(input) > 0, "input", "nothing")
	for i, item := range input {
		j.item(input, i, item, index("input", i))
	}
	for id := range j.calls {
		j.must(j.results[id], "input", "no output of the call %q", id)
	}
	return j.problems
}

type responses struct {
	judge
	calls   map[string]bool
	results map[string]bool
	ids     map[string]bool // of items
}

func (j *responses) tools(v any) {
	if v == nil {
		return
	}
	var names []string
	tools := j.objects(v, "tools")
	j.must(len(tools) > 0, "tools", "an empty list")
	for i, t := range tools {
		at := index("tools", i)
		j.must(str(t["type"]) == "function", at, "the type %q is not known", t["type"])
		names = append(names, str(t["name"]))
		_, said := t["strict"].(bool)
		j.must(said, at, "without strict the server enforces the schema, which it may not be able to")
		j.parameters(t["parameters"], t["strict"], at)
	}
	j.toolNames(names, "tools", plainName)
}

func (j *responses) item(input []object, i int, item object, at string) {
	typ := str(item["type"])
	if id := str(item["id"]); id != "" {
		j.must(len(id) <= 64, at, "the id %q is longer than 64 characters", id)
		j.must(!j.ids[id], at, "a second item has the id %q", id)
		j.ids[id] = true
	}
	switch typ {
	case "message":
		j.message(item, at)
	case "reasoning":
		j.reasoning(item, at)
		next := ""
		if i+1 < len(input) {
			next = str(input[i+1]["type"])
			if next == "message" && str(input[i+1]["role"]) != "assistant" {
				next = ""
			}
		}
		j.must(next == "message" || next == "function_call" || next == "reasoning", at, "reasoning without the item that followed it")
	case "function_call":
		id := str(item["call_id"])
		j.must(id != "" && len(id) <= 64, at, "the call_id %q is not of 1 to 64 characters", id)
		j.must(!j.calls[id], at, "a second call has the call_id %q", id)
		j.must(plainName.MatchString(str(item["name"])), at, "the name %q is not taken", item["name"])
		j.argumentsText(item["arguments"], at)
		j.calls[id] = true
	case "function_call_output":
		id := str(item["call_id"])
		j.must(j.calls[id], at, "an output of %q, which nothing before calls", id)
		j.must(!j.results[id], at, "a second output of %q", id)
		_, ok := item["output"].(string)
		j.must(ok, at, "no output")
		j.results[id] = true
	default:
		j.bad(at, "items of type %q are not known", typ)
	}
}

func (j *responses) reasoning(item object, at string) {
	_, ok := item["summary"].(list)
	j.must(ok, at, "reasoning without a summary, be it empty")
	content, _ := item["content"].(list)
	j.must(str(item["encrypted_content"]) != "" || len(content) > 0, at, "reasoning without its content, which the server does not keep")
}

func (j *responses) message(item object, at string) {
	role := str(item["role"])
	if s, ok := item["content"].(string); ok {
		j.must(!blank(s), at, "blank")
		j.must(slices.Contains([]string{"user", "assistant", "system", "developer"}, role), at, "the role %q is not known", role)
		return
	}
	parts := j.objects(item["content"], at+".content")
	j.must(len(parts) > 0, at, "no content")
	for i, p := range parts {
		at := index(at+".content", i)
		switch typ := str(p["type"]); {
		case role == "user" && typ == "input_text", role == "assistant" && typ == "output_text":
			j.must(!blank(p["text"]), at, "blank")
		case role == "user" && typ == "input_image":
			j.dataURL(str(p["image_url"]), at)
		default:
			j.bad(at, "the role %q cannot say a part of type %q", role, typ)
		}
	}
}
