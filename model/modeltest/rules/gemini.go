package rules

import "slices"

// Gemini judges a request of generateContent, at the Gemini API and at Vertex AI.
func Gemini(body []byte) []string {
	j := gemini{}
	o := j.read(body)
	j.only(o, "body", `contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent labels`)
	if s, sent := o["systemInstruction"].(object); sent {
		for i, p := range j.objects(s["parts"], "systemInstruction.parts") {
			j.must(!blank(p["text"]), index("systemInstruction.parts", i), "blank")
		}
	}
	j.tools(o["tools"])
	if config, ok := o["toolConfig"].(object); ok {
		j.choice(config["functionCallingConfig"], o["tools"], "toolConfig.functionCallingConfig", "AUTO", "ANY", "NONE", "VALIDATED")
	}
	contents := j.objects(o["contents"], "contents")
	if !j.must(len(contents) > 0, "contents", "none") {
		return j.problems
	}
	j.must(str(contents[0]["role"]) == "user", "contents[0]", "the first content is not a user's")
	j.must(str(contents[len(contents)-1]["role"]) == "user", "contents", "the last content is not a user's")
	before := ""
	for i, c := range contents {
		before = j.content(c, before, index("contents", i))
	}
	j.must(len(j.calls) == 0, "contents", "the last calls have no responses")
	return j.problems
}

// Gemini3 judges a request for a model of Gemini 3 or later. These want their
// signature back on the first call of each answer in the turn that is under way.
func Gemini3(body []byte) []string {
	j := gemini{judge: judge{problems: Gemini(body)}}
	contents, _ := (&judge{}).read(body)["contents"].(list)
	for i := len(contents) - 1; i >= 0; i-- {
		c, _ := contents[i].(object)
		parts, _ := c["parts"].(list)
		first := object{}
		for _, p := range parts {
			if p, ok := p.(object); ok && (p["functionCall"] != nil || p["functionResponse"] != nil) {
				first = p
				break
			}
		}
		if first["functionCall"] != nil {
			j.must(str(first["thoughtSignature"]) != "", index("contents", i), "the first call is not signed")
		} else if first["functionResponse"] == nil && str(c["role"]) == "user" {
			break // here the turn begins
		}
	}
	return j.problems
}

type gemini struct {
	judge
	calls []object // of the content before
}

func (j *gemini) tools(v any) {
	if v == nil {
		return
	}
	var names []string
	for i, t := range j.objects(v, "tools") {
		at := index("tools", i) + ".functionDeclarations"
		declared := j.objects(t["functionDeclarations"], at)
		j.must(len(declared) > 0, at, "none")
		for i, f := range declared {
			at := index(at, i)
			names = append(names, str(f["name"]))
			schema, plain := f["parametersJsonSchema"], f["parameters"]
			j.must(schema == nil || plain == nil, at, "two schemas")
			if schema != nil {
				j.schema(schema, at+".parametersJsonSchema", "anyOf", "oneOf", "allOf", "not")
				j.documented(schema, at+".parametersJsonSchema")
			}
		}
	}
	j.toolNames(names, "tools", geminiName)
}

// documented checks that a schema has no more than what is documented, and that
// nothing stands beside a reference.
func (j *gemini) documented(v any, at string) {
	const known = `$id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems minimum maximum anyOf oneOf
		properties additionalProperties required propertyOrdering`
	j.walk(v, at, func(o object, at string) {
		j.only(o, at, known)
		if o["$ref"] != nil {
			j.only(o, at, "$ref $defs")
		}
	})
}

// content checks one content and returns its role.
func (j *gemini) content(c object, before, at string) string {
	role := str(c["role"])
	parts := j.objects(c["parts"], at+".parts")
	j.must(len(parts) > 0, at, "no parts")
	responses := 0
	waiting := j.calls
	j.calls = nil
	for i, p := range parts {
		at := index(at+".parts", i)
		j.one(p, at)
		switch {
		case p["functionCall"] != nil:
			j.must(role == "model", at, "a user calls a function")
			j.must(before == "user", at, "a call that does not come right after the user")
			f, _ := p["functionCall"].(object)
			j.must(geminiName.MatchString(str(f["name"])), at, "the name %q is not taken", f["name"])
			_, ok := f["args"].(object)
			j.must(ok || f["args"] == nil, at, "the arguments are no object")
			j.calls = append(j.calls, f)
		case p["functionResponse"] != nil:
			f, _ := p["functionResponse"].(object)
			_, ok := f["response"].(object)
			j.must(role == "user" && ok, at, "a response that is no object, or not the user's")
			if j.must(responses < len(waiting), at, "more responses than calls") {
				call := waiting[responses]
				j.must(f["name"] == call["name"] && f["id"] == call["id"], at, "the response to %v %v answers %v %v", f["name"], f["id"], call["name"], call["id"])
			}
			responses++
		}
	}
	j.must(responses == len(waiting), at, "%d responses to %d calls", responses, len(waiting))
	j.must(role == "user" || role == "model", at, "the role %q is not known", role)
	return role
}

// one checks that a part holds exactly one thing.
func (j *gemini) one(p object, at string) {
	n := 0
	for _, name := range []string{"text", "inlineData", "functionCall", "functionResponse", "fileData"} {
		if _, ok := p[name]; ok {
			n++
		}
	}
	j.must(n == 1, at, "a part with %d contents", n)
	if text, ok := p["text"].(string); ok {
		j.must(!blank(text) || p["thoughtSignature"] != nil || p["thought"] == true, at, "blank, and not signed")
	}
	if b, ok := p["inlineData"].(object); ok {
		j.image(at, str(b["mimeType"]), str(b["data"]), slices.DeleteFunc(slices.Clone(imageTypes), func(t string) bool { return t == "image/gif" }))
	}
}
