package httpapi_test

import (
	"bytes"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/conformance/transcript"
	"github.com/flue-go/flue/internal/httpapi"
)

// mounted is the handler where the recordings have it.
func mounted(c httpapi.Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return http.StripPrefix("/agents/chat", httpapi.New(c))
}

func recording(t testing.TB, name string) *transcript.Transcript {
	t.Helper()
	r, err := transcript.ReadFile(filepath.Join("..", "..", "conformance", "testdata", "wire", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deviations are the exchanges in which this server means to differ, by
// recording and number, with the status that it gives.
var deviations = map[string]map[int]int{
	"32-raw-read-errors": {
		12: http.StatusBadRequest, // offset=0_5
		21: http.StatusBadRequest, // offset=0000000000000007_0000000000000001
	},
}

// Every recorded exchange must be answered as it was: the status, the set of
// headers with their values, and the body.
func TestRecordedExchanges(t *testing.T) {
	for _, name := range []string{"29-raw-admission-errors", "30-raw-methods", "31-raw-not-found", "32-raw-read-errors"} {
		t.Run(name, func(t *testing.T) {
			h := mounted(httpapi.Config{Backend: newFake()})
			var recorded, ours transcript.Mask
			for i, x := range recording(t, name).Exchanges {
				if strings.HasPrefix(x.Target, "/agents/none/") {
					continue // another agent is the mux's business
				}
				got := do(h, x.Method, x.Target, x.Header, x.Body)
				if status, ok := deviations[name][i+1]; ok {
					if got.Code == x.Response.Status || got.Code != status {
						t.Errorf("exchange %d: status %d, want %d in place of the recorded %d", i+1, got.Code, status, x.Response.Status)
					}
					continue
				}
				compare(t, i+1, x, got, &recorded, &ours)
			}
		})
	}
}

func do(h http.Handler, method, target string, header http.Header, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, bytes.NewReader(body))
	if len(body) == 0 {
		r = httptest.NewRequest(method, target, http.NoBody)
	}
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func compare(t *testing.T, n int, x *transcript.Exchange, got *httptest.ResponseRecorder, recorded, ours *transcript.Mask) {
	t.Helper()
	if got.Code != x.Response.Status {
		t.Errorf("exchange %d: %s %s: status %d, recorded %d", n, x.Method, x.Target, got.Code, x.Response.Status)
	}
	if diff := cmp.Diff(headers(x.Response.Header, recorded), headers(got.Result().Header, ours)); diff != "" {
		t.Errorf("exchange %d: %s %s: headers (-recorded +got):\n%s", n, x.Method, x.Target, diff)
	}
	if diff := cmp.Diff(value(t, x.Response.Body, recorded), value(t, got.Body.Bytes(), ours)); diff != "" {
		t.Errorf("exchange %d: %s %s: body (-recorded +got):\n%s", n, x.Method, x.Target, diff)
	}
}

func headers(h http.Header, m *transcript.Mask) map[string]string {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if k != "Content-Length" {
			out[k] = m.Text(strings.Join(h[k], ", "))
		}
	}
	return out
}

// value is a body to compare: JSON by its meaning, anything else as it is.
func value(t *testing.T, body []byte, m *transcript.Mask) any {
	t.Helper()
	masked := []byte(m.Text(string(body)))
	var v any
	if err := json.Unmarshal(masked, &v); err != nil {
		return string(masked)
	}
	return v
}

// The recorded image was one unit of base64 above the limit.
func TestRecordedLargeImage(t *testing.T) {
	body := `{"kind":"user","body":"x","attachments":[{"type":"image","data":"` + strings.Repeat("A", 14680068) + `","mimeType":"image/png"}]}`
	got := do(mounted(httpapi.Config{Backend: newFake()}), "POST", "/agents/chat/big", http.Header{"Content-Type": {"application/json"}}, []byte(body))
	want := `{"error":{"type":"invalid_request","message":"Request is malformed.","details":"Image data exceeds the 14680064 character limit."}}`
	if got.Code != http.StatusBadRequest || got.Body.String() != want {
		t.Errorf("got  %d %s\nwant 400 %s", got.Code, got.Body, want)
	}
}

func TestContentLengthIsExact(t *testing.T) {
	srv := httptest.NewServer(mounted(httpapi.Config{Backend: newFake()}))
	defer srv.Close()
	url := srv.URL + "/agents/chat/c"
	long := `{"kind":"user","body":"` + strings.Repeat("x", 100_000) + `"}`
	for _, req := range []struct{ method, url, body string }{
		{"POST", url, long},
		{"GET", url, ""},
		{"GET", url + "?view=updates&offset=-1", ""},
		{"GET", url + "/nothing", ""},
		{"POST", url + "/abort", ""},
		{"PUT", url, ""},
	} {
		r, err := http.NewRequest(req.method, req.url, strings.NewReader(req.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.ContentLength != int64(len(b)) || len(b) == 0 {
			t.Errorf("%s %s: Content-Length %d for %d bytes, %v", req.method, req.url, resp.ContentLength, len(b), err)
		}
	}
}
