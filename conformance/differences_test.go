package conformance_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A difference is one way in which this server means to differ from Flue 2.0.3.
// Each is explained under its id in docs/compatibility.md, and each is shown:
// by what it makes of a recording, by a request, or by a test elsewhere.
type difference struct {
	id string

	// at are the places in recordings where it shows, "<recording>/<place>",
	// and change makes of what was recorded there what is expected.
	at     []string
	change func(any) any

	probes []probe
	test   string // in which package and by which name
}

// A probe is a request by which a difference shows.
type probe struct {
	method, path, contentType, body string
	status                          int
	contains                        string
}

var differences = []difference{
	{
		id:     "odd-offset",
		at:     []string{"32-raw-read-errors/answer 12", "32-raw-read-errors/answer 21"},
		change: becomes(http.StatusBadRequest, "invalid_request", "Request is malformed.", "Invalid offset format."),
	},
	{
		id: "bad-base64",
		at: []string{"11-sdk-attachments/note 6", "11-sdk-attachments/answer 9"},
		change: becomes(http.StatusBadRequest, "invalid_request", "Request is malformed.",
			`Attachment 0 is not valid base64: send the base64 of the image alone, without a "data:" prefix.`),
	},
	{
		id: "attachment-rules",
		probes: []probe{
			send(`{"kind":"user","body":"x","attachments":[{"type":"image","data":"AAEC","mimeType":"text/html"}]}`, 400, "Attachment 0 must have the MIME type of an image"),
			send(`{"kind":"user","body":"x","attachments":[{"type":"image","data":"","mimeType":"image/png"}]}`, 400, "Attachment 0 is empty"),
			send(`{"kind":"user","body":"x","attachments":[`+strings.Repeat(`{"type":"image","data":"AAEC","mimeType":"image/png"},`, 64)+`{"type":"image","data":"AAEC","mimeType":"image/png"}]}`, 400, "at most 64 attachments"),
		},
	},
	{
		id:     "duplicate-names",
		probes: []probe{send(`{"kind":"user","body":"a","body":"b"}`, 400, `duplicate object member name \"body\"`)},
	},
	{
		id:     "parser-words",
		probes: []probe{send(`{"kind" 1}`, 400, "The JSON parser reported: invalid character '1'")},
	},
	{
		id:     "empty-uid",
		probes: []probe{send(`{"kind":"user","body":"x","uid":""}`, 400, "`uid` must not be empty.")},
	},
	{
		id:     "blank-key",
		probes: []probe{send(`{"kind":"user","body":"x","idempotencyKey":" "}`, 400, "must be a non-empty string")},
	},
	{
		id:     "content-type-exact",
		probes: []probe{{"POST", "/agents/chat/c-probe", "text/plain; application/json", `{"kind":"user","body":"x"}`, 415, "unsupported_media_type"}},
	},
	{
		id:   "unlabelled-body",
		test: "internal/httpapi TestBodyWithoutContentType",
	},
	{
		id: "limits",
		probes: []probe{
			send(`{"kind":"user","body":"x","initialData":`+strings.Repeat("[", 129)+strings.Repeat("]", 129)+`}`, 400, "nested deeper than 128"),
			send(`{"kind":"signal","body":"x","type":"`+strings.Repeat("t", 1025)+`"}`, 400, "must be at most 1024 bytes"),
			send(`{"kind":"signal","body":"x","type":"t","attributes":{`+members(257, `""`)+`}}`, 400, "at most 256 attributes"),
			send(`{"kind":"user","body":"x",`+members(1<<16, "0")+`}`, 400, "at most 65536 members"),
		},
		test: "internal/httpapi TestBodyLimits",
	},
	{
		id: "ids",
		probes: []probe{
			{"GET", "/agents/chat/%FF", "", "", 400, "Agent conversation ids must be"},
			{"GET", "/agents/chat/a%00b", "", "", 400, "Agent conversation ids must be"},
			{"GET", "/agents/chat/" + strings.Repeat("x", 1025), "", "", 400, "Agent conversation ids must be"},
		},
	},
	{
		id: "reserved-approval",
		probes: []probe{
			send(`{"kind":"signal","body":"yes","type":"approval_decision"}`, 400, "framework-reserved"),
			send(`{"kind":"signal","body":"yes","type":"approval_result"}`, 400, "framework-reserved"),
		},
		test: ". TestGateTrustsNoClient",
	},
	{
		id: "mount-redirect",
		at: []string{"29-raw-admission-errors/answer 18"},
		change: func(any) any {
			return map[string]any{"status": http.StatusTemporaryRedirect, "headers": map[string]string{"Location": "/agents/chat/"}, "body": ""}
		},
	},
	{
		id: "no-such-route-words",
		at: []string{"29-raw-admission-errors/answer 21"},
		change: func(any) any {
			return map[string]any{
				"status": http.StatusNotFound, "body": "404 page not found\n",
				"headers": map[string]string{"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"},
			}
		},
	},
	{
		id: "initial-data-words",
		at: []string{"13-sdk-initial-data/answer 1", "13-sdk-initial-data/answer 2"},
		change: replace(
			"Invalid type: Expected Object but received undefined", "no initialData was sent",
			"Invalid type: Expected number but received", "issue: expected a number, got the string"),
	},
	{
		id: "tool-validation-words",
		at: []string{"16-sdk-tool/note 7", "16-sdk-tool/history", "16-sdk-tool/updates"},
		change: replace(
			"  - orderId: must have required properties orderId\n\nReceived arguments:\n{\n  \"wrong\": 1\n}",
			"2 problems:\n- orderId: is required; expected a string\n- wrong: unknown property; allowed: orderId"),
	},
	{
		id:     "provider-error-words",
		at:     []string{"23-sdk-provider-error/note 3", "23-sdk-provider-error/note 4", "23-sdk-provider-error/history", "23-sdk-provider-error/updates"},
		change: replace(`400: {"message":"mock failure 400","type":"mock","code":"mock"}`, "400: mock failure 400"),
	},
	{
		id: "answered-by-always",
		at: []string{
			"10-sdk-abort-queued/note 4", "10-sdk-abort-queued/history", "10-sdk-abort-queued/updates",
			"26-sdk-render-throws/note 2", "26-sdk-render-throws/history", "26-sdk-render-throws/updates",
		},
		change: func(v any) any {
			return walk(v, func(o map[string]any) map[string]any {
				if o["outcome"] != nil && o["submissionId"] != nil && o["answeredBySubmissionId"] == nil {
					o["answeredBySubmissionId"] = o["submissionId"]
				}
				return o
			})
		},
	},
	{
		id: "failed-render-keeps-the-message",
		at: []string{"26-sdk-render-throws/note 2", "26-sdk-render-throws/history", "26-sdk-render-throws/updates"},
		change: insert(0, map[string]any{
			"id": "<entry_direct 1>", "role": "user", "purpose": "user", "display": "visible", "submissionId": "<sub 1>",
			"parts": []any{map[string]any{"type": "text", "text": "x @id=br1", "state": "done"}},
		}),
	},
	{
		id: "timeout-advisory",
		at: []string{"24-sdk-provider-down/note 2", "24-sdk-provider-down/history", "24-sdk-provider-down/updates"},
		change: insert(-1, map[string]any{
			"id": "<entry_submission_interrupted 1>", "role": "system", "purpose": "advisory", "display": "diagnostic",
			"signal":     map[string]any{"attributes": map[string]any{"submissionId": "<sub 1>", "kind": "direct", "reason": "exceeded_timeout"}},
			"settlement": map[string]any{"outcome": "failed"},
			"parts":      []any{map[string]any{"type": "text", "text": "Submission exceeded the configured timeout.", "state": "done"}},
		}),
	},
	{
		id:     "failed-calls-are-taken-back",
		at:     []string{"25-sdk-provider-cut/note 1", "25-sdk-provider-cut/note 2", "25-sdk-provider-cut/history", "25-sdk-provider-cut/updates"},
		change: takenBack("word0 word1 word2 word3 word4 "),
	},
	{
		id:   "parallel-outputs",
		test: "conformance TestParallelOutputsArriveAsTheyCome",
	},
	{
		id:   "no-reset-at-compaction",
		test: ". TestCompact",
	},
	{
		id:   "streams-end",
		test: "internal/httpapi TestShutdownEndsWaitingReads",
	},
	{
		id:   "overloaded",
		test: ". TestOverloaded",
	},
	{
		id:   "store-unavailable",
		test: ". TestStoreUnavailable",
	},
}

