package crashtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// A mind is the scripted model. What it answers is a function of what it has
// read and of nothing else, so that a request can be judged by playing it back:
// every assistant message in it must be what the mind answers to the messages
// before it.
//
// A user message asks it to handle a token with rounds of tool calls, such as
//
//	Please handle [t1] with charge charge+ship.
//
// The mind makes the calls of a round side by side, one round after another,
// and then answers by naming the token. It answers all tokens that wait, and
// drops those that it is told were aborted.
type mind struct {
	read hash.Hash
	seen map[string]bool // tokens that it was ever asked to handle
	asks []ask           // those that wait, oldest first
}

type ask struct {
	token  string
	rounds []string // tools, joined by "+"
	made   int      // rounds that were made
}

// An answer is what a model says in one turn.
type answer struct {
	thought *thought // nil when it did not think
	text    string
	calls   []call
}

// A thought is a thinking block; redacted when it has data.
type thought struct {
	text, signature string
	data            string
}

type call struct{ id, name, args string }

// A result is what a model is told of a call.
type result struct{ id, text string }

func newMind() *mind { return &mind{read: sha256.New(), seen: make(map[string]bool)} }

// body is the message that asks for a token to be handled.
func body(token string, rounds []string) string {
	if len(rounds) == 0 {
		rounds = []string{"nothing"}
	}
	return fmt.Sprintf("Please handle [%s] with %s.", token, strings.Join(rounds, " "))
}

const (
	abortedSignal     = `<signal type="submission_aborted"`
	interruptedSignal = `<signal type="stream_interrupted"`
)

// heard matches what a mind reacts to in a user message.
var heard = regexp.MustCompile(`handle \[([\w-]+)\] with ([a-z+ ]+)\.|` + abortedSignal)

// named matches the tokens that an answer names.
var named = regexp.MustCompile(`\[([\w-]+)\]`)

// user reads a user message. It fails if the mind was asked the same before.
func (m *mind) user(text string) error {
	fmt.Fprintf(m.read, "user %q\n", text)
	for _, f := range heard.FindAllStringSubmatch(text, -1) {
		token, rounds := f[1], strings.Fields(f[2])
		if token == "" {
			m.asks = nil // an abort covers all that was asked before
			continue
		}
		if m.seen[token] {
			return fmt.Errorf("the message with the token %s is shown twice", token)
		}
		m.seen[token] = true
		if slices.Equal(rounds, []string{"nothing"}) {
			rounds = nil
		}
		m.asks = append(m.asks, ask{token: token, rounds: rounds})
	}
	return nil
}

// results reads the results of calls.
func (m *mind) results(rs []result) {
	for _, r := range rs {
		fmt.Fprintf(m.read, "result %q %q\n", r.id, r.text)
	}
}

// said reads what the mind itself has said.
func (m *mind) said(a answer) {
	fmt.Fprintf(m.read, "said %q", a.text)
	if a.thought != nil {
		fmt.Fprintf(m.read, " %q", *a.thought)
	}
	for _, c := range a.calls {
		fmt.Fprintf(m.read, " %q", c)
	}
	fmt.Fprintln(m.read)
	for _, f := range named.FindAllStringSubmatch(a.text, -1) {
		m.asks = slices.DeleteFunc(m.asks, func(k ask) bool { return k.token == f[1] })
	}
	if len(a.calls) > 0 {
		if k := m.unfinished(); k != nil {
			k.made++
		}
	}
}

// unfinished returns the oldest ask that has rounds of calls left, or nil.
func (m *mind) unfinished() *ask {
	for i := range m.asks {
		if k := &m.asks[i]; k.made < len(k.rounds) {
			return k
		}
	}
	return nil
}

// answer is what the mind says next. It changes nothing.
func (m *mind) answer() answer {
	sum := m.read.Sum(nil)
	rng := rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:])))
	var a answer
	switch rng.IntN(4) {
	case 0:
		a.thought = &thought{data: base64.StdEncoding.EncodeToString(sum)}
	case 1, 2:
		a.thought = &thought{text: "Let me see." + filler(rng, 6), signature: base64.StdEncoding.EncodeToString(sum)}
	}
	if k := m.unfinished(); k != nil {
		if rng.IntN(2) == 0 {
			a.text = "One moment." + filler(rng, 8)
		}
		for i, tool := range strings.Split(k.rounds[k.made], "+") {
			a.calls = append(a.calls, call{
				id:   fmt.Sprintf("call_%s_%d_%d", k.token, k.made, i),
				name: tool,
				args: fmt.Sprintf(`{"token":%q,"amount":%d}`, k.token, 1+rng.IntN(99)),
			})
		}
		return a
	}
	var b strings.Builder
	for _, k := range m.asks {
		fmt.Fprintf(&b, "I have handled [%s].%s ", k.token, filler(rng, 6))
	}
	b.WriteString("That is all.")
	a.text = b.String()
	return a
}

