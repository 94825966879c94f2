package providers_test

import (
	"fmt"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/openai"
	"github.com/flue-go/flue/model/providers"
)

func ExampleFromEnv() {
	ps, err := providers.FromEnv([]string{"ANTHROPIC_API_KEY=sk-ant-1"}) // os.Environ()
	if err != nil {
		fmt.Println(err)
		return
	}
	// A provider of one's own, and fewer models of another.
	ps["gateway"] = openai.New(openai.Config{Name: "gateway", BaseURL: "https://llm.internal.example/v1"})
	ps["anthropic"] = providers.Only(ps["anthropic"], "claude-haiku-*")
	for _, m := range []string{"anthropic/claude-haiku-4-5", "anthropic/claude-opus-5", "gateway/large", "groq/openai/gpt-oss-120b"} {
		name, id := model.SplitSpecifier(m)
		if c, ok := ps[name].(model.Checker); ok {
			fmt.Println(m, c.Check(id))
		}
	}
	// Output:
	// anthropic/claude-haiku-4-5 <nil>
	// anthropic/claude-opus-5 the model "claude-opus-5" is not one of those that this program allows: claude-haiku-*
	// gateway/large <nil>
	// groq/openai/gpt-oss-120b model provider groq: no key; set GROQ_API_KEY
}
