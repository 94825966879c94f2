package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/conformance/transcript"
)

// client does not follow redirects, as the recorded one did not.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// ask sends a request as it was recorded.
func ask(t *testing.T, origin string, x *transcript.Exchange) *transcript.Exchange {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), x.Method, origin+x.Target, bytes.NewReader(x.Body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = x.Header.Clone()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &transcript.Exchange{
		Method: x.Method, Target: x.Target, Header: x.Header, Body: x.Body,
		Response: &transcript.Response{Status: resp.StatusCode, Header: resp.Header, Body: b},
	}
}

func get(t *testing.T, origin, target string) *transcript.Exchange {
	t.Helper()
	return ask(t, origin, &transcript.Exchange{Method: "GET", Target: target, Header: http.Header{}})
}

// deliver sends a message and waits until it is settled.
func deliver(t *testing.T, origin, path, text string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"kind": "user", "body": text})
	if err != nil {
		t.Fatal(err)
	}
	x := ask(t, origin, &transcript.Exchange{Method: "POST", Target: path, Header: http.Header{"Content-Type": {"application/json"}}, Body: body})
	if x.Response.Status != http.StatusAccepted {
		t.Fatalf("POST %s: %d %s", path, x.Response.Status, x.Response.Body)
	}
	settle(t, origin, x)
}

// settle waits until the submission of an admission is settled.
func settle(t *testing.T, origin string, admission *transcript.Exchange) {
	t.Helper()
	var a struct{ SubmissionID, Offset string }
	if err := json.Unmarshal(admission.Response.Body, &a); err != nil {
		t.Fatal(err)
	}
	path, _, _ := strings.Cut(admission.Target, "?")
	for offset, end := a.Offset, time.Now().Add(time.Minute); time.Now().Before(end); {
		x := get(t, origin, path+"?view=updates&live=long-poll&offset="+offset)
		if x.Response.Status != http.StatusOK {
			t.Fatalf("GET %s: %d %s", x.Target, x.Response.Status, x.Response.Body)
		}
		for _, c := range chunksOf(x.Response) {
			if c["type"] == "submission-settled" && c["submissionId"] == a.SubmissionID {
				return
			}
		}
		offset = x.Response.Header.Get("Stream-Next-Offset")
	}
	t.Fatalf("submission %s does not settle", a.SubmissionID)
}

// Every recorded request must be answered as it was.
func TestRawExchanges(t *testing.T) {
	for _, name := range []string{"29-raw-admission-errors", "30-raw-methods", "31-raw-not-found", "32-raw-read-errors"} {
		t.Run(name, func(t *testing.T) {
			origin := start(t).URL
			s := &scenario{t: t, name: name, recorded: recording(t, name)}
			var w, g comparer
			for i, want := range s.recorded.Exchanges {
				got := ask(t, origin, want)
				if got.Response.Status == http.StatusAccepted {
					settle(t, origin, got)
				}
				place := fmt.Sprintf("answer %d: %s %s", i+1, want.Method, want.Target)
				if u, err := url.ParseRequestURI(want.Target); err == nil && isRead(want) && u.Query().Get("view") == "updates" {
					s.compare(place, masked(&w, joined(chunksOf(want.Response))), masked(&g, joined(chunksOf(got.Response))))
					continue
				}
				s.compare(place, answer(&w, want), answer(&g, got))
			}
		})
	}
}

// A long conversation is read in pages of at most a hundred batches, and only
// the last one says that it is the last.
func TestPages(t *testing.T) {
	origin := start(t).URL
	const path = "/agents/chat/c-pg"
	turns := 0
	for ; turns < 14; turns++ {
		deliver(t, origin, path, fmt.Sprintf("n%d @id=pg%d @text=1", turns, turns))
	}
	read := func() (chunks []chunk, pages int) {
		for offset := "-1"; ; pages++ {
			x := get(t, origin, path+"?view=updates&offset="+offset)
			chunks = append(chunks, chunksOf(x.Response)...)
			if next := x.Response.Header.Get("Stream-Next-Offset"); next == offset || pages > 100 {
				t.Fatalf("page %d ends where it begins, at %s", pages, offset)
			} else {
				offset = next
			}
			switch x.Response.Header.Get("Stream-Up-To-Date") {
			case "true":
				return chunks, pages + 1
			case "":
			default:
				t.Fatalf("Stream-Up-To-Date is %q", x.Response.Header.Get("Stream-Up-To-Date"))
			}
		}
	}
	for _, pages := read(); pages < 2; _, pages = read() { // this engine needs fewer batches for a turn
		turns++
		deliver(t, origin, path, fmt.Sprintf("n%d @id=pg%d @text=1", turns, turns))
	}

	want := updates(recording(t, "33-raw-paging").Exchanges)[path]
	var got []chunk
	chunks, _ := read()
	for _, c := range chunks {
		if c["position"] != nil {
			got = append(got, c)
		}
	}
	want, got = joined(want), joined(got)
	var w, g comparer
	if diff := cmp.Diff(masked(&w, want), masked(&g, got[:len(want)])); diff != "" {
		t.Errorf("the pages together (-recorded +got):\n%s", diff)
	}
	seen := map[string]bool{}
	for _, c := range got {
		p := fmt.Sprint(c["position"])
		if seen[p] {
			t.Errorf("position %s is there twice", p)
		}
		seen[p] = true
	}
}

