package bedrock_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/bedrock"
	"github.com/flue-go/flue/model/modeltest"
	"github.com/google/go-cmp/cmp"
)

// An exchange is a recorded answer and what it amounts to. A CallID of "*"
// stands for any.
type exchange struct {
	name   string
	blocks []model.Block
	done   model.Done
}

var exchanges = []exchange{
	{
		"text.events",
		[]model.Block{{Kind: model.Text, Text: "Hello – I can help with “orders” & <returns> 👋🏽 你好\n\nAsk away."}},
		model.Done{Stop: model.StopEnd, Reason: "end_turn", Usage: model.Usage{Input: 21, Output: 31, CacheRead: 1840}},
	},
	{
		"tools.events",
		[]model.Block{
			{Kind: model.Reasoning, Text: "The customer names two orders.\nI should look up both ", Opaque: json.RawMessage(`{"signature":"EqQBCgIYAhIkYjM4/+8=="}`)},
			{Kind: model.Reasoning, Opaque: json.RawMessage(`{"redacted":"RW13S0FoZ0JFZ3k="}`)},
			{Kind: model.Text, Text: "Let me check both."},
			{Kind: model.ToolCall, CallID: "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", Name: "lookup_order", Arguments: `{"orderId": "ORD-1", "note": "café \u2603"}`},
			{Kind: model.ToolCall, CallID: "tooluse_2", Name: "now"},
		},
		model.Done{Stop: model.StopToolUse, Reason: "tool_use", Usage: model.Usage{Input: 412, Output: 187, CacheWrite: 2210}},
	},
	{
		"overlap.events",
		[]model.Block{
			{Kind: model.ToolCall, CallID: "t1", Name: "a", Arguments: `{"n":1}`},
			{Kind: model.ToolCall, CallID: "*", Name: "b", Arguments: `{"n":2}`},
		},
		model.Done{Stop: model.StopToolUse, Reason: "tool_use", Usage: model.Usage{Input: 9, Output: 8}},
	},
	{
		"length.events",
		[]model.Block{
			{Kind: model.Text, Text: "I will write"},
			{Kind: model.ToolCall, CallID: "t9", Name: "write", Arguments: `{"path":"a.txt","content":"hel`},
		},
		model.Done{Stop: model.StopLength, Reason: "max_tokens", Usage: model.Usage{Input: 10, Output: 20}},
	},
	{
		"guardrail.events",
		[]model.Block{{Kind: model.Text, Text: "Sorry, the model cannot answer this question."}},
		model.Done{Stop: model.StopFiltered, Reason: "guardrail_intervened"},
	},
}

// compare checks what an answer amounts to.
func (x exchange) compare(t *testing.T, got modeltest.Answer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Blocks {
		if i < len(x.blocks) && x.blocks[i].CallID == "*" && got.Blocks[i].CallID != "" {
			got.Blocks[i].CallID = "*"
		}
	}
	if diff := cmp.Diff(x.blocks, got.Blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if got.Done == nil || *got.Done != x.done {
		t.Errorf("done = %+v, want %+v", got.Done, x.done)
	}
}

// Whatever the chunks in which an answer arrives, it is the same answer.
func TestAnswers(t *testing.T) {
	s := newService(t)
	for _, x := range exchanges {
		whole := frames(t, recorded(t, x.name))
		single := make([][]byte, 0, 4096)
		for _, b := range join(whole) {
			single = append(single, []byte{b})
		}
		for name, parts := range map[string][][]byte{"at once": {join(whole)}, "by event": whole, "by byte": single} {
			t.Run(x.name+" "+name, func(t *testing.T) {
				s.play(parts...)
				got, err := modeltest.Collect(t, s.provider().Stream(t.Context(), modeltest.Hello()))
				x.compare(t, got, err)
			})
		}
	}
}

func join(frames [][]byte) []byte {
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	return all
}

// complete returns how many frames it takes for an answer to be whole.
func complete(t *testing.T, recorded string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(recorded) {
		n++
		if strings.HasPrefix(line, "messageStop ") {
			return n
		}
	}
	t.Fatal("the answer does not stop")
	return 0
}

// An answer that ends too early is a failure that may pass, wherever it ends and
// however politely. What breaks after the stop reason does no harm.
func TestCutAnswers(t *testing.T) {
	s := newService(t)
	p := s.provider()
	for _, x := range exchanges {
		text := recorded(t, x.name)
		all := frames(t, text)
		n := complete(t, text)
		whole, body := len(join(all[:n])), join(all)
		step := 7
		if testing.Short() {
			step = 97
		}
		for cut := 0; cut <= len(body); cut += step {
			s.play(body[:cut])
			got, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello()))
			if cut >= whole {
				if err != nil || got.Done == nil || got.Done.Stop != x.done.Stop {
					t.Fatalf("%s cut after byte %d, complete at %d: done = %+v, error = %v", x.name, cut, whole, got.Done, err)
				}
				continue
			}
			wantClass(t, err, model.Retryable, "")
			if got.Done != nil || t.Failed() {
				t.Fatalf("%s cut after byte %d, complete at %d: done = %+v, error = %v", x.name, cut, whole, got.Done, err)
			}
		}
		for i := range all {
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				send(w, all[:i+1]...)
				panic(http.ErrAbortHandler) // resets the connection
			})
			got, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello()))
			if done := got.Done != nil; done != (i+1 >= n) {
				t.Errorf("%s reset after event %d, complete after %d: done = %v, error = %v", x.name, i+1, n, done, err)
			}
		}
	}
}

