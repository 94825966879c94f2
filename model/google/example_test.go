package google_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
)

// Stream an answer. The server here stands in for Google's; leave BaseURL out to
// reach the real one.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, lines(
			`{"candidates":[{"content":{"parts":[{"text":"Hello"}],"role":"model"}}],"modelVersion":"gemini-3.5-flash"}`,
			`{"candidates":[{"content":{"parts":[{"text":" there."}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4}}`))
	}))
	defer server.Close()

	p := google.New(google.Config{BaseURL: server.URL, APIKey: "AIza..."})
	req := &model.Request{
		Model:    "gemini-3.5-flash",
		Messages: []model.Message{{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Hi!"}}}},
	}
	for event, err := range p.Stream(context.Background(), req) {
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		switch e := event.(type) {
		case model.Delta:
			fmt.Printf("%q\n", e.Text)
		case model.Done:
			fmt.Println(e.Stop, e.Usage.Total(), "tokens")
		}
	}
	// Output:
	// "Hello"
	// " there."
	// stop 13 tokens
}

// On Vertex AI calls are paid by a project and authorized by tokens that expire.
// On Google Cloud the metadata server has them; elsewhere golang.org/x/oauth2/google
// finds the credentials of the machine:
//
//	creds, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/cloud-platform")
//	...
//	token := func(context.Context) (string, error) {
//		t, err := creds.TokenSource.Token()
//		if err != nil {
//			return "", err
//		}
//		return t.AccessToken, nil
//	}
func ExampleNewVertex() {
	p := google.NewVertex(google.VertexConfig{
		Project:  "my-project",
		Location: "eu",
		Token:    google.MetadataToken(nil),
	})
	var _ model.Provider = p
	// Output:
}
