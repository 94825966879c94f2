package google_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/google"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

// lines returns a stream with one event for each line of data.
func lines(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// receive returns what the codec makes of a stream that answers req.
func receive(t testing.TB, stream string, req *model.Request) (modeltest.Answer, error) {
	t.Helper()
	client, _ := play(stream)
	return modeltest.Collect(t, google.New(google.Config{APIKey: "k", Client: client}).Stream(t.Context(), req))
}

func parts(s string) string { return `{"candidates":[{"content":{"parts":[` + s + `]}}]}` }

func finish(reason string) string { return `{"candidates":[{"finishReason":"` + reason + `"}]}` }

func TestStopReasons(t *testing.T) {
	for reason, want := range map[string]model.StopReason{
		"STOP": model.StopEnd, "MAX_TOKENS": model.StopLength, "CONTINUATION": model.StopLength,
		"SAFETY": model.StopFiltered, "RECITATION": model.StopFiltered, "LANGUAGE": model.StopFiltered, "BLOCKLIST": model.StopFiltered,
		"PROHIBITED_CONTENT": model.StopFiltered, "SPII": model.StopFiltered, "A_NEW_ONE": model.StopEnd,
	} {
		got, err := receive(t, lines(parts(`{"text":"a"}`), finish("FINISH_REASON_UNSPECIFIED"), finish(reason)), modeltest.Hello())
		if err != nil || got.Done.Stop != want || got.Done.Reason != reason {
			t.Errorf("%s: done = %+v, error = %v, want %s", reason, got.Done, err, want)
		}
	}
	// A call may come with any of them; only STOP is said to be for its sake.
	for reason, want := range map[string]model.StopReason{"STOP": model.StopToolUse, "MAX_TOKENS": model.StopLength, "SAFETY": model.StopFiltered} {
		got, err := receive(t, lines(parts(`{"functionCall":{"name":"now"}}`), finish(reason)), modeltest.Hello())
		if err != nil || got.Done.Stop != want {
			t.Errorf("%s with a call: done = %+v, error = %v, want %s", reason, got.Done, err, want)
		}
	}
}

func TestDecodeFailures(t *testing.T) {
	text := parts(`{"text":"a"}`)
	for _, tt := range []struct {
		name, stream string
		class        model.Class
		part         string
	}{
		{"no finish reason", lines(text), model.Retryable, "cut"},
		{"nothing at all", lines(finish("STOP")), model.Retryable, "before there was any"},
		{"nothing but thoughts", lines(parts(`{"text":"hm","thought":true}`), finish("STOP")), model.Retryable, "before there was any"},
		{"nothing but a signature", lines(parts(`{"text":"","thoughtSignature":"S"}`), finish("STOP")), model.Retryable, "before there was any"},
		{"malformed call", lines(text, `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed function call: print(default_api.now("}]}`), model.Retryable, "MALFORMED_FUNCTION_CALL: Malformed function call: print"},
		{"unknown tool", lines(finish("UNEXPECTED_TOOL_CALL")), model.Retryable, "UNEXPECTED_TOOL_CALL"},
		{"other", lines(text, finish("OTHER")), model.Retryable, "OTHER"},
		{"error in the stream", lines(text, `{"error":{"code":403,"message":"gone","status":"PERMISSION_DENIED"}}`), model.Auth, "gone"},
		{"error in a list", lines(text, `[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]`), model.Invalid, "bad"},
		{"server error in the stream", lines(text, `{"error":{"code":500,"message":"An internal error has occurred","status":"INTERNAL"}}`), model.Retryable, "internal error"},
		{"no object", lines(`7`), model.Retryable, "not valid JSON"},
		{"wrong types", lines(`{"candidates":[{"content":{"parts":[{"text":7}]}}]}`), model.Retryable, "not valid JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := receive(t, tt.stream, modeltest.Hello())
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || !strings.Contains(e.Message, tt.part) {
				t.Errorf("error = %v, want class %s and %q", err, tt.class, tt.part)
			}
			if got.Done != nil {
				t.Errorf("done = %+v", got.Done)
			}
		})
	}
}