// A stream that is dropped is taken up again at the last control event, and
// what is read again has the same positions.
func TestStreamReconnects(t *testing.T) {
	origin := start(t).URL
	const path = "/agents/chat/c-sr"
	recorded := recording(t, "34-raw-sse-reconnect")
	admission := ask(t, origin, recorded.Exchanges[0])
	if admission.Response.Status != http.StatusAccepted {
		t.Fatalf("POST: %d %s", admission.Response.Status, admission.Response.Body)
	}
	start := admission.Response.Header.Get("Stream-Next-Offset")

	first, offset := readStream(t, origin, path, start, func(seen []chunk) bool { return has(seen, "message-delta") })
	second, _ := readStream(t, origin, path, offset, func(seen []chunk) bool { return has(seen, "submission-settled") })
	again, _ := readStream(t, origin, path, start, func(seen []chunk) bool { return has(seen, "submission-settled") })

	resumed := append(first, second...)
	for i := range min(len(resumed), len(again)) {
		if a, b := fmt.Sprint(resumed[i]["position"]), fmt.Sprint(again[i]["position"]); a != b {
			t.Fatalf("change %d has position %s, and %s when it is read again", i, a, b)
		}
	}
	var w, g, h comparer
	want := masked(&w, joined(updates(recorded.Exchanges)[path]))
	if diff := cmp.Diff(want, masked(&g, joined(resumed))); diff != "" {
		t.Errorf("resumed (-recorded +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, masked(&h, joined(again))); diff != "" {
		t.Errorf("read again (-recorded +got):\n%s", diff)
	}
}

// The outputs of calls that run side by side are there as each call ends.
func TestParallelOutputsArriveAsTheyCome(t *testing.T) {
	origin := start(t).URL
	const path = "/agents/tool/c-par"
	deliver(t, origin, path, `x @id=par @par=3 @tool=slowest_first:{} @text=1`)
	var order []string
	for _, c := range updates([]*transcript.Exchange{get(t, origin, path+"?view=updates&offset=-1")})[path] {
		if isOutput(c) {
			order = append(order, c["toolCallId"].(string))
		}
	}
	if diff := cmp.Diff([]string{"call_par_0_2", "call_par_0_1", "call_par_0_0"}, order); diff != "" {
		t.Errorf("order of the outputs (-want +got):\n%s", diff)
	}
}

func has(cs []chunk, kind string) bool {
	for _, c := range cs {
		if c["type"] == kind {
			return true
		}
	}
	return false
}

// readStream reads server-sent events until the changes are enough, and drops
// the connection. It returns them and the offset of the last control event.
func readStream(t *testing.T, origin, path, offset string, enough func([]chunk) bool) ([]chunk, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", origin+path+"?view=updates&live=sse&offset="+offset, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var seen, pending []chunk
	event := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		data, ok := strings.CutPrefix(line, "data:")
		switch {
		case !ok:
		case event == "data":
			var cs []chunk
			if err := json.Unmarshal([]byte(data), &cs); err != nil {
				t.Fatal(err)
			}
			pending = append(pending, cs...)
		case event == "control":
			var control struct{ StreamNextOffset string }
			if err := json.Unmarshal([]byte(data), &control); err != nil {
				t.Fatal(err)
			}
			for _, c := range pending {
				if c["position"] != nil {
					seen = append(seen, c)
				}
			}
			pending = nil
			if enough(seen) {
				return seen, control.StreamNextOffset
			}
		}
	}
	t.Fatalf("the stream ended after %d changes: %v", len(seen), lines.Err())
	return nil, ""
}
