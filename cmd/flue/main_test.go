package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/cli"
)

// run runs the program and returns its exit code and output.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"} {
		t.Setenv(name, "")
	}
	var out, log bytes.Buffer
	args = append([]string{"run", "--db", filepath.Join(t.TempDir(), "flue.db")}, args...)
	code = cli.Run(t.Context(), app(), args, strings.NewReader(""), &out, &log)
	return code, out.String(), log.String()
}

func TestDemo(t *testing.T) {
	code, stdout, stderr := run(t, "-m", "What time is it?")
	if code != 0 || !strings.HasPrefix(stdout, "The tool answers: ") || !strings.Contains(stdout, "UTC") || !strings.Contains(stdout, "scripted") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
	if !strings.Contains(stderr, "call    current_time") || !strings.Contains(stderr, "scripted demo model") {
		t.Errorf("standard error: %s", stderr)
	}
	code, stdout, _ = run(t, "-m", "Write me a poem")
	if code != 0 || !strings.HasPrefix(stdout, "I am a script") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}

func TestModelFlag(t *testing.T) {
	code, _, stderr := run(t, "--model", "claude", "-m", "Hello")
	if code != 1 || !strings.Contains(stderr, `--model "claude": write it as provider/model`) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// The assistant talks to a server that speaks the wire of OpenAI, which the
// environment names.
func TestCompatibleServer(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		body, err := io.ReadAll(r.Body)
		var req struct{ Model string }
		if err != nil || json.Unmarshal(body, &req) != nil {
			t.Errorf("request %s: %v", body, err)
		}
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer very-secret" || req.Model != "qwen3" {
			t.Errorf("%s, %q, model %q", r.URL.Path, r.Header.Get("Authorization"), req.Model)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		delta := `{"content":"It is five o'clock."}`
		if requests == 1 {
			delta = `{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"current_time","arguments":"{\"zone\":\"Mars\"}"}}]}`
		} else if !bytes.Contains(body, []byte("there is no such time zone")) {
			t.Errorf("the second request has no result of the tool: %s", body)
		}
		fmt.Fprintf(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"qwen3\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]}\n\n", delta)
		fmt.Fprint(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"qwen3\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n")
		fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":20}}\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	t.Setenv("FLUE_PROVIDER_LOCAL_TEST_BASE_URL", server.URL+"/v1")
	t.Setenv("FLUE_PROVIDER_LOCAL_TEST_API_KEY", "very-secret")

	code, stdout, stderr := run(t, "--model", "local-test/qwen3", "-m", "What time is it on Mars?")
	if code != 0 || stdout != "It is five o'clock.\n" || requests != 2 {
		t.Errorf("exit code %d, %q, %d requests", code, stdout, requests)
	}
	if strings.Contains(stderr, "very-secret") || strings.Contains(stderr, "demo") || !strings.Contains(stderr, "model   local-test/qwen3") ||
		!strings.Contains(stderr, "used    2 model calls, 2,000 tokens in, 40 out, an unknown amount") {
		t.Errorf("standard error: %s", stderr)
	}
	if n := strings.Count(stderr, "the catalog does not know this model"); n != 1 {
		t.Errorf("%d warnings that the model is not known: %s", n, stderr)
	}
}
