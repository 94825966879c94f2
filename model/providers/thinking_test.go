package providers_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/catalog"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/flue-go/flue/model/providers"
)

// asks is where the APIs have how much a model is to reason.
type asks struct {
	Effort    string                  `json:"reasoning_effort"`
	Reasoning struct{ Effort string } `json:"reasoning"`
	Output    struct{ Effort string } `json:"output_config"`
	Thinking  struct{ Type string }   `json:"thinking"`
	Google    struct {
		Thinking struct {
			Level  string `json:"thinkingLevel"`
			Budget *int   `json:"thinkingBudget"`
		} `json:"thinkingConfig"`
	} `json:"generationConfig"`
}

// budget stands for a number of tokens, which is another measure.
const budget model.Thinking = "budget"

// level is the level that was asked for, "off" if reasoning was turned off, empty
// if nothing was said.
func (a asks) level() model.Thinking {
	for _, s := range []string{a.Effort, a.Reasoning.Effort, a.Output.Effort, strings.ToLower(a.Google.Thinking.Level)} {
		switch s {
		case "":
		case "none":
			return model.ThinkingOff
		default:
			return model.Thinking(s)
		}
	}
	if a.Thinking.Type == "enabled" {
		return budget
	}
	if b := a.Google.Thinking.Budget; a.Thinking.Type == "disabled" || b != nil && *b == 0 {
		return model.ThinkingOff
	}
	return model.ThinkingDefault
}

// Whatever level an agent asks for, a model of the catalog is asked for one that
// it has, and not for another when it has that one. Turned off is never more than
// the lowest.
func TestLevelsOfTheCatalog(t *testing.T) {
	levels := []model.Thinking{model.ThinkingOff, model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium, model.ThinkingHigh, model.ThinkingXHigh, model.ThinkingMax}
	models := 0
	for _, s := range providers.Known() {
		if s.API == "" || s.Name == "groq" { // whose rules are its own; package openai tests them
			continue
		}
		for id, info := range catalog.Models(s.Name) {
			if len(info.Levels) == 0 {
				continue
			}
			models++
			for _, want := range levels {
				req := modeltest.Hello()
				req.Model, req.Info, req.Thinking = id, info, want
				got := asked(t, req, func(c *http.Client) model.Provider {
					a := providers.Access{Key: "k", Client: c, Project: "p", BaseURL: s.BaseURL}
					if s.API == providers.GoogleVertex {
						a.Headers = map[string]string{"Authorization": "Bearer t"}
					}
					if s.Name == "azure-openai" {
						a.BaseURL = "https://r.openai.azure.com"
					}
					return s.New(a)
				})
				var a asks
				if err := json.Unmarshal([]byte(got[strings.Index(got, "{"):]), &a); err != nil {
					t.Fatal(err)
				}
				asked := a.level()
				switch {
				case asked == model.ThinkingDefault && want == model.ThinkingOff: // nothing to turn off
				case asked == model.ThinkingOff && want == model.ThinkingOff:
				case asked == budget && want != model.ThinkingOff:
				case !slices.Contains(info.Levels, asked):
					t.Errorf("%s/%s: %s became %q, which is none of %q", s.Name, id, want, asked, info.Levels)
				case slices.Contains(info.Levels, want) && asked != want:
					t.Errorf("%s/%s: %s became %q, and is one of %q", s.Name, id, want, asked, info.Levels)
				case want == model.ThinkingOff && asked != info.Levels[0]:
					t.Errorf("%s/%s: off became %q, which is not the lowest of %q", s.Name, id, asked, info.Levels)
				}
			}
		}
	}
	if models < 100 {
		t.Errorf("%d models were tried", models)
	}
}