// Bytes that do not parse are a failure that may pass.
func TestGarbage(t *testing.T) {
	s := newService(t)
	all := frames(t, recorded(t, "tools.events"))
	for i := range all[:complete(t, recorded(t, "tools.events"))] {
		damaged := append([]byte{}, all[i]...)
		damaged[len(damaged)/2] ^= 0x55
		for name, garbage := range map[string][]byte{"damaged": damaged, "other": []byte("HTTP/1.1 502 Bad Gateway\r\n\r\n")} {
			s.play(join(append(append(append([][]byte{}, all[:i]...), garbage), all[i+1:]...)))
			got, err := modeltest.Collect(t, s.provider().Stream(t.Context(), modeltest.Hello()))
			wantClass(t, err, model.Retryable, "")
			if got.Done != nil {
				t.Errorf("event %d is %s and the answer is done", i, name)
			}
		}
	}
}

func TestCancel(t *testing.T) {
	s := newService(t)
	all := frames(t, recorded(t, "tools.events"))
	cause := errors.New("the submission was aborted")
	for _, n := range []int{0, 1, len(all) / 2} {
		left := make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		s.answer(func(w http.ResponseWriter, r *http.Request) {
			send(w, all[:n]...)
			cancel(cause)
			hold(t, r, left)
		})
		if _, err := modeltest.Collect(t, s.provider().Stream(ctx, modeltest.Hello())); !errors.Is(err, cause) {
			t.Errorf("cancelled after %d events: error = %v, want the context's cause", n, err)
		}
		gone(t, left)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	s.answer(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent under a context that had ended") })
	if _, err := modeltest.Collect(t, s.provider().Stream(ctx, modeltest.Hello())); !errors.Is(err, cause) {
		t.Errorf("context ended before the call: error = %v, want its cause", err)
	}
}

// A consumer that leaves closes the connection, and nothing stays behind.
func TestLeave(t *testing.T) {
	s := newService(t)
	all := frames(t, recorded(t, "tools.events"))
	before := runtime.NumGoroutine()
	for n := 2; n < complete(t, recorded(t, "tools.events")); n++ {
		left := make(chan struct{})
		s.answer(func(w http.ResponseWriter, r *http.Request) {
			send(w, all[:n]...)
			hold(t, r, left)
		})
		for _, err := range s.provider().Stream(t.Context(), modeltest.Hello()) {
			if err != nil {
				t.Errorf("left after %d events: error = %v", n, err)
			}
			break
		}
		gone(t, left)
	}
	s.server.Client().CloseIdleConnections()
	s.server.CloseClientConnections()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before+2; <-tick.C {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}

const idle = 60 * time.Millisecond

// A service that stops speaking is given up, whether it has begun or not.
func TestSilence(t *testing.T) {
	s := newService(t)
	all := frames(t, recorded(t, "tools.events"))
	for _, n := range []int{-1, 0, 1, 3, 10, complete(t, recorded(t, "tools.events")) - 1} {
		left := make(chan struct{})
		s.answer(func(w http.ResponseWriter, r *http.Request) {
			if n >= 0 {
				send(w, all[:n]...)
			}
			hold(t, r, left)
		})
		p := s.provider(func(c *bedrock.Config) { c.IdleTimeout, c.FirstTimeout = idle, idle })
		_, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello()))
		wantClass(t, err, model.Retryable, "sent nothing for 60ms")
		gone(t, left)
	}
}

// A service that sends nothing that is part of the answer is given up in the end.
func TestOnlySignsOfLife(t *testing.T) {
	s := newService(t)
	all := frames(t, recorded(t, "text.events"))
	ping := frames(t, `newsOfALaterAPI {}`)
	left := make(chan struct{})
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		send(w, all[:2]...)
		tick := time.NewTicker(idle / 10)
		defer tick.Stop()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
				_, _ = w.Write(ping[0])
				_ = http.NewResponseController(w).Flush()
			}
		}
		t.Error("the provider does not close the connection")
	})
	p := s.provider(func(c *bedrock.Config) { c.ContentTimeout = idle })
	_, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello()))
	wantClass(t, err, model.Retryable, "sent nothing but signs of life for 60ms")
	gone(t, left)
}

