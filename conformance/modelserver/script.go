package modelserver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Script is how one message is to be answered.
type Script struct {
	ID         string // names the message for Fail and Cut
	Text       int    // words of the final text
	Think      int    // words of reasoning before it
	Chunk      int    // words in one event
	Tool, Args string // the tool to call before the final text, and its arguments
	Rounds     int    // how often
	Parallel   int    // calls in one answer

	First time.Duration // before the first event
	Delay time.Duration // after each event

	FailStatus, FailCount int  // fail the first FailCount requests with this id
	Cut                   int  // drop the connection after this many events, once
	GoOn                  bool // the text begins with the word after those that were said already
}

// ParseScript reads the directives in a message, and reports whether there are
// any.
//
//	@id=a1           names the message, and begins anew
//	@text=5          the final text has 5 words (8 without it)
//	@think=4         4 words of reasoning come first
//	@chunk=3         3 words come in one event
//	@tool=name:{}    the tool is called first, with these arguments (no spaces)
//	@tools=2         twice, one after the other
//	@par=3           three times at once
//	@ttft=100        100 ms pass before the first event
//	@delay=75        75 ms pass after each event
//	@fail=500x1      the first request is answered with status 500
//	@cut=6           the connection is dropped after 6 events, once
//	@goon=1          asked again after it was interrupted, the text goes on from where it was
func ParseScript(message string) (Script, bool) {
	plain := Script{Text: 8, Chunk: 1, Rounds: 1, Parallel: 1}
	s, found := plain, false
	for field := range strings.FieldsSeq(strings.NewReplacer("<", " <", "@", " @").Replace(message)) {
		name, value, ok := strings.Cut(field, "=")
		if !ok || !strings.HasPrefix(name, "@") {
			continue
		}
		found = true
		n, _ := strconv.Atoi(value) // what is not a number is none
		ms := time.Duration(n) * time.Millisecond
		switch name {
		case "@id":
			s = plain // messages may have been put together: the last one counts
			s.ID = value
		case "@text":
			s.Text = n
		case "@think":
			s.Think = n
		case "@chunk":
			s.Chunk = max(1, n)
		case "@tool":
			s.Tool, s.Args, ok = strings.Cut(value, ":")
			if !ok {
				s.Args = "{}"
			}
		case "@tools":
			s.Rounds = n
		case "@par":
			s.Parallel = n
		case "@ttft":
			s.First = ms
		case "@delay":
			s.Delay = ms
		case "@fail":
			_, _ = fmt.Sscanf(value, "%dx%d", &s.FailStatus, &s.FailCount)
		case "@cut":
			s.Cut = n
		case "@goon":
			s.GoOn = n != 0
		}
	}
	return s, found
}