// differencesAt returns the differences that show at a place of a recording.
func differencesAt(recording, place string) []difference {
	var ds []difference
	for _, d := range differences {
		if slices.ContainsFunc(d.at, func(at string) bool { return isAt(recording+"/"+place, at) }) {
			ds = append(ds, d)
		}
	}
	return ds
}

// isAt reports whether a place is the one that is meant, or one of its kind.
func isAt(place, at string) bool {
	rest, ok := strings.CutPrefix(place, at)
	return ok && (rest == "" || rest[0] == ':' || rest[0] == ' ')
}

func send(body string, status int, contains string) probe {
	return probe{"POST", "/agents/chat/c-probe", "application/json", body, status, contains}
}

// members are as many members of an object, each with the value.
func members(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":%s`, i, value)
	}
	return b.String()[1:]
}

// Each difference must show by its requests.
func TestDifferencesShow(t *testing.T) {
	origin := start(t).URL
	for _, d := range differences {
		t.Run(d.id, func(t *testing.T) {
			if d.at == nil && d.probes == nil && d.test == "" {
				t.Error("nothing shows this difference")
			}
			for _, p := range d.probes {
				r, err := http.NewRequestWithContext(t.Context(), p.method, origin+p.path, strings.NewReader(p.body))
				if err != nil {
					t.Fatal(err)
				}
				if p.contentType != "" {
					r.Header.Set("Content-Type", p.contentType)
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != p.status || !bytes.Contains(b, []byte(p.contains)) {
					t.Errorf("%s %.60s %.80s: %d %s, %v; want %d with %s", p.method, p.path, p.body, resp.StatusCode, b, err, p.status, p.contains)
				}
			}
			if d.test != "" {
				hasTest(t, d.test)
			}
		})
	}
}

// hasTest checks that the test that is said to show a difference is there.
func hasTest(t *testing.T, where string) {
	t.Helper()
	dir, name, _ := strings.Cut(where, " ")
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("func "+name+"(")) {
			return
		}
	}
	t.Errorf("there is no %s in %s", name, dir)
}