// The timeout does not run while the consumer is busy with an event.
func TestSlowConsumer(t *testing.T) {
	s := newService(t)
	all := frames(t, recorded(t, "text.events"))
	awake := make(chan struct{})
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		send(w, all[:2]...)
		<-awake
		send(w, all[2:]...)
	})
	p := s.provider(func(c *bedrock.Config) { c.IdleTimeout, c.FirstTimeout = idle, idle })
	first := true
	_, err := modeltest.Collect(t, func(yield func(model.Event, error) bool) {
		for e, err := range p.Stream(t.Context(), modeltest.Hello()) {
			if first {
				first = false
				<-time.After(2 * idle)
				close(awake)
			}
			if !yield(e, err) {
				return
			}
		}
	})
	if err != nil {
		t.Errorf("error = %v", err)
	}
}

func TestConcurrent(t *testing.T) {
	s := newService(t)
	s.play(frames(t, recorded(t, "tools.events"))...)
	p := s.provider()
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			got, err := modeltest.Collect(t, p.Stream(t.Context(), modeltest.Hello()))
			if err != nil || len(got.Blocks) != 5 {
				t.Errorf("blocks = %v, error = %v", got.Blocks, err)
			}
		})
	}
	calls.Wait()
}

func wantClass(t *testing.T, err error, class model.Class, part string) {
	t.Helper()
	var e *model.Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("error = %v (%T), want a *model.Error of class %s", err, err, class)
	case e.Class != class || !strings.Contains(e.Message, part) || e.Provider == "":
		t.Errorf("error = %v of class %s, want class %s and %q", e, e.Class, class, part)
	case strings.Contains(e.Error(), "AKIDEXAMPLE") || len(e.Error()) > 8<<10:
		t.Errorf("error = %.300v (%d bytes)", e, len(e.Error()))
	}
}

