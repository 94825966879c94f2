package rules_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/model/modeltest/rules"
)

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg=="

// Each request is taken as it is, and refused with each of the changes.
var tests = []struct {
	api     string
	judge   func([]byte) []string
	good    string
	changes []change
}{
	{
		"Anthropic", rules.Anthropic,
		`{"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":2000},"system":[{"type":"text","text":"S."}],"tools":[{"name":"look","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}},{"name":"late","input_schema":{"type":"object"},"defer_loading":true}],"messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"Look."},{"type":"tool_use","id":"c1","name":"look","input":{}},{"type":"tool_use","id":"c2","name":"look","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"tool_reference","tool_name":"late"}]},{"type":"text","text":"Go on."}]}]}`,
		[]change{
			{`"model":"m"`, `"model":"m","model":"n"`, "occurs twice"},
			{`"model":"m"`, `"model":"m","logprobs":true`, "does not know"},
			{`"model":"m"`, `"model":"m","tool_choice":{"type":"never"}`, "choice \"never\" is not known"},
			{`"max_tokens":9000`, `"max_tokens":0`, "no limit"},
			{`"budget_tokens":2000`, `"budget_tokens":9000`, "not between"},
			{`"text":"Hi"`, `"text":"\n "`, "blank"},
			{`"text":"Hi"`, `"text":"\ud83d!"`, "surrogate"},
			{`"text":"Hi"`, `"text":"\udc00"`, "surrogate"},
			{`"text":"Hi"`, "\"text\":\"\xff\"", "not UTF-8"},
			{`image/png`, `image/jpeg`, "is said to be"},
			{`image/png`, `image/svg+xml`, "not taken"},
			{`{"type":"thinking","thinking":"","signature":"s"},`, ``, "begins with \"text\""},
			{`"signature":"s"`, `"signature":""`, "without a signature"},
			{`{"type":"text","text":"Look."},{"type":"tool_use","id":"c1","name":"look","input":{}},{"type":"tool_use","id":"c2","name":"look","input":{}}`, `{"type":"thinking","thinking":"","signature":"s"}`, "ends with thinking"},
			{`"id":"c2"`, `"id":"c1"`, "second call has the id"},
			{`"id":"c2"`, `"id":"c 2"`, "not taken"},
			{`"name":"look","input":{}},`, `"name":"a.b","input":{}},`, "not taken"},
			{`"name":"look","input":{}},`, `"name":"look","input":[]},`, "no object"},
			{`"tool_use_id":"c2"`, `"tool_use_id":"c3"`, "no result of the call \"c2\""},
			{`"tool_use_id":"c2"`, `"tool_use_id":"c1"`, "second result"},
			{`{"type":"tool_result","tool_use_id":"c1","content":"x"},`, `{"type":"text","text":"So:"},{"type":"tool_result","tool_use_id":"c1","content":"x"},`, "behind something else"},
			{`"tool_name":"late"`, `"tool_name":"gone"`, "not offered"},
			{`"defer_loading":true`, `"defer_loading":true,"cache_control":{"type":"ephemeral"}`, "marked for the cache"},
			{`{"name":"look","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}},`, ``, "not deferred"},
			{`"properties":{"a"`, `"properties":{"$a"`, "\"$a\" is not taken"},
			{`"input_schema":{"type":"object","properties"`, `"input_schema":{"type":"object","anyOf":[],"properties"`, "not taken at the root"},
			{`"name":"late"`, `"name":"look"`, "second tool"},
			{`"role":"user","content":[{"type":"text","text":"Hi"}`, `"role":"assistant","content":[{"type":"text","text":"Hi"}`, "not a user's"},
			{`{"type":"text","text":"Go on."}]}`, `{"type":"text","text":"Go on."}]},{"role":"assistant","content":"So"}`, "last message"},
		},
	},
	{
		"Chat Completions", rules.ChatCompletions,
		`{"model":"m","messages":[{"role":"system","content":"S."},{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pixel + `"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"look","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"x"},{"role":"tool","tool_call_id":"c2","content":"y"},{"role":"user","content":"Go on."}],"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"a":{"type":"array","items":{}}}}}},{"type":"function","function":{"name":"held","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}],"max_tokens":5,"prompt_cache_key":"k","reasoning_effort":"low"}`,
		[]change{
			{`"content":null`, `"content":"  ","x":null`, ""},
			{`"tool_calls":[`, `"tool_calls_":[`, "without content"},
			{`"content":"x"`, `"content":" "`, "without a word"},
			{`"tool_call_id":"c2"`, `"tool_call_id":"c1"`, "second result"},
			{`,{"role":"tool","tool_call_id":"c2","content":"y"}`, ``, "no result of the call \"c2\""},
			{`{"role":"user","content":"Go on."}`, `{"role":"tool","tool_call_id":"c3","content":"y"}`, "does not call"},
			{`{"role":"user","content":"Go on."}`, `{"role":"assistant","content":"So"}`, "last message"},
			{`"id":"c2"`, `"id":"` + strings.Repeat("c", 41) + `"`, "1 to 40"},
			{`"id":"c2"`, `"id":"c1"`, "second call"},
			{`"name":"look","arguments"`, `"name":"a.b","arguments"`, "not taken"},
			{`"arguments":"{}"`, `"arguments":"[]"`, "no JSON object"},
			{`"arguments":"{}"`, `"arguments":{}`, "no text"},
			{`"arguments":"{}"`, `"arguments":"{\"a\":\"\\ud83d\"}"`, "surrogate"},
			{`"items":{}`, `"description":"no items"`, "without items"},
			{`"required":["a"]`, `"required":[]`, "not required"},
			{`"additionalProperties":false`, `"additionalProperties":true`, "not closed"},
			{`"max_tokens":5`, `"max_tokens":5,"max_completion_tokens":5`, "both"},
			{`"prompt_cache_key":"k"`, `"prompt_cache_key":""`, "characters"},
			{`"reasoning_effort":"low"`, `"reasoning_effort":"off"`, "not known"},
			{`"role":"system"`, `"role":"root"`, "not known"},
			{`"tools":[`, `"tools":[],"t":[`, "empty list"},
			{`"tools":[`, `"tool_choice":"none","t":[`, "no tools to choose from"},
			{`"tools":[`, `"tool_choice":"never","tools":[`, "choice \"never\" is not known"},
			{`base64,`, `base32,`, "data URL"},
		},
	},
	{
		"Responses", rules.Responses,
		`{"model":"m","store":false,"instructions":"S.","max_output_tokens":16,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"},{"type":"input_image","image_url":"data:image/png;base64,` + pixel + `"}]},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"},{"type":"function_call","id":"fc_1","call_id":"c1","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"x"}],"tools":[{"type":"function","name":"look","strict":false,"parameters":{"type":"object","properties":{}}}]}`,
		[]change{
			{`"store":false`, `"store":true`, "keep nothing"},
			{`"max_output_tokens":16`, `"max_output_tokens":15`, "at least 16"},
			{`"encrypted_content":"e"`, `"encrypted_content":""`, "does not keep"},
			{`"summary":[],`, ``, "without a summary"},
			{`{"type":"function_call","id":"fc_1","call_id":"c1","name":"look","arguments":"{}"},`, ``, "followed it"},
			{`,{"type":"function_call_output","call_id":"c1","output":"x"}`, ``, "no output of the call"},
			{`"call_id":"c1","output"`, `"call_id":"c2","output"`, "nothing before calls"},
			{`"output":"x"}`, `"output":"x"},{"type":"function_call_output","call_id":"c1","output":"x"}`, "second output"},
			{`"id":"fc_1"`, `"id":"rs_1"`, "second item"},
			{`"strict":false,`, ``, "enforces"},
			{`"tools":[`, `"tool_choice":"none","t":[`, "no tools to choose from"},
			{`"instructions":"S."`, `"instructions":" "`, "blank"},
			{`"type":"input_text"`, `"type":"output_text"`, "cannot say"},
		},
	},
	{
		"Gemini", rules.Gemini,
		`{"contents":[{"role":"user","parts":[{"text":"Hi"},{"inlineData":{"mimeType":"image/png","data":"` + pixel + `"}}]},{"role":"model","parts":[{"text":"","thoughtSignature":"s"},{"functionCall":{"name":"look","args":{}}},{"functionCall":{"name":"see","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"output":"x"}}},{"functionResponse":{"name":"see","response":{"output":"y"}}}]}],"tools":[{"functionDeclarations":[{"name":"look","parametersJsonSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}},{"name":"see"}]}]}`,
		[]change{
			{`"thoughtSignature":"s"`, `"x":"s"`, "not signed"},
			{`"tools":[`, `"toolConfig":{"functionCallingConfig":{"mode":"NONE"}},"t":[`, "no tools to choose from"},
			{`"tools":[`, `"toolConfig":{"functionCallingConfig":{"mode":"none"}},"tools":[`, "choice \"none\" is not known"},
			{`,{"functionResponse":{"name":"see","response":{"output":"y"}}}`, ``, "1 responses to 2 calls"},
			{`"functionResponse":{"name":"see"`, `"functionResponse":{"name":"look"`, "answers"},
			{`"text":"Hi"`, `"text":"Hi","functionCall":{"name":"look"}`, "2 contents"},
			{`"role":"user","parts":[{"functionResponse"`, `"role":"model","parts":[{"functionResponse"`, "not the user's"},
			{`"$ref":"#/$defs/a"`, `"$ref":"#/$defs/a","description":"A."`, "does not know"},
			{`"type":"string"`, `"type":"string","minLength":1`, "does not know"},
			{`"name":"see"}]`, `"name":"1see"}]`, "not taken"},
			{`image/png`, `image/gif`, "not taken"},
			{`"args":{}}},`, `"args":[]}},`, "no object"},
			{`"role":"user","parts":[{"text":"Hi"}`, `"role":"model","parts":[{"text":"Hi"}`, "right after the user"},
		},
	},
	{
		"Gemini 3", rules.Gemini3,
		`{"contents":[{"role":"user","parts":[{"text":"Hi"}]},{"role":"model","parts":[{"functionCall":{"name":"old"}}]},{"role":"user","parts":[{"functionResponse":{"name":"old","response":{}}}]},{"role":"model","parts":[{"text":"So."}]},{"role":"user","parts":[{"text":"And?"}]},{"role":"model","parts":[{"text":"Hm."},{"functionCall":{"name":"look"},"thoughtSignature":"s1"},{"functionCall":{"name":"see"}}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{}}},{"functionResponse":{"name":"see","response":{}}}]},{"role":"model","parts":[{"functionCall":{"name":"look"},"thoughtSignature":"s2"}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{}}}]}]}`,
		[]change{
			{`,"thoughtSignature":"s1"`, ``, "contents[5]: the first call is not signed"},
			{`,"thoughtSignature":"s2"`, ``, "contents[7]: the first call is not signed"},
			{`"name":"old","response"`, `"name":"new","response"`, "answers"},
		},
	},
	{
		"Bedrock", rules.Bedrock,
		`{"system":[{"text":"S."}],"messages":[{"role":"user","content":[{"text":"Hi"},{"image":{"format":"png","source":{"bytes":"` + pixel + `"}}}]},{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"r","signature":"s"}}},{"toolUse":{"toolUseId":"c1","name":"look","input":{}}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"c1","content":[{"text":"x"}],"status":"success"}}]}],"toolConfig":{"tools":[{"toolSpec":{"name":"look","description":"L.","inputSchema":{"json":{"type":"object"}}}}]}}`,
		[]change{
			{`"text":"Hi"`, `"text":""`, "blank"},
			{`,"toolConfig":{"tools"`, `,"requestMetadata":{"tools"`, "no tools are offered"},
			{`,"toolConfig":{"tools"`, `,"toolConfig":{"toolChoice":{"none":{}},"tools"`, "does not know"},
			{`"toolUseId":"c1","content"`, `"toolUseId":"c2","content"`, "no result of the call"},
			{`"status":"success"`, `"status":"ok"`, "not known"},
			{`"content":[{"text":"x"}]`, `"content":[]`, "no content"},
			{`,{"toolUse":{"toolUseId":"c1","name":"look","input":{}}}`, ``, "ends with reasoning"},
			{`"description":"L."`, `"description":""`, "empty description"},
			{`"input":{}`, `"input":null`, "no object"},
			{`"text":"Hi"}`, `"text":"Hi","cachePoint":{}}`, "2 contents"},
			{`{"role":"user","content":[{"toolResult"`, `{"role":"user","content":[{"text":"w"}]},{"role":"user","content":[{"toolResult"`, "in a row"},
		},
	},
}

type change struct{ from, to, problem string }

func TestRules(t *testing.T) {
	for _, tt := range tests {
		t.Run(tt.api, func(t *testing.T) {
			if problems := tt.judge([]byte(tt.good)); problems != nil {
				t.Fatalf("a good request has problems:\n%s", strings.Join(problems, "\n"))
			}
			for _, c := range tt.changes {
				if !strings.Contains(tt.good, c.from) {
					t.Errorf("there is no %s to change", c.from)
				}
				got := strings.Join(tt.judge([]byte(strings.Replace(tt.good, c.from, c.to, 1))), "\n")
				if c.problem == "" && got != "" || !strings.Contains(got, c.problem) {
					t.Errorf("%s for %s: problems %q, want %q", c.to, c.from, got, c.problem)
				}
			}
		})
	}
}

// The golden requests of the codecs are requests that the services take.
func TestGoldenRequests(t *testing.T) {
	for pattern, judge := range map[string]func([]byte) []string{
		"anthropic/testdata/*.json":        rules.Anthropic,
		"openai/testdata/*.json":           rules.ChatCompletions,
		"openai/testdata/responses/*.json": rules.Responses,
		"google/testdata/*.json":           rules.Gemini,
		"bedrock/testdata/*.json":          rules.Bedrock,
	} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range judge(body) {
				t.Errorf("%s: %s", file, p)
			}
		}
	}
}

func FuzzRules(f *testing.F) {
	for _, tt := range tests {
		f.Add(tt.good)
	}
	f.Add(`{"messages":[{}],"contents":[1],"input":[{"type":"message"}],"tools":[[]]}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, tt := range tests {
			if len(tt.judge([]byte(body))) > 50 {
				t.Errorf("%s: too many problems", tt.api)
			}
		}
	})
}

func TestMayCall(t *testing.T) {
	for _, tt := range tests {
		if !rules.MayCall([]byte(tt.good)) && strings.Contains(tt.good, `"tools"`) {
			t.Errorf("%s: a request with tools offers none", tt.api)
		}
	}
	for _, body := range []string{
		`{}`, `{"tools":[]}`, `{"tools":[{}],"tool_choice":"none"}`, `{"tools":[{}],"tool_choice":{"type":"none"}}`,
		`{"tools":[{}],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}`, `{"toolConfig":{"tools":[]}}`,
	} {
		if rules.MayCall([]byte(body)) {
			t.Errorf("%s: the model may call", body)
		}
	}
	for _, body := range []string{`{"tools":[{}],"tool_choice":"auto"}`, `{"toolConfig":{"tools":[{}]}}`} {
		if !rules.MayCall([]byte(body)) {
			t.Errorf("%s: the model may not call", body)
		}
	}
}
