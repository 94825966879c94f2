package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/flue-go/flue/conformance/transcript"
)

var (
	offsets = regexp.MustCompile(`0000000000000000_\d{16}`)
	origins = regexp.MustCompile(`http://(?:127\.0\.0\.1:\d+|example\.com)`)
)

// A comparer brings values of one side into a form that can be compared with
// the other side's: ids, times, durations, offsets and origins are masked.
type comparer struct {
	mask  transcript.Mask
	words bool // mask long runs of words as well: how many there were depends on when it was aborted
}

var longText = regexp.MustCompile(`word0 (?:word\d+ ){9,}`)

// text masks a text.
func (c *comparer) text(s string) string {
	s = origins.ReplaceAllString(s, "<origin>")
	if c.words {
		s = longText.ReplaceAllString(s, "<words>")
	}
	return c.mask.Text(offsets.ReplaceAllString(s, "<offset>"))
}

// body masks a body. JSON is compared by its meaning.
func (c *comparer) body(b []byte) any {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return c.text(string(b))
	}
	return c.value(v)
}

// value masks a decoded JSON value, in the order of the names so that ids get
// the same numbers on both sides.
func (c *comparer) value(v any) any {
	switch v := v.(type) {
	case string:
		return c.text(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = c.value(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch k {
			case "position": // orders chunks, see updates
			case "durationMs", "ms": // the second is what a tool has measured itself
				out[k] = "<duration>"
			default:
				out[k] = c.value(v[k])
			}
		}
		return out
	}
	return v
}

// headers masks the headers of a response, without those that every server
// adds by itself.
func (c *comparer) headers(h http.Header) map[string]string {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		switch k {
		case "Date", "Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding":
		default:
			out[k] = c.text(strings.Join(h[k], ", "))
		}
	}
	return out
}

// kindOf tells which answers are alike: what was asked and how it went.
func kindOf(x *transcript.Exchange) string {
	u, err := url.ParseRequestURI(x.Target)
	if err != nil || x.Response == nil {
		return ""
	}
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	rest := strings.Join(path[min(3, len(path)):min(4, len(path))], "")
	return fmt.Sprintf("%s %s %s %s %d", x.Method, rest, u.Query().Get("view"), u.Query().Get("live"), x.Response.Status)
}

// A chunk is one change, decoded.
type chunk = map[string]any

// updates collects the changes that were read of each conversation, in the
// order of their positions and each of them once.
func updates(xs []*transcript.Exchange) map[string][]chunk {
	byPosition := map[string]map[[2]float64]chunk{}
	for _, x := range xs {
		u, err := url.ParseRequestURI(x.Target)
		if err != nil || x.Method != "GET" || u.Query().Get("view") != "updates" || x.Response == nil || x.Response.Status != 200 {
			continue
		}
		for _, c := range chunksOf(x.Response) {
			p, ok := c["position"].(map[string]any)
			if !ok {
				continue // the checkpoint
			}
			if byPosition[u.Path] == nil {
				byPosition[u.Path] = map[[2]float64]chunk{}
			}
			byPosition[u.Path][[2]float64{p["batch"].(float64), p["index"].(float64)}] = c
		}
	}
	out := map[string][]chunk{}
	for path, cs := range byPosition {
		keys := slices.SortedFunc(maps.Keys(cs), func(a, b [2]float64) int { return slices.Compare(a[:], b[:]) })
		for _, k := range keys {
			out[path] = append(out[path], cs[k])
		}
	}
	return out
}

// chunksOf decodes the changes in a response.
func chunksOf(r *transcript.Response) []chunk {
	if r.Header.Get("Content-Type") != "text/event-stream" {
		var cs []chunk
		_ = json.Unmarshal(r.Body, &cs) // one that was cut off has none
		return cs
	}
	var all []chunk
	for event := range strings.SplitSeq(string(r.Body), "\n\n") {
		if data, ok := strings.CutPrefix(event, "event: data\ndata:"); ok {
			var cs []chunk
			_ = json.Unmarshal([]byte(data), &cs)
			all = append(all, cs...)
		}
	}
	return all
}

// joined joins the deltas that follow each other in the same message and of
// the same kind: how a text is cut into deltas is the engine's affair. The
// outputs of calls that ran side by side are put in the order of the calls.
func joined(cs []chunk) []chunk {
	cs = slices.Clone(cs)
	for i := 0; i < len(cs); i++ {
		n := i
		for n < len(cs) && isOutput(cs[n]) {
			n++
		}
		slices.SortStableFunc(cs[i:n], func(a, b chunk) int {
			return strings.Compare(a["toolCallId"].(string), b["toolCallId"].(string))
		})
		i = max(i, n-1)
	}
	var out []chunk
	for _, c := range cs {
		if last := len(out) - 1; last >= 0 && c["type"] == "message-delta" && out[last]["type"] == "message-delta" &&
			out[last]["messageId"] == c["messageId"] && out[last]["kind"] == c["kind"] {
			merged := maps.Clone(out[last])
			merged["delta"] = merged["delta"].(string) + c["delta"].(string)
			out[last] = merged
			continue
		}
		out = append(out, c)
	}
	return out
}

func isOutput(c chunk) bool { return c["type"] == "tool-output" || c["type"] == "tool-output-error" }

// A result is what a client noted, taken from a note of a recording: a JSON
// value, a text, or an error.
func result(text string) any {
	var v any
	if json.Unmarshal([]byte(text), &v) == nil {
		return v
	}
	if m := executionError.FindStringSubmatch(text); m != nil {
		return map[string]any{"thrown": map[string]any{"name": m[1], "failure": m[2], "targetId": m[3], "message": m[4], "error": result(m[5])}}
	}
	if m := apiError.FindStringSubmatch(text); m != nil {
		return map[string]any{"thrown": map[string]any{"name": m[1], "status": json.Number(m[2]), "hasRef": m[3] != "undefined", "message": m[4]}}
	}
	if text == "undefined" {
		return nil
	}
	return text
}

var (
	executionError = regexp.MustCompile(`^(FlueExecutionError) failure=(\w+) targetId=(\S+) message=(.*) error=(\{.*\})$`)
	apiError       = regexp.MustCompile(`^(FlueApiError) status=(\d+) ref=(\S+) message=(.*)$`)
)
