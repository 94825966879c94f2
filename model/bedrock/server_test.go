package bedrock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/flue-go/flue/model/bedrock"
)

// patience bounds every wait for something that must happen.
const patience = 10 * time.Second

// frames turns a recorded stream into the frames that carry it: each line is the
// type of an event and its JSON, or "!" and those of an exception.
func frames(t testing.TB, recorded string) [][]byte {
	t.Helper()
	all, err := encodeFrames(recorded)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func encodeFrames(recorded string) ([][]byte, error) {
	var all [][]byte
	for line := range strings.Lines(recorded) {
		kind, data, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		var h eventstream.Headers
		if exception, ok := strings.CutPrefix(kind, "!"); ok {
			h.Set(":message-type", eventstream.StringValue("exception"))
			h.Set(":exception-type", eventstream.StringValue(exception))
		} else {
			h.Set(":message-type", eventstream.StringValue("event"))
			h.Set(":event-type", eventstream.StringValue(kind))
		}
		h.Set(":content-type", eventstream.StringValue("application/json"))
		var b bytes.Buffer
		if err := eventstream.NewEncoder().Encode(&b, eventstream.Message{Headers: h, Payload: []byte(data)}); err != nil {
			return nil, err
		}
		all = append(all, b.Bytes())
	}
	return all, nil
}

// standIn is a client that answers as Bedrock does.
func standIn() *player {
	answer, _ := encodeFrames(`messageStart {"role":"assistant"}
contentBlockDelta {"contentBlockIndex":0,"delta":{"text":"Hello"}}
contentBlockDelta {"contentBlockIndex":0,"delta":{"text":" there."}}
contentBlockStop {"contentBlockIndex":0}
messageStop {"stopReason":"end_turn"}
metadata {"usage":{"inputTokens":9,"outputTokens":4,"totalTokens":13}}`)
	return &player{answer: join(answer)}
}

func recorded(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A service stands in for Bedrock. Its handler may be changed between calls.
type service struct {
	server *httptest.Server

	mu      sync.Mutex
	handler http.HandlerFunc
	request *http.Request
	body    []byte
}

func newService(t testing.TB) *service {
	s := &service{}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.request, s.body = r, body
		h := s.handler
		s.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(s.server.Close)
	return s
}

func (s *service) answer(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = h
}

// play answers with frames, each in a chunk of its own.
func (s *service) play(frames ...[]byte) {
	s.answer(func(w http.ResponseWriter, _ *http.Request) { send(w, frames...) })
}

func send(w http.ResponseWriter, parts ...[]byte) {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for _, p := range parts {
		_, _ = w.Write(p)
		_ = flush.Flush()
	}
}

var credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret-of-the-test"}, nil
})

// provider returns a provider that asks the service through AWS's SDK.
func (s *service) provider(edit ...func(*bedrock.Config)) *bedrock.Provider {
	c := bedrock.Config{AWS: aws.Config{
		Region: "eu-central-1", BaseEndpoint: aws.String(s.server.URL), HTTPClient: s.server.Client(),
		Credentials: credentials,
	}}
	for _, e := range edit {
		e(&c)
	}
	return bedrock.New(c)
}

// hold keeps a connection open until the client has left. It closes left then.
func hold(t *testing.T, r *http.Request, left chan<- struct{}) {
	select {
	case <-r.Context().Done():
		close(left)
	case <-time.After(patience):
		t.Error("the provider does not close the connection")
	}
}

func gone(t *testing.T, left <-chan struct{}) {
	t.Helper()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the connection is still open")
	}
}

func indent(t testing.TB, body []byte) string {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return pretty.String() + "\n"
}