// filler is some words.
func filler(rng *rand.Rand, most int) string {
	return strings.Repeat(" So it goes.", rng.IntN(most))
}

// A message is one message of a conversation, in no provider's dialect.
type message struct {
	role    string // user, assistant, tool
	text    string // of a user
	answer         // of an assistant
	results []result
}

// judge plays a conversation back and returns the mind that has read it, or
// what is wrong with the conversation. Thoughts says whether the dialect has a
// place for what the model thought.
func judge(ms []message, thoughts bool) (*mind, error) {
	if err := wellFormed(ms); err != nil {
		return nil, err
	}
	m := newMind()
	for i, msg := range ms {
		switch msg.role {
		case "user":
			if err := m.user(msg.text); err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
		case "tool":
			m.results(msg.results)
		case "assistant":
			want := m.answer()
			if !thoughts {
				want.thought = nil
			}
			cut := i+1 < len(ms) && strings.HasPrefix(ms[i+1].text, interruptedSignal)
			if err := want.compare(msg.answer, cut); err != nil {
				return nil, fmt.Errorf("message %d: %w", i, err)
			}
			m.said(msg.answer)
		}
	}
	return m, nil
}

// compare returns why got is not the answer. If it was cut it is a beginning of
// its text, and nothing else.
func (a answer) compare(got answer, cut bool) error {
	switch {
	case cut && (got.thought != nil || len(got.calls) > 0):
		return fmt.Errorf("an interrupted answer has more than text: %+v", got)
	case cut && strings.HasPrefix(a.text, got.text):
		return nil
	case got.text != a.text:
		return fmt.Errorf("the answer was %q, not %q", a.text, got.text)
	case !slices.Equal(got.calls, a.calls):
		return fmt.Errorf("the calls were %q, not %q", a.calls, got.calls)
	case (got.thought == nil) != (a.thought == nil), a.thought != nil && *a.thought != *got.thought:
		return fmt.Errorf("the thinking block was %+v, not %+v", a.thought, got.thought)
	}
	return nil
}

// wellFormed checks what every provider demands of a conversation.
func wellFormed(ms []message) error {
	if len(ms) == 0 || ms[0].role != "user" || ms[len(ms)-1].role == "assistant" {
		return fmt.Errorf("%d messages do not go from the user's to the user's", len(ms))
	}
	ids := make(map[string]bool)
	var open []call
	for i, m := range ms {
		if (m.role == "tool") != (len(open) > 0) {
			return fmt.Errorf("message %d is the %s's, after the calls %q", i, m.role, open)
		}
		switch {
		case m.role != "tool" && i > 0 && ms[i-1].role == m.role:
			return fmt.Errorf("messages %d and %d are both the %s's", i-1, i, m.role)
		case m.role == "user" && blank(m.text):
			return fmt.Errorf("message %d is empty", i)
		case m.role == "assistant" && blank(m.answer.text) && len(m.calls) == 0:
			return fmt.Errorf("message %d is empty", i)
		case m.role == "tool":
			if err := answered(open, m.results); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		open = m.calls
		for _, c := range open {
			if ids[c.id] || c.id == "" {
				return fmt.Errorf("message %d: call id %q is not unique", i, c.id)
			}
			ids[c.id] = true
		}
	}
	return nil
}

// answered checks that each call has exactly one result, in the order of the
// calls.
func answered(calls []call, rs []result) error {
	if len(calls) != len(rs) {
		return fmt.Errorf("%d results for %d calls", len(rs), len(calls))
	}
	for i, r := range rs {
		if r.id != calls[i].id {
			return fmt.Errorf("result %d is of call %q, want %q", i, r.id, calls[i].id)
		}
		if blank(r.text) {
			return fmt.Errorf("the result of call %q is empty", r.id)
		}
	}
	return nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