// The list and the page that explains it must agree.
func TestDifferencesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^### `([^`]+)`$").FindAllSubmatch(page, -1) {
		documented[string(m[1])] = true
	}
	listed := map[string]bool{}
	for _, d := range differences {
		if listed[d.id] {
			t.Errorf("the difference %s is listed twice", d.id)
		}
		listed[d.id] = true
		if !documented[d.id] {
			t.Errorf("docs/compatibility.md does not explain the difference %s", d.id)
		}
	}
	for id := range documented {
		if !listed[id] {
			t.Errorf("docs/compatibility.md explains %s, which is not on the list", id)
		}
	}
}

// becomes makes an error of what was recorded: of an answer, or of a note of
// the client.
func becomes(status int, code, message, details string) func(any) any {
	return func(recorded any) any {
		r, _ := recorded.(map[string]any)
		if _, ok := r["thrown"]; ok {
			return map[string]any{"thrown": map[string]any{
				"name": "FlueApiError", "status": float64(status), "hasRef": false,
				"message": "Flue API error 400 [" + code + "]: " + message,
			}}
		}
		headers := maps.Clone(r["headers"].(map[string]string))
		delete(headers, "Flue-Error-Ref")
		return map[string]any{
			"status": status, "headers": headers,
			"body": map[string]any{"error": map[string]any{"type": code, "message": message, "details": details}},
		}
	}
}

// replace replaces texts, given in pairs, wherever they are.
func replace(pairs ...string) func(any) any {
	r := strings.NewReplacer(pairs...)
	var texts func(v any) any
	texts = func(v any) any {
		switch v := v.(type) {
		case string:
			return r.Replace(v)
		case []any:
			out := make([]any, len(v))
			for i := range v {
				out[i] = texts(v[i])
			}
			return out
		case map[string]any:
			out := make(map[string]any, len(v))
			for k := range v {
				out[k] = texts(v[k])
			}
			return out
		}
		return v
	}
	return texts
}

// takenBack drops a part that a failed call has written. Those who watch are sent
// the message without it when the call is made again.
func takenBack(text string) func(any) any {
	return func(v any) any {
		if chunks, ok := v.([]any); ok {
			completed := slices.IndexFunc(chunks, func(c any) bool { return c.(map[string]any)["type"] == "message-completed" })
			return slices.Insert(slices.Clone(chunks), completed+1, any(map[string]any{
				"type": "message-appended", "conversationId": "<conv 1>", "message": map[string]any{
					"id": "<entry 1>", "role": "assistant", "purpose": "assistant", "display": "visible",
					"submissionId": "<sub 1>", "turnId": "<turn 1>", "parts": []any{},
				},
			}))
		}
		return walk(v, func(o map[string]any) map[string]any {
			if s, ok := o["text"].(string); ok {
				o["text"] = strings.TrimPrefix(s, text+"\n\n")
			}
			if parts, ok := o["parts"].([]any); ok {
				o["parts"] = slices.DeleteFunc(parts, func(p any) bool { return p.(map[string]any)["text"] == text })
			}
			return o
		})
	}
}

// insert inserts a message before the i-th one, or before the last change if i
// is negative, into a snapshot or into changes.
func insert(i int, message map[string]any) func(any) any {
	return func(v any) any {
		switch v := v.(type) {
		case map[string]any: // a snapshot
			out := maps.Clone(v)
			ms := slices.Clone(v["messages"].([]any))
			out["messages"] = slices.Insert(ms, cmp.Or(min(i, 0)*-len(ms), i), any(message))
			return out
		case []any:
			at := i
			if at < 0 {
				at = len(v) - 1
			}
			return slices.Insert(slices.Clone(v), at, any(map[string]any{"type": "message-appended", "conversationId": "<conv 1>", "message": message}))
		}
		return v
	}
}

// walk rebuilds a value with every object changed.
func walk(v any, change func(map[string]any) map[string]any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = walk(v[i], change)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = walk(v[k], change)
		}
		return change(out)
	}
	return v
}