func TestRefusals(t *testing.T) {
	s := newService(t)
	for _, tt := range []struct {
		name   string
		status int
		kind   string
		body   string
		class  model.Class
		part   string
	}{
		{"throttled", 429, "ThrottlingException", `{"message":"Too many requests, please wait before trying again."}`, model.RateLimited, "Too many requests"},
		{"throttled for the day", 429, "ThrottlingException", `{"message":"Too many tokens per day, please wait before trying again."}`, model.Quota, "per day"},
		{"quota", 400, "ServiceQuotaExceededException", `{"message":"Your request exceeds the service quota"}`, model.Quota, "quota"},
		{"unavailable", 503, "ServiceUnavailableException", `{"message":"Bedrock is unable to process your request."}`, model.Overloaded, "unable"},
		{"not ready", 429, "ModelNotReadyException", `{"message":"The model is not ready"}`, model.Overloaded, "not ready"},
		{"model timeout", 408, "ModelTimeoutException", `{"message":"The model took too long"}`, model.Retryable, "too long"},
		{"server", 500, "InternalServerException", `{"message":"oops"}`, model.Retryable, "500: oops"},
		{"model failed", 424, "ModelErrorException", `{"message":"The model failed","originalStatusCode":500,"resourceName":"m"}`, model.Retryable, "The model failed"},
		{"model is busy", 424, "ModelErrorException", `{"message":"Slow down","originalStatusCode":429}`, model.RateLimited, "Slow down"},
		{"validation", 400, "ValidationException", `{"message":"The provided model identifier is invalid."}`, model.Invalid, "identifier"},
		{"overflow", 400, "ValidationException", `{"message":"Input is too long for requested model."}`, model.Overflow, "too long"},
		{"overflow, in Claude's words", 400, "ValidationException", `{"message":"The model returned the following errors: prompt is too long: 208310 tokens > 200000 maximum"}`, model.Overflow, "too long"},
		{"access", 403, "AccessDeniedException", `{"message":"You don't have access to the model with the specified model ID."}`, model.Auth, "access"},
		{"expired", 403, "ExpiredTokenException", `{"message":"The security token included in the request is expired"}`, model.Auth, "expired"},
		{"unknown key", 403, "UnrecognizedClientException", `{"message":"The security token included in the request is invalid."}`, model.Auth, "invalid"},
		{"no model", 404, "ResourceNotFoundException", `{"message":"Could not resolve the foundation model"}`, model.Invalid, "404: Could not"},
		{"no body", 502, "", ``, model.Retryable, "502: bad gateway"},
		{"a web page", 503, "", `<html>busy</html>`, model.Retryable, "503: service unavailable"},
		{"a refusal without a name", 403, "", `{"Message":"no"}`, model.Auth, "403: no"},
		{"endless", 500, "", strings.Repeat("x", 1<<20), model.Retryable, "500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				calls++
				if tt.kind != "" {
					w.Header().Set("X-Amzn-Errortype", tt.kind+":http://internal.amazon.com/coral/com.amazon.bedrock/")
				}
				w.Header().Set("X-Amzn-Requestid", "r-1")
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := modeltest.Collect(t, s.provider().Stream(t.Context(), modeltest.Hello()))
			class, part := tt.class, strings.TrimPrefix(tt.part, "")
			var e *model.Error
			if !errors.As(err, &e) || e.Class != class || !strings.Contains(e.Error(), part) {
				t.Fatalf("error = %v, want class %s and %q", err, class, part)
			}
			if !strings.Contains(e.Message, "(request r-1)") || e.RetryAfter != 7*time.Second || len(e.Error()) > 8<<10 {
				t.Errorf("error = %.300v, retry after %v", e, e.RetryAfter)
			}
			if calls != 1 {
				t.Errorf("the call was made %d times", calls)
			}
		})
	}
}

func TestFailuresInAStream(t *testing.T) {
	s := newService(t)
	begin := `messageStart {"role":"assistant"}` + "\n" + `contentBlockDelta {"contentBlockIndex":0,"delta":{"text":"a"}}` + "\n"
	for _, tt := range []struct {
		name, stream string
		class        model.Class
		part         string
	}{
		{"throttled", begin + `!throttlingException {"message":"Too many tokens, please wait"}`, model.RateLimited, "Too many tokens"},
		{"validation", `!validationException {"message":"no"}`, model.Invalid, "no"},
		{"overflow", `!validationException {"message":"Input is too long for requested model."}`, model.Overflow, "too long"},
		{"server", begin + `!internalServerException {"message":"oops"}`, model.Retryable, "oops"},
		{"unavailable", begin + `!serviceUnavailableException {"message":"busy"}`, model.Overloaded, "busy"},
		{"model", begin + `!modelStreamErrorException {"message":"broke","originalStatusCode":500}`, model.Retryable, "broke"},
		{"model, in its own words", begin + `!modelStreamErrorException {"originalMessage":"overloaded","originalStatusCode":529}`, model.Overloaded, "overloaded"},
		{"something new", begin + `!tooTiredException {"message":"zzz"}`, model.Retryable, ""},
		{"starts twice", begin + `contentBlockStart {"contentBlockIndex":0,"start":{"toolUse":{"name":"a","toolUseId":"1"}}}`, model.Retryable, "starts twice"},
		{"grows without a start", `contentBlockDelta {"contentBlockIndex":3,"delta":{"toolUse":{"input":"{}"}}}`, model.Retryable, "without a start"},
		{"changes its kind", begin + `contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"b"}}}`, model.Retryable, "got a reasoning"},
		{"malformed call", begin + `messageStop {"stopReason":"malformed_tool_use"}`, model.Retryable, "malformed_tool_use"},
		{"no JSON", begin + `contentBlockDelta {"contentBlockIndex":`, model.Retryable, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.play(frames(t, tt.stream)...)
			got, err := modeltest.Collect(t, s.provider().Stream(t.Context(), modeltest.Hello()))
			wantClass(t, err, tt.class, tt.part)
			if got.Done != nil {
				t.Errorf("done = %+v", got.Done)
			}
		})
	}
}