// What a server says does not reach an error unchecked.
func TestReasonsAreClean(t *testing.T) {
	_, err := receive(t, lines(`{"candidates":[{"finishReason":"OTHER","finishMessage":"a\u0000b`+strings.Repeat("x", 1<<16)+`"}]}`), modeltest.Hello())
	if err == nil || len(err.Error()) > 4<<10 || strings.Contains(err.Error(), "\x00") {
		t.Errorf("error = %.100v", err)
	}
	got, err := receive(t, lines(`{"promptFeedback":{"blockReason":"a\u0000b`+strings.Repeat("x", 1<<16)+`"}}`), modeltest.Hello())
	if err != nil || len(got.Done.Reason) > 4<<10 || strings.Contains(got.Done.Reason, "\x00") {
		t.Errorf("reason = %.100q, %v", got.Done.Reason, err)
	}
}

// Usage comes in pieces, and pieces may lack what an earlier one had.
func TestUsage(t *testing.T) {
	got, err := receive(t, lines(
		`{"usageMetadata":{"trafficType":"ON_DEMAND"}}`,
		`{"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"toolUsePromptTokenCount":5}}`,
		parts(`{"text":"a"}`),
		`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"candidatesTokenCount":7,"thoughtsTokenCount":3}}`,
		`{"usageMetadata":{"promptTokenCount":101,"candidatesTokenCount":8}}`,
		`{"usageMetadata":{}}`,
	), modeltest.Hello())
	want := model.Usage{Input: 46, CacheRead: 60, Output: 11, Reasoning: 3}
	if err != nil || got.Done.Usage != want {
		t.Errorf("usage = %+v, %v, want %+v", got.Done, err, want)
	}
}

// Other candidates than the one that was asked for are left alone.
func TestOtherCandidates(t *testing.T) {
	got, err := receive(t, lines(
		`{"candidates":[{"index":1,"content":{"parts":[{"text":"other"}]},"finishReason":"OTHER"},{"index":0,"content":{"parts":[{"text":"this"}]}}]}`,
		finish("STOP")), modeltest.Hello())
	if err != nil || len(got.Blocks) != 1 || got.Blocks[0].Text != "this" {
		t.Errorf("blocks = %+v, %v", got.Blocks, err)
	}
}

// Older models send no ids; those that are sent may have been used before.
func TestCallIDsAreUnique(t *testing.T) {
	req := modeltest.Hello()
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: []model.Block{call("used", "")}})
	got, err := receive(t, lines(parts(`{"functionCall":{"name":"t","id":"used"}},{"functionCall":{"name":"t"}},{"functionCall":{"name":"t","id":"x"}},{"functionCall":{"name":"t","id":"x"}}`), finish("STOP")), req)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"": true, "used": true}
	for _, b := range got.Blocks {
		if seen[b.CallID] {
			t.Errorf("id %q is empty or used before", b.CallID)
		}
		seen[b.CallID] = true
	}
	if len(got.Blocks) != 4 || !seen["x"] {
		t.Errorf("blocks = %+v", got.Blocks)
	}
}

