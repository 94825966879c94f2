package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// What is sent, by kind, and to which agent. The words are those of the model
// server.
var (
	messages = map[string]string{
		"text": "hello @id=%d @text=8 @chunk=8",
		"tool": `where is it @id=%d @tool=lookup_order:{"orderId":"A1"} @text=8 @chunk=8`,
	}
	agents = map[string]string{"text": "chat", "tool": "tool"}
)

// A load sends messages and waits for each one's settlement.
type load struct {
	client  *http.Client
	servers []string
	path    string // of the agent
	message string
	turns   int

	turn  atomic.Int64 // whose server's it is
	names atomic.Int64
}

// run sends n messages in so many conversations at once and returns how long each
// took.
func (l *load) run(ctx context.Context, conversations, n int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left atomic.Int64
	left.Store(int64(n))
	waits := make([]time.Duration, n)
	var wg sync.WaitGroup
	for range conversations {
		wg.Go(func() {
			for turn, name := 0, ""; ctx.Err() == nil; turn++ {
				i := left.Add(-1)
				if i < 0 {
					return
				}
				if turn%l.turns == 0 {
					name = fmt.Sprint("c", l.names.Add(1))
				}
				began := time.Now()
				if err := l.prompt(ctx, l.path+"/"+name, i); err != nil {
					cancel(err)
					return
				}
				waits[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	return waits, context.Cause(ctx)
}

// prompt sends one message and follows by long-poll until it is settled.
func (l *load) prompt(ctx context.Context, conversation string, i int64) error {
	body, err := json.Marshal(map[string]string{"kind": "user", "body": fmt.Sprintf(l.message, i)})
	if err != nil {
		return err
	}
	answer, _, err := l.do(ctx, "POST", conversation, body)
	if err != nil {
		return err
	}
	var admission struct{ Offset, SubmissionID string }
	if err := json.Unmarshal(answer, &admission); err != nil {
		return err
	}
	for offset := admission.Offset; ; {
		changes, h, err := l.do(ctx, "GET", conversation+"?view=updates&live=long-poll&offset="+url.QueryEscape(offset), nil)
		if err != nil {
			return err
		}
		if done, err := settled(changes, admission.SubmissionID); done || err != nil {
			return err
		}
		offset = h.Get("Stream-Next-Offset")
	}
}

// settled reports whether the changes have the settlement. It is an error if the
// message was not answered.
func settled(changes []byte, submission string) (bool, error) {
	if !bytes.Contains(changes, []byte(`"submission-settled"`)) {
		return false, nil
	}
	var cs []struct{ Type, SubmissionID, Outcome string }
	if err := json.Unmarshal(changes, &cs); err != nil {
		return false, err
	}
	for _, c := range cs {
		if c.Type == "submission-settled" && c.SubmissionID == submission {
			if c.Outcome != "completed" {
				return false, fmt.Errorf("submission %s has %s", submission, c.Outcome)
			}
			return true, nil
		}
	}
	return false, nil
}

// do makes a request of the server whose turn it is.
func (l *load) do(ctx context.Context, method, target string, body []byte) ([]byte, http.Header, error) {
	server := l.servers[int(l.turn.Add(1))%len(l.servers)]
	req, err := http.NewRequestWithContext(ctx, method, server+target, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s %.300s", method, target, resp.Status, answer)
	}
	return answer, resp.Header, err
}