func TestStopReasons(t *testing.T) {
	s := newService(t)
	for reason, want := range map[string]model.StopReason{
		"end_turn": model.StopEnd, "stop_sequence": model.StopEnd, "tool_use": model.StopToolUse, "max_tokens": model.StopLength,
		"model_context_window_exceeded": model.StopLength, "content_filtered": model.StopFiltered, "a_new_one": model.StopEnd,
	} {
		s.play(frames(t, `messageStop {"stopReason":"`+reason+`"}`)...)
		got, err := modeltest.Collect(t, s.provider().Stream(t.Context(), modeltest.Hello()))
		if err != nil || got.Done.Stop != want || got.Done.Reason != reason {
			t.Errorf("%s: done = %+v, error = %v, want %s", reason, got.Done, err, want)
		}
	}
}

// The service cannot be reached, or nobody says as whom to ask it.
func TestNoConnection(t *testing.T) {
	s := newService(t)
	for _, tt := range []struct {
		name  string
		edit  func(*bedrock.Config)
		class model.Class
		part  string
	}{
		{"nobody there", func(c *bedrock.Config) { c.AWS.BaseEndpoint = aws.String("http://127.0.0.1:1") }, model.Retryable, "no connection"},
		{"no region", func(c *bedrock.Config) { c.AWS.Region = "" }, model.Invalid, "AWS_REGION"},
		{"no credentials", func(c *bedrock.Config) { c.AWS.Credentials = nil }, model.Auth, "credentials"},
		{"anonymous", func(c *bedrock.Config) { c.AWS.Credentials = aws.AnonymousCredentials{} }, model.Auth, "credentials"},
		{"credentials that cannot be had", func(c *bedrock.Config) {
			c.AWS.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, errors.New("the profile has no role")
			})
		}, model.Auth, "the profile has no role"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.answer(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
			_, err := modeltest.Collect(t, s.provider(tt.edit).Stream(t.Context(), modeltest.Hello()))
			wantClass(t, err, tt.class, tt.part)
		})
	}
	s.answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := modeltest.Collect(t, s.provider().Stream(t.Context(), modeltest.Hello()))
	wantClass(t, err, model.Retryable, "no connection")
	for _, req := range []*model.Request{{Model: "m"}, {Messages: modeltest.Hello().Messages}} {
		_, err := modeltest.Collect(t, s.provider().Stream(t.Context(), req))
		wantClass(t, err, model.Invalid, "the request")
	}
	if s.provider().Check("m") != nil || bedrock.New(bedrock.Config{}).Check("m") == nil {
		t.Error("Check does not say what the first call would")
	}
}

// What the service has said before an answer broke off stands in the error.
func TestUsageOfAFailure(t *testing.T) {
	const used = `metadata {"usage":{"inputTokens":900,"cacheReadInputTokens":4000,"outputTokens":2,"totalTokens":4902}}`
	want := model.Usage{Input: 900, CacheRead: 4000, Output: 2}
	for name, stream := range map[string]string{
		"cut":      used,
		"failed":   used + "\n" + `!throttlingException {"message":"no"}`,
		"given up": used + "\n" + `messageStop {"stopReason":"malformed_model_output"}`,
	} {
		_, err := receive(t, stream, modeltest.Hello())
		var failed *model.Error
		if !errors.As(err, &failed) || failed.Usage != want {
			t.Errorf("%s: %#v, want the usage %+v", name, err, want)
		}
	}
}
