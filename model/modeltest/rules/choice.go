package rules

import "slices"

// MayCall reports whether a request lets the model call a tool: whether it offers
// any, and does not say, in the way of one of the APIs, that none is to be called.
func MayCall(body []byte) bool {
	o := (&judge{}).read(body)
	config, _ := o["toolConfig"].(object) // of Gemini, and of Bedrock, whose tools are in it
	calling, _ := config["functionCallingConfig"].(object)
	choice, _ := o["tool_choice"].(object)
	switch {
	case str(o["tool_choice"]) == "none", str(choice["type"]) == "none", str(calling["mode"]) == "NONE":
		return false
	}
	tools, _ := o["tools"].(list)
	own, _ := config["tools"].(list)
	return len(tools)+len(own) > 0
}

// choice checks what is said about which tool to call, where there are tools.
func (j *judge) choice(v, tools any, at string, known ...string) {
	if v == nil {
		return
	}
	j.must(tools != nil, at, "there are no tools to choose from")
	form := str(v)
	if o, ok := v.(object); ok {
		form = str(o["type"]) + str(o["mode"])
	}
	j.must(slices.Contains(known, form), at, "the choice %q is not known", form)
}
