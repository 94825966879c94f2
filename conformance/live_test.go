package conformance_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/conformance/transcript"
)

// timed is an agent whose model says what time it is.
var timed = &flue.Agent{Name: "timed", Render: func(r *flue.Render) string {
	flue.UseModel(r, "timed/timed")
	return "You are a clock."
}}

// The pieces of an answer of the model that says what time it is.
const (
	timedPieces = 150
	timedEvery  = 20 * time.Millisecond
)

// answerWithTimes is a model whose pieces are the times at which they are sent, in
// nanoseconds.
func answerWithTimes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	event := func(choice string) {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"timed\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"timed\",\"choices\":[%s]}\n\n", choice)
		_ = rc.Flush() // whoever has left is missed by the loop
	}
	tick := time.NewTicker(timedEvery)
	defer tick.Stop()
	for range timedPieces {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		event(fmt.Sprintf(`{"index":0,"delta":{"content":"%d "},"finish_reason":null}`, time.Now().UnixNano()))
	}
	event(`{"index":0,"delta":{},"finish_reason":"stop"}`)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// Text reaches those who read at another replica soon after the model has said it.
// The bound is generous; docs/performance.md has what was measured.
func TestLiveTextElsewhere(t *testing.T) {
	rs := startReplicas(t, 3)
	const path = "/agents/timed/c-live"
	first := rs.all[0]
	deliver(t, first.url, path, "what time is it?")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type measured struct {
		delays []time.Duration
		err    error
	}
	results := make([]chan measured, len(rs.all))
	offset := newest(t, first.url, path)
	for i, r := range rs.all {
		results[i] = make(chan measured, 1)
		events, err := followEvents(ctx, r.url+path, offset)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			delays, err := delaysOf(events)
			results[i] <- measured{delays, err}
		}()
	}
	post(t, first.url+path, "and now?")
	for i, c := range results {
		m := <-c
		if m.err != nil || len(m.delays) != timedPieces {
			t.Fatalf("%s: %d of %d pieces came, %v", rs.all[i].name, len(m.delays), timedPieces, m.err)
		}
		slices.Sort(m.delays)
		p50, p99 := m.delays[len(m.delays)/2], m.delays[len(m.delays)*99/100]
		where := "another replica"
		if i == 0 {
			where = "the owner"
		}
		t.Logf("a piece of text came to a reader at %s after %v (median), %v (p99)", where, p50.Round(100*time.Microsecond), p99.Round(100*time.Microsecond))
		if p50 > 100*time.Millisecond {
			t.Errorf("text came to a reader at %s after %v (median), want at most 100 ms", where, p50)
		}
	}
}

// newest returns the offset up to which a conversation has come.
func newest(t *testing.T, origin, path string) string {
	t.Helper()
	return get(t, origin, path+"?view=history").Response.Header.Get("Stream-Next-Offset")
}

// post sends a message and waits for nothing.
func post(t *testing.T, target, text string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"kind": "user", "body": text})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	x := ask(t, u.Scheme+"://"+u.Host, &transcript.Exchange{Method: "POST", Target: u.Path, Header: http.Header{"Content-Type": {"application/json"}}, Body: body})
	if x.Response.Status != http.StatusAccepted {
		t.Fatalf("the message was answered with %d %s", x.Response.Status, x.Response.Body)
	}
}

// followEvents begins to follow a conversation. The events end with ctx.
func followEvents(ctx context.Context, target, offset string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", target+"?view=updates&live=sse&offset="+url.QueryEscape(offset), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("following: %s", resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// delaysOf reads events until a submission is settled, and returns how long each
// piece of text has been on its way.
func delaysOf(events io.ReadCloser) (delays []time.Duration, err error) {
	defer events.Close()
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok || !strings.HasPrefix(data, "[") {
			continue
		}
		now := time.Now()
		var cs []struct{ Type, Delta string }
		if err := json.Unmarshal([]byte(data), &cs); err != nil {
			return delays, err
		}
		for _, c := range cs {
			for field := range strings.FieldsSeq(c.Delta) {
				at, err := strconv.ParseInt(field, 10, 64)
				if err != nil {
					return delays, err
				}
				delays = append(delays, now.Sub(time.Unix(0, at)))
			}
			if c.Type == "submission-settled" {
				return delays, nil
			}
		}
	}
	return delays, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
