package interop_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

func TestGoogleStreams(t *testing.T) {
	transcripts(t, "google/testdata", func(t *testing.T, url string) {
		ours, err := modeltest.Collect(t, google.New(google.Config{BaseURL: url + "/v1beta", APIKey: "k"}).Stream(t.Context(), modeltest.Hello()))
		if err != nil {
			t.Fatal(err)
		}
		client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
			APIKey: "k", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: url},
		})
		if err != nil {
			t.Fatal(err)
		}
		var parts []*genai.Part
		var last genai.GenerateContentResponse
		for chunk, err := range client.Models.GenerateContentStream(t.Context(), "test-model", genai.Text("Hello"), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if chunk.UsageMetadata != nil {
				last.UsageMetadata = chunk.UsageMetadata
			}
			if chunk.PromptFeedback != nil {
				last.PromptFeedback = chunk.PromptFeedback
			}
			for _, c := range chunk.Candidates {
				if c.Content != nil {
					parts = append(parts, c.Content.Parts...)
				}
				if c.FinishReason != "" {
					last.Candidates = []*genai.Candidate{c}
				}
			}
		}
		want, got := fromGoogle(parts, last), summarize(ours)
		for i := range got.Calls { // models without ids: the SDK leaves them empty
			if i < len(want.Calls) && want.Calls[i].ID == "" {
				got.Calls[i].ID = ""
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer (-SDK +codec):\n%s", diff)
		}
		compareParts(t, parts, ours)
	})
}

func fromGoogle(parts []*genai.Part, r genai.GenerateContentResponse) answer {
	u := r.UsageMetadata
	a := answer{Usage: model.Usage{
		Input: int(u.PromptTokenCount + u.ToolUsePromptTokenCount - u.CachedContentTokenCount), CacheRead: int(u.CachedContentTokenCount),
		Output: int(u.CandidatesTokenCount + u.ThoughtsTokenCount), Reasoning: int(u.ThoughtsTokenCount),
	}}
	for _, p := range parts {
		switch {
		case p.FunctionCall != nil:
			input := any(map[string]any{})
			if p.FunctionCall.Args != nil {
				input = any(p.FunctionCall.Args)
			}
			a.Calls = append(a.Calls, call{p.FunctionCall.ID, p.FunctionCall.Name, input})
		case p.Thought:
			a.Reasoning += p.Text
		default:
			a.Text += p.Text
		}
	}
	switch {
	case r.PromptFeedback != nil:
		a.Stop = model.StopFiltered
	case r.Candidates[0].FinishReason == genai.FinishReasonMaxTokens:
		a.Stop = model.StopLength
	case r.Candidates[0].FinishReason == genai.FinishReasonSafety:
		a.Stop = model.StopFiltered
	case len(a.Calls) > 0:
		a.Stop = model.StopToolUse
	default:
		a.Stop = model.StopEnd
	}
	return a
}

// compareParts checks that what is sent back are the parts that the SDK would
// send back, where parts that are not signed may be joined, and thoughts that are
// not are left out.
func compareParts(t *testing.T, parts []*genai.Part, ours modeltest.Answer) {
	t.Helper()
	draw := func(parts []*genai.Part) (drawn []string) {
		open := "" // the kind of the part that more may be joined to
		for _, p := range parts {
			kind, text := "text ", p.Text
			switch {
			case p.FunctionCall != nil:
				kind, text = "call ", p.FunctionCall.Name
			case p.Thought:
				kind = "thought "
			}
			signed := len(p.ThoughtSignature) > 0
			switch {
			case !signed && (text == "" || p.Thought):
			case kind == open && !signed && kind != "call ":
				drawn[len(drawn)-1] += text
			default:
				drawn = append(drawn, kind+string(p.ThoughtSignature)+" "+text)
				if open = kind; signed {
					open = ""
				}
			}
		}
		return drawn
	}
	const id = "gemini-3.5-flash"
	origin := model.Origin{Provider: "google", Model: id}
	req := &model.Request{Model: id, Messages: append(modeltest.Hello().Messages, model.Message{Role: model.RoleAssistant, Origin: origin, Blocks: ours.Blocks})}
	var sent struct{ Contents []*genai.Content }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(standIn(body), &sent); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	_, _ = modeltest.Collect(t, google.New(google.Config{BaseURL: server.URL, APIKey: "k"}).Stream(t.Context(), req))
	var replayed []*genai.Part
	for _, c := range sent.Contents {
		if c.Role == genai.RoleModel {
			replayed = append(replayed, c.Parts...)
		}
	}
	for _, p := range replayed { // what stands for a signature is none of the SDK's
		if string(p.ThoughtSignature) == "stand-in" {
			p.ThoughtSignature = nil
		}
	}
	if diff := cmp.Diff(draw(parts), draw(replayed)); diff != "" {
		t.Errorf("parts to send back (-SDK +codec):\n%s", diff)
	}
}

// standIn writes what stands for a signature as the SDK writes bytes.
func standIn(body []byte) []byte {
	return []byte(strings.ReplaceAll(string(body), "skip_thought_signature_validator", "c3RhbmQtaW4="))
}

// googleParams is a request in the SDK's types, which it has no type for itself.
type googleParams struct {
	SystemInstruction *genai.Content          `json:"systemInstruction,omitempty"`
	Contents          []*genai.Content        `json:"contents"`
	Tools             []*genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig,omitempty"`
}

func TestGoogleRequests(t *testing.T) {
	requests(t, "google/testdata", func(t *testing.T, body []byte) {
		body = standIn(body)
		var params googleParams
		if err := json.Unmarshal(body, &params); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		same(t, withoutEmpty(t, body), again)
	})
}

// withoutEmpty leaves out arguments that are empty, as the SDK does.
func withoutEmpty(t *testing.T, body []byte) []byte {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	for _, c := range r["contents"].([]any) {
		for _, p := range c.(map[string]any)["parts"].([]any) {
			if f, ok := p.(map[string]any)["functionCall"].(map[string]any); ok && len(f["args"].(map[string]any)) == 0 {
				delete(f, "args")
			}
		}
	}
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
