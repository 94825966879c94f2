package wire_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/wire"
)

// Every error that this package words must have the words that were recorded.
func TestRecordedWords(t *testing.T) {
	ours := map[string]*wire.Error{}
	add := func(es ...*wire.Error) {
		for _, e := range es {
			ours[e.Message+"\n"+e.Details] = e
		}
	}
	add(
		wire.StreamNotFound("agents/Chat/wmx2mxcws-ol"),
		wire.AttachmentNotFound("nope"),
		wire.MethodNotAllowed("POST", "GET"),
		wire.MethodNotAllowed("GET", "POST"),
		wire.MethodNotAllowed("PUT", "GET", "HEAD", "POST"),
		wire.Internal("err_01M8N3QQSYNSV37RPSQYJG6BZ1", io.EOF),
		wire.InstanceNotFound("wmx2mxcws-uid"),
		wire.InstanceExists("wmx2mxcws-uid", "inst_01M8N3QQXBBNAADMXGCGM628ZK"),
		wire.InitialDataMismatch("Invalid type: Expected Object but received undefined"),
		wire.InitialDataMismatch(`Invalid type: Expected number but received "seven".`),
		wire.SubmissionConflict("sub_ik_888280a5654673f01f5542c0c4f22159"),
		wire.UnsupportedMediaType(""),
		wire.UnsupportedMediaType("text/plain"),
		wire.OffsetGone("agents/Chat/wmx2mxcws-re", 9999, 9),
	)
	for _, body := range []string{
		`"hello"`,
		`{"kind":"user","body":"x","uid":5}`,
		`{"kind":"user","body":"x","uid":"u","initialData":{}}`,
		`{"kind":"user","body":"x","idempotencyKey":""}`,
		`{"kind":"user","body":"x","idempotencyKey":"` + strings.Repeat("k", 257) + `"}`,
		`{"kind":"signal","type":"resources","body":"x"}`,
		`{"kind":"signal","type":"submission_interrupted","body":"x"}`,
		`{"kind":"signal","type":"ok","body":"x","tagName":"1bad"}`,
		`{"kind":"user","body":"x","attachments":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", 14680068) + `"}]}`,
		`{"kind":`,
	} {
		_, err := wire.ParsePrompt([]byte(body))
		e, ok := errors.AsType[*wire.Error](err)
		if !ok {
			t.Fatalf("ParsePrompt(%.40q) = %v, want an error of the wire", body, err)
		}
		add(e)
	}

	// The handler words these.
	elsewhere := []string{
		"Agent prompts are", "Agent conversation URLs", "Invalid agent conversation view", "History reads",
		"Exactly one offset", "Invalid offset format", "Invalid live mode", "Update streams do not",
	}
	isElsewhere := func(details string) bool {
		for _, p := range elsewhere {
			if strings.HasPrefix(details, p) {
				return true
			}
		}
		return false
	}
	for _, line := range lines(t, "errors.jsonl") {
		var want wire.Envelope
		if err := json.Unmarshal(line, &want, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		if isElsewhere(want.Error.Details) {
			continue
		}
		e := ours[want.Error.Message+"\n"+want.Error.Details]
		if e == nil {
			t.Errorf("no error of this package has these words:\n%s", line)
			continue
		}
		if diff := cmp.Diff(decode(t, line), decode(t, e.Encode())); diff != "" {
			t.Errorf("%s differs (-recorded +got):\n%s", e.Code, diff)
		}
	}
}

func decode(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

func TestEncodeNeverSendsTheCause(t *testing.T) {
	e := wire.Internal("err_1", errors.New("password is hunter2"))
	if got := string(e.Encode()); strings.Contains(got, "hunter2") {
		t.Errorf("Encode gave away the cause: %s", got)
	}
}

func TestEncodeAnything(t *testing.T) {
	for _, e := range []*wire.Error{
		{Code: "x", Message: "bad \xff bytes", Details: "\x00<&>"},
		{Code: "x", Meta: map[string]any{"f": func() {}}},
	} {
		decode(t, e.Encode())
	}
}

func TestErrorIs(t *testing.T) {
	cause := io.ErrUnexpectedEOF
	err := fmt.Errorf("sending: %w", &wire.Error{Code: wire.CodeInternal, Message: "m", Err: cause})
	if !errors.Is(err, &wire.Error{Code: wire.CodeInternal}) {
		t.Error("an error is not matched by its code")
	}
	if errors.Is(err, &wire.Error{Code: wire.CodeInvalidJSON}) {
		t.Error("an error is matched by another code")
	}
	if errors.Is(err, &wire.Error{Code: wire.CodeInternal, Message: "other"}) {
		t.Error("an error is matched by other words")
	}
	if !errors.Is(err, cause) {
		t.Error("the cause is not matched")
	}
}

func TestStatus(t *testing.T) {
	tests := map[wire.Code]int{
		wire.CodeInvalidRequest:       http.StatusBadRequest,
		wire.CodeInvalidJSON:          http.StatusBadRequest,
		wire.CodeUnsupportedMediaType: http.StatusUnsupportedMediaType,
		wire.CodeMethodNotAllowed:     http.StatusMethodNotAllowed,
		wire.CodeTooLarge:             http.StatusRequestEntityTooLarge,
		wire.CodeStreamNotFound:       http.StatusNotFound,
		wire.CodeAttachmentNotFound:   http.StatusNotFound,
		wire.CodeInstanceNotFound:     http.StatusNotFound,
		wire.CodeInstanceExists:       http.StatusConflict,
		wire.CodeSubmissionConflict:   http.StatusConflict,
		wire.CodeOffsetGone:           http.StatusRequestedRangeNotSatisfiable,
		wire.CodeUnavailable:          http.StatusServiceUnavailable,
		wire.CodeOverloaded:           http.StatusServiceUnavailable,
		wire.CodeStoreUnavailable:     http.StatusServiceUnavailable,
		wire.CodeInternal:             http.StatusInternalServerError,
		"something_new":               http.StatusInternalServerError,
	}
	for code, want := range tests {
		if got := (&wire.Error{Code: code}).Status(); got != want {
			t.Errorf("Status of %s = %d, want %d", code, got, want)
		}
	}
}

// When to try again is told with what trying again may help, in whole seconds that
// are not too few, beside the header also in the body: clients may not see headers.
func TestRetryAfter(t *testing.T) {
	tests := []struct {
		err  *wire.Error
		want int64
		meta any
	}{
		{wire.Overloaded("backlog", 0), 1, int64(1)},
		{wire.Overloaded("backlog", time.Second), 1, int64(1)},
		{wire.Overloaded("memory", 2100*time.Millisecond), 3, int64(3)},
		{wire.StoreUnavailable(true, io.EOF), 5, int64(5)},
		{wire.StoreRefuses(io.EOF), 5, int64(5)},
		{wire.Unavailable(), 1, nil},
		{wire.StreamNotFound("x"), 0, nil},
		{wire.Internal("ref", io.EOF), 0, nil},
	}
	for _, tt := range tests {
		if got := tt.err.RetryAfterSeconds(); got != tt.want || tt.err.Meta["retryAfter"] != tt.meta {
			t.Errorf("%s: %d s, %v in the body; want %d, %v", tt.err.Code, got, tt.err.Meta, tt.want, tt.meta)
		}
		if strings.Contains(string(tt.err.Encode()), "EOF") {
			t.Errorf("clients are told of the cause: %s", tt.err.Encode())
		}
	}
}
