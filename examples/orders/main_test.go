package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flue-go/flue/cli"
)

// With a key in the environment the program asks the real provider, which is
// here a server that speaks its wire.
func TestRealProvider(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/messages" || r.Header.Get("X-Api-Key") != "very-secret" {
			t.Errorf("%s with the key %q: %v", r.URL.Path, r.Header.Get("X-Api-Key"), err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if asked == 1 {
			stream(w, `{"type":"tool_use","id":"toolu_1","name":"lookup_order","input":{}}`,
				`{"type":"input_json_delta","partial_json":"{\"orderId\":\"ORD-2024-0042\"}"}`, "tool_use")
			return
		}
		if !bytes.Contains(body, []byte("pour-over kettle")) {
			t.Errorf("the model is not told what the tool found: %s", body)
		}
		stream(w, `{"type":"text","text":""}`, `{"type":"text_delta","text":"It has shipped."}`, "end_turn")
	}))
	defer server.Close()
	t.Setenv("ANTHROPIC_BASE_URL", server.URL)
	t.Setenv("ANTHROPIC_API_KEY", "very-secret")

	dir := t.TempDir()
	env := filepath.Join(dir, "none.env")
	if err := os.WriteFile(env, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), app(), []string{
		"run", "--db", filepath.Join(dir, "c.db"), "--shop", filepath.Join(dir, "s.db"), "--env-file", env, "-m", "Where is order ORD-2024-0042?",
	}, strings.NewReader(""), &stdout, &stderr)
	if code != 0 || stdout.String() != "It has shipped.\n" || asked != 2 {
		t.Errorf("exit code %d, %q, the model was asked %d times", code, &stdout, asked)
	}
	log := stderr.String()
	if !strings.Contains(log, "model   anthropic/claude-haiku-4-5\n") || !strings.Contains(log, "call    lookup_order") {
		t.Errorf("standard error is\n%s", log)
	}
	if strings.Contains(log, "demo") || strings.Contains(log, "very-secret") {
		t.Errorf("standard error has the demo, or the key:\n%s", log)
	}
}

// stream writes an answer of one block.
func stream(w io.Writer, start, delta, stop string) {
	for _, e := range [][2]string{
		{"message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`},
		{"content_block_start", `{"type":"content_block_start","index":0,"content_block":` + start + `}`},
		{"content_block_delta", `{"type":"content_block_delta","index":0,"delta":` + delta + `}`},
		{"content_block_stop", `{"type":"content_block_stop","index":0}`},
		{"message_delta", `{"type":"message_delta","delta":{"stop_reason":"` + stop + `","stop_sequence":null},"usage":{"output_tokens":5}}`},
		{"message_stop", `{"type":"message_stop"}`},
	} {
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e[0], e[1])
	}
}
