package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue/internal/httpapi"
	"github.com/flue-go/flue/wire"
)

// fake is a backend that keeps conversations in memory. A message is answered
// at once, with as many words as its @text=N says, in the batches that Flue
// 2.0.3 makes of a turn.
type fake struct {
	mu            sync.Mutex
	conversations map[string]*conversation
	ids           int
	before        func(method string) error // if not nil, asked first

	waiting chan struct{} // if not nil, told of each call of Wait
}

type conversation struct {
	uid, incarnation, id string
	batches              [][]byte // each is chunks without brackets
	state                wire.Conversation
	files                map[string]wire.File
	news                 chan struct{} // closed by the next batch
}

func newFake() *fake { return &fake{conversations: map[string]*conversation{}} }

func (f *fake) mint(kind string) string {
	f.ids++
	return fmt.Sprintf("%s_%026d", kind, f.ids)
}

func (f *fake) hook(method string) error {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(method)
}

var words = regexp.MustCompile(`@text=(\d+)`)

func (f *fake) Accepts() error { return f.hook("Accepts") }

func (f *fake) Send(_ context.Context, id string, p wire.Prompt) (wire.Admission, error) {
	if err := f.hook("Send"); err != nil {
		return wire.Admission{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.conversations[id]
	if c == nil {
		c = &conversation{
			uid: f.mint("inst"), incarnation: f.mint("inc"), id: f.mint("conv"), files: map[string]wire.File{}, news: make(chan struct{}),
		}
		f.conversations[id] = c
		c.append(wire.Chunk{Type: wire.ChunkReset, Snapshot: &wire.Snapshot{V: 1, ConversationID: c.id}})
	}
	a := wire.Admission{Offset: c.head(), SubmissionID: f.mint("sub"), UID: c.uid}
	f.turn(c, a.SubmissionID, p.Message)
	return a, nil
}

// turn appends the batches of one turn.
func (f *fake) turn(c *conversation, sub string, d wire.Delivery) {
	n := 1
	if m := words.FindStringSubmatch(d.Body); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	message := wire.Message{
		ID: "entry_direct_" + sub, Role: wire.RoleUser, Purpose: "user", Display: "visible", SubmissionID: sub,
		Parts: []wire.Part{{Type: wire.PartText, Text: &d.Body, State: wire.StateDone}},
	}
	for i, file := range d.Attachments {
		id, size := fmt.Sprintf("att_direct_%s_%d", sub, i), len(file.Data)
		c.files[id] = file
		message.Parts = append(message.Parts, wire.Part{Type: wire.PartFile, MediaType: file.MediaType, ID: id, Size: &size, Filename: file.Filename})
	}
	first := c.head() == 0
	c.append(wire.Chunk{Type: wire.ChunkMessageAppended, Message: &message})
	c.append()
	if first {
		c.append()
	}
	const at = "2026-11-30T02:15:18.062Z"
	entry, turn := f.mint("entry"), f.mint("turn")
	c.append(wire.Chunk{Type: wire.ChunkMessageStarted, MessageID: entry, SubmissionID: sub, TurnID: turn, Timestamp: at})
	c.append()
	var deltas []wire.Chunk
	for i := range n {
		deltas = append(deltas, wire.Chunk{Type: wire.ChunkMessageDelta, MessageID: entry, Kind: wire.PartText, Delta: fmt.Sprintf("word%d ", i)})
	}
	c.append(deltas...)
	c.append()
	c.append(wire.Chunk{Type: wire.ChunkCompleted, MessageID: entry, Timestamp: at})
	c.append(wire.Chunk{Type: wire.ChunkSettled, SubmissionID: sub, Outcome: "completed", AnsweredBy: sub, Timestamp: at})
}

func (c *conversation) head() wire.Offset { return wire.Offset(len(c.batches) - 1) }

func (c *conversation) append(chunks ...wire.Chunk) {
	var b []byte
	for i := range chunks {
		chunks[i].ConversationID = c.id
		chunks[i].Position = &wire.Position{Batch: int64(len(c.batches)), Index: i}
		if err := c.state.Apply(&chunks[i]); err != nil {
			panic(err)
		}
		j, err := json.Marshal(&chunks[i])
		if err != nil {
			panic(err)
		}
		b = append(b, j...)
		b = append(b, ',')
	}
	c.batches = append(c.batches, bytes.TrimSuffix(b, []byte(",")))
	close(c.news)
	c.news = make(chan struct{})
}

// find returns a conversation with the lock held.
func (f *fake) find(method, id string) (*conversation, func(), error) {
	if err := f.hook(method); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	c := f.conversations[id]
	if c == nil {
		f.mu.Unlock()
		return nil, nil, wire.StreamNotFound("agents/Chat/" + id)
	}
	return c, f.mu.Unlock, nil
}

func (f *fake) Abort(context.Context, string) (bool, error) { return false, f.hook("Abort") }

func (f *fake) Head(_ context.Context, id string) (wire.Offset, error) {
	c, unlock, err := f.find("Head", id)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return c.head(), nil
}

func (f *fake) Snapshot(_ context.Context, id string) (*wire.Snapshot, error) {
	c, unlock, err := f.find("Snapshot", id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return &wire.Snapshot{
		V: 1, ConversationID: c.id, Offset: c.head(), Messages: c.state.Messages, Settlements: c.state.Settlements, Incarnation: c.incarnation,
	}, nil
}

func (f *fake) More(ctx context.Context, id string, after wire.Offset, limit int) (httpapi.Updates, error) {
	return f.Updates(ctx, id, after, limit)
}

func (f *fake) Updates(_ context.Context, id string, after wire.Offset, limit int) (httpapi.Updates, error) {
	c, unlock, err := f.find("Updates", id)
	if err != nil {
		return httpapi.Updates{}, err
	}
	defer unlock()
	if after > c.head() {
		return httpapi.Updates{}, wire.OffsetGone("agents/Chat/"+id, after, c.head())
	}
	next := min(after+wire.Offset(limit), c.head())
	var parts []string
	for _, b := range c.batches[after+1 : next+1] {
		if len(b) > 0 {
			parts = append(parts, string(b))
		}
	}
	return httpapi.Updates{
		Incarnation: c.incarnation, Chunks: []byte(strings.Join(parts, ",")), Next: next, UpToDate: next == c.head(),
	}, nil
}

func (f *fake) Wait(ctx context.Context, id string, after wire.Offset) error {
	if f.waiting != nil {
		select {
		case f.waiting <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		c, unlock, err := f.find("Wait", id)
		if err != nil {
			return err
		}
		head, news := c.head(), c.news
		unlock()
		if head > after {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fake) Attachment(_ context.Context, id, attachment string) (wire.File, error) {
	c, unlock, err := f.find("Attachment", id)
	if err != nil {
		return wire.File{}, err
	}
	defer unlock()
	file, ok := c.files[attachment]
	if !ok {
		return wire.File{}, wire.AttachmentNotFound(attachment)
	}
	return file, nil
}
