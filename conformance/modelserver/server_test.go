package modelserver_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/conformance/modelserver"
)

func TestParseScript(t *testing.T) {
	tests := []struct {
		in   string
		want modelserver.Script
		ok   bool
	}{
		{"hello", modelserver.Script{Text: 8, Chunk: 1, Rounds: 1, Parallel: 1}, false},
		{"mail me @ home", modelserver.Script{Text: 8, Chunk: 1, Rounds: 1, Parallel: 1}, false},
		{"x @id=a1 @text=5", modelserver.Script{ID: "a1", Text: 5, Chunk: 1, Rounds: 1, Parallel: 1}, true},
		{
			`<slack user="U">ship @id=s @tool=lookup_order:{"orderId":"A:1"} @par=3 @tools=2</slack>`,
			modelserver.Script{ID: "s", Text: 8, Chunk: 1, Tool: "lookup_order", Args: `{"orderId":"A:1"}`, Parallel: 3, Rounds: 2},
			true,
		},
		{"bad @id=a @fail=400x9\n\nagain @id=b @text=3", modelserver.Script{ID: "b", Text: 3, Chunk: 1, Rounds: 1, Parallel: 1}, true},
		{
			"@think=4 @chunk=0 @ttft=1 @delay=75 @fail=500x2 @cut=6 @tool=t",
			modelserver.Script{
				Text: 8, Think: 4, Chunk: 1, Tool: "t", Args: "{}", Rounds: 1, Parallel: 1, First: time.Millisecond, Delay: 75 * time.Millisecond,
				FailStatus: 500, FailCount: 2, Cut: 6,
			},
			true,
		},
	}
	for _, test := range tests {
		got, ok := modelserver.ParseScript(test.in)
		if diff := cmp.Diff(test.want, got); diff != "" || ok != test.ok {
			t.Errorf("ParseScript(%q): ok %v, want %v (-want +got):\n%s", test.in, ok, test.ok, diff)
		}
	}
}

func ask(t *testing.T, url, messages string) (int, string, error) {
	t.Helper()
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[`+messages+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestAnswers(t *testing.T) {
	srv := httptest.NewServer(new(modelserver.Server))
	defer srv.Close()
	user := `{"role":"user","content":[{"type":"text","text":"x @id=a @tool=look:{\"n\":1} @text=2 @think=1"}]}`

	_, first, err := ask(t, srv.URL, user)
	if err != nil || !strings.Contains(first, `"id":"call_a_0_0"`) || !strings.Contains(first, `"arguments":"{\"n\":1}"`) || !strings.Contains(first, `"finish_reason":"tool_calls"`) {
		t.Errorf("first answer: %v %s", err, first)
	}
	_, second, err := ask(t, srv.URL, user+`,{"role":"assistant","tool_calls":[{}]},{"role":"tool","content":"r"}`)
	if err != nil || !strings.Contains(second, `{"reasoning_content":"word0 "}`) || !strings.Contains(second, `{"content":"word1 "}`) || strings.Contains(second, "tool_calls") || !strings.HasSuffix(second, "data: [DONE]\n\n") {
		t.Errorf("second answer: %v %s", err, second)
	}
}

func TestGoesOn(t *testing.T) {
	srv := httptest.NewServer(new(modelserver.Server))
	defer srv.Close()
	for goOn, want := range map[string][]string{"@goon=1": {"word2 ", "word3 "}, "": {"word0 ", "word1 ", "word2 ", "word3 "}} {
		_, body, err := ask(t, srv.URL, `{"role":"user","content":"@id=g @text=4 `+goOn+`"},{"role":"assistant","content":"word0 word1 "},{"role":"user","content":"go on"}`)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range regexp.MustCompile(`"content":"(word\d+ )"`).FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", goOn, diff)
		}
	}
}

func TestFailuresPass(t *testing.T) {
	srv := httptest.NewServer(new(modelserver.Server))
	defer srv.Close()
	for i, want := range []int{503, 503, 200} {
		if status, body, _ := ask(t, srv.URL, `{"role":"user","content":"@id=f @fail=503x2"}`); status != want {
			t.Errorf("request %d: %d %s, want %d", i, status, body, want)
		}
	}
	for i, cut := range []bool{true, false} {
		if _, body, err := ask(t, srv.URL, `{"role":"user","content":"@id=c @cut=3"}`); (err != nil) != cut || strings.Count(body, "data: ") < 3 {
			t.Errorf("request %d: %v %s, want it cut off: %v", i, err, body, cut)
		}
	}
}

func TestRefusesOtherRequests(t *testing.T) {
	for _, r := range []*http.Request{
		httptest.NewRequest("GET", "/v1/chat/completions", nil),
		httptest.NewRequest("POST", "/v1/messages", strings.NewReader("{}")),
		httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{")),
	} {
		w := httptest.NewRecorder()
		new(modelserver.Server).ServeHTTP(w, r)
		if w.Code < 400 {
			t.Errorf("%s %s: %d", r.Method, r.URL, w.Code)
		}
	}
}