// What was received goes back part by part as it came, through storage: the same
// texts with the same signatures, in the same order. Only parts without a
// signature may have been joined; thoughts without one are left out, and so are
// parts without anything.
func TestPartsAreReplayed(t *testing.T) {
	received := `{"text":"A plan.","thought":true,"thoughtSignature":"t+/="},{"text":" b","thought":true},` +
		`{"text":"First "},{"text":"<signed> ","thoughtSignature":"s1"},{"text":"then "},{"text":""},{"text":"more "},` +
		`{"text":"signed\u2028again.","thoughtSignature":"s2"},{"text":"","thoughtSignature":"s3"},` +
		`{"functionCall":{"name":"now","args":{"b":1,"a":[1.0,2e3]},"id":"f1"},"thoughtSignature":"s4"},` +
		`{"functionCall":{"name":"now","args":{},"id":"f2"}},{"text":"","thoughtSignature":"s5"},` +
		`{"text":"after"}`
	want := `{"text":"A plan.","thought":true,"thoughtSignature":"t+/="},` +
		`{"text":"First "},{"text":"<signed> ","thoughtSignature":"s1"},{"text":"then more "},` +
		`{"text":"signed\u2028again.","thoughtSignature":"s2"},{"text":"","thoughtSignature":"s3"},` +
		`{"functionCall":{"id":"f1","name":"now","args":{"b":1,"a":[1.0,2e3]}},"thoughtSignature":"s4"},` +
		`{"functionCall":{"id":"f2","name":"now","args":{}}},{"text":"","thoughtSignature":"s5"},` +
		`{"text":"after"}`
	req := modeltest.Hello()
	req.Model = "gemini-3.5-flash"
	answer, err := receive(t, lines(parts(received), finish("STOP")), req)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(answer.Blocks)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []model.Block
	if err := json.Unmarshal(stored, &blocks); err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: blocks, Origin: origin(req.Model)})
	var body struct {
		Contents []struct{ Parts json.RawMessage }
	}
	if err := json.Unmarshal(sent(t, req), &body); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("["+want+"]", string(body.Contents[1].Parts)); diff != "" {
		t.Errorf("parts (-want +sent):\n%s", diff)
	}
}

// The answer is whole once the reason is known: what follows is waited for a
// moment only.
func TestEpilogueIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client := endless(lines(parts(`{"text":"a"}`), finish("STOP")))
		got, err := modeltest.Collect(t, google.New(google.Config{APIKey: "k", Client: client}).Stream(t.Context(), modeltest.Hello()))
		if took := time.Since(start); err != nil || got.Done == nil || took > 6*time.Second {
			t.Errorf("done = %+v after %v, error = %v", got.Done, took, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"text.sse", "thinking.sse", "tools.sse", "bare.sse", "signed.sse", "safety.sse", "blocked.sse"} {
		f.Add(string(stream(f, name)))
	}
	f.Add(lines(`{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"9s"}]}}`))
	f.Fuzz(func(t *testing.T, s string) {
		req := modeltest.Hello()
		req.Model = "gemini-3.5-flash"
		answer, err := receive(t, s, req)
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) {
				t.Errorf("error %v is not a *model.Error", err)
			}
			return
		}
		// What was received can be stored and sent back.
		if _, err := json.Marshal(answer.Blocks); err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Blocks: answer.Blocks, Origin: origin(req.Model)})
		body := sent(t, req)
		var r struct {
			Contents []struct{ Parts []sentPart }
		}
		if err := json.Unmarshal(body, &r); err != nil {
			t.Fatalf("the next request is not JSON: %v: %s", err, body)
		}
		for _, c := range r.Contents {
			if len(c.Parts) == 0 {
				t.Errorf("the next request has an empty content: %s", body)
			}
		}
	})
}

// What the provider has said before an answer broke off stands in the error.
func TestUsageOfAFailure(t *testing.T) {
	const used = `"usageMetadata":{"promptTokenCount":4900,"cachedContentTokenCount":4000,"candidatesTokenCount":2}`
	const begun = `{"candidates":[{"content":{"parts":[{"text":"a"}]},"index":0}],` + used + `}`
	want := model.Usage{Input: 900, CacheRead: 4000, Output: 2}
	for name, stream := range map[string]string{
		"cut":      lines(begun),
		"failed":   lines(begun, `{"error":{"code":503,"message":"overloaded"}}`),
		"given up": lines(begun, `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}`),
		"empty":    lines(`{"candidates":[{"finishReason":"STOP"}],` + used + `}`),
	} {
		_, err := receive(t, stream, modeltest.Hello())
		var failed *model.Error
		if !errors.As(err, &failed) || failed.Usage != want {
			t.Errorf("%s: %#v, want the usage %+v", name, err, want)
		}
	}
}
