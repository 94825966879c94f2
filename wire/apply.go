package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Conversation accumulates chunks into messages, as a client does. The zero
// value is an empty conversation. It is not safe for concurrent use.
//
// Applying the chunks that follow an offset to the snapshot at that offset
// gives the snapshot at the later offset. A chunk is never changed by being
// applied, and shares no memory that later chunks change.
type Conversation struct {
	ID          string
	Messages    []Message
	Settlements []Settlement

	messages    index
	settlements index
	growing     map[*string]*strings.Builder // the open texts, so that appending to one is linear
	began       map[string]int               // how many parts a message had when its latest turn began, by its id
}

// Apply makes the change that c describes. A chunk that refers to a message or
// call that is not there changes nothing; an unknown type is an error, upon
// which a client must fetch a new snapshot. It does not look at positions:
// dropping what was seen before is the caller's part.
func (v *Conversation) Apply(c *Chunk) error {
	switch c.Type {
	case ChunkCheckpoint:
	case ChunkReset:
		if c.Snapshot == nil {
			return fmt.Errorf("conversation chunk %q has no snapshot", c.Type)
		}
		v.Reset(c.Snapshot)
	case ChunkMessageAppended:
		if c.Message == nil {
			return fmt.Errorf("conversation chunk %q has no message", c.Type)
		}
		v.put(c.Message)
	case ChunkMessageStarted:
		v.start(c)
	case ChunkRetracted:
		v.retract(c)
	case ChunkMessageDelta:
		v.delta(c)
	case ChunkMessageMetadata:
		if m := v.message(c.MessageID); m != nil {
			m.Metadata = mergeMetadata(m.Metadata, c.Metadata)
		}
	case ChunkDataPart:
		v.dataPart(c)
	case ChunkToolInput:
		v.toolInput(c)
	case ChunkToolOutput, ChunkToolOutputError:
		v.toolResult(c)
	case ChunkCompleted:
		if m := v.message(c.MessageID); m != nil {
			v.closeTexts(m.Parts)
		}
	case ChunkSettled:
		v.settle(c)
	default:
		return fmt.Errorf("unknown conversation chunk %q", c.Type)
	}
	return nil
}

// Reset replaces everything with what s holds.
func (v *Conversation) Reset(s *Snapshot) {
	*v = Conversation{ID: s.ConversationID, Messages: slices.Clone(s.Messages), Settlements: slices.Clone(s.Settlements)}
	for i := range v.Messages {
		v.Messages[i].Parts = slices.Clone(v.Messages[i].Parts)
	}
}

// message finds a message by its id.
func (v *Conversation) message(id string) *Message {
	i, ok := v.messages.find(id, len(v.Messages), func(i int) string { return v.Messages[i].ID })
	if !ok {
		return nil
	}
	return &v.Messages[i]
}

// put appends m, or replaces the message that has its id.
func (v *Conversation) put(m *Message) {
	n := *m
	n.Parts = slices.Clone(m.Parts)
	if old := v.message(m.ID); old != nil {
		v.closeTexts(old.Parts)
		*old = n
		return
	}
	v.Messages = append(v.Messages, n)
}

func (v *Conversation) start(c *Chunk) {
	m := v.message(c.MessageID)
	if c.TurnID != "" {
		v.begin(c.MessageID, m)
	}
	if m != nil {
		return // a further turn of the same response
	}
	started := Message{
		ID: c.MessageID, Role: RoleAssistant, Purpose: "assistant", Display: "visible",
		SubmissionID: c.SubmissionID, TurnID: c.TurnID, Parts: []Part{},
	}
	if c.Metadata.Kind() == '{' {
		started.Metadata = c.Metadata
	}
	v.Messages = append(v.Messages, started)
}

// begin notes where the latest turn of a message begins. m is nil if the message
// begins with it.
func (v *Conversation) begin(id string, m *Message) {
	if v.began == nil {
		v.began = make(map[string]int)
	}
	v.began[id] = 0
	if m != nil {
		v.began[id] = len(m.Parts)
	}
}

// retract drops what the latest turn of a message has said. Data parts stay: no
// turn writes them.
func (v *Conversation) retract(c *Chunk) {
	m := v.message(c.MessageID)
	if m == nil {
		return
	}
	from, ok := v.began[c.MessageID]
	if !ok || from > len(m.Parts) {
		return
	}
	parts := slices.Clone(m.Parts[:from])
	for _, p := range m.Parts[from:] {
		if p.Type != PartText && p.Type != PartReasoning {
			parts = append(parts, p)
		}
	}
	m.Parts = parts
}

// delta extends the last part if it is an open one of the same kind. A change
// of kind closes the open part and begins another.
func (v *Conversation) delta(c *Chunk) {
	m := v.message(c.MessageID)
	if m == nil {
		return
	}
	last := lastPart(m)
	if last == nil || last.Type != c.Kind || last.State != StateStreaming || last.Text == nil {
		v.closeLast(m)
		m.Parts = append(m.Parts, Part{Type: c.Kind, Text: new(string), State: StateStreaming})
		last = lastPart(m)
	}
	b, ok := v.growing[last.Text]
	if !ok {
		// The text may belong to a chunk or a snapshot: grow a copy.
		b = new(strings.Builder)
		b.WriteString(*last.Text)
		last.Text = new(string)
		if v.growing == nil {
			v.growing = make(map[*string]*strings.Builder)
		}
		v.growing[last.Text] = b
	}
	b.WriteString(c.Delta)
	*last.Text = b.String()
}

func lastPart(m *Message) *Part {
	if len(m.Parts) == 0 {
		return nil
	}
	return &m.Parts[len(m.Parts)-1]
}

// closeLast marks the last part as done if it is a text or reasoning part.
func (v *Conversation) closeLast(m *Message) {
	v.closeTexts(m.Parts[max(0, len(m.Parts)-1):])
}

// closeTexts marks the text and reasoning parts as done.
func (v *Conversation) closeTexts(parts []Part) {
	for i := range parts {
		p := &parts[i]
		if p.Type != PartText && p.Type != PartReasoning {
			continue
		}
		p.State = StateDone
		if _, ok := v.growing[p.Text]; ok {
			*p.Text = strings.Clone(*p.Text) // without the builder's spare room
			delete(v.growing, p.Text)
		}
	}
}

// dataPart adds a named data part, or replaces the value of the one that the
// message has under this name. It closes no text.
func (v *Conversation) dataPart(c *Chunk) {
	m := v.message(c.MessageID)
	if m == nil {
		return
	}
	p := Part{Type: PartData + c.Name, Data: c.Data}
	if i := slices.IndexFunc(m.Parts, func(o Part) bool { return o.Type == p.Type }); i >= 0 {
		m.Parts[i] = p
		return
	}
	m.Parts = append(m.Parts, p)
}

func (v *Conversation) toolInput(c *Chunk) {
	m := v.message(c.MessageID)
	if m == nil || slices.ContainsFunc(m.Parts, isCall(c.ToolCallID)) {
		return
	}
	v.closeLast(m)
	m.Parts = append(m.Parts, Part{
		Type: PartTool, ToolName: c.ToolName, ToolCallID: c.ToolCallID, State: StateInputAvailable, Input: c.Input,
	})
}

func isCall(id string) func(Part) bool {
	return func(p Part) bool { return p.Type == PartTool && p.ToolCallID == id }
}

// toolResult completes the call in the newest message that has one with this
// id: models may use an id again in a later response.
func (v *Conversation) toolResult(c *Chunk) {
	for i := len(v.Messages) - 1; i >= 0; i-- {
		j := slices.IndexFunc(v.Messages[i].Parts, isCall(c.ToolCallID))
		if j < 0 {
			continue
		}
		p := &v.Messages[i].Parts[j]
		if c.Type == ChunkToolOutput {
			p.State, p.Output, p.ErrorText = StateOutputAvailable, c.Output, nil
		} else {
			p.State, p.Output, p.ErrorText = StateOutputError, nil, c.ErrorText
		}
		if c.DurationMS != nil {
			p.DurationMS = c.DurationMS
		}
		return
	}
}

func (v *Conversation) settle(c *Chunk) {
	s := Settlement{SubmissionID: c.SubmissionID, Outcome: c.Outcome, Error: c.Error, AnsweredBy: c.AnsweredBy, Budget: c.Budget}
	key := func(i int) string { return v.Settlements[i].SubmissionID }
	if i, ok := v.settlements.find(s.SubmissionID, len(v.Settlements), key); ok {
		v.Settlements[i] = s
		return
	}
	v.Settlements = append(v.Settlements, s)
}

// An index finds elements of a growing slice by a key. It catches up with the
// slice when it is asked, so whoever appends need not tell it.
type index struct {
	at   map[string]int
	seen int
}

// find returns the position of the first of n elements with this key.
func (x *index) find(id string, n int, key func(int) string) (int, bool) {
	if x.seen > n { // the slice was replaced by a shorter one
		*x = index{}
	}
	if x.at == nil {
		x.at = make(map[string]int, n)
	}
	for ; x.seen < n; x.seen++ {
		k := key(x.seen)
		if _, ok := x.at[k]; !ok {
			x.at[k] = x.seen
		}
	}
	i, ok := x.at[id]
	return i, ok
}

// mergeMetadata merges next into base: later values win, objects are merged
// member by member, anything else replaces. Names that are special in
// JavaScript are dropped, as a browser client does.
func mergeMetadata(base, next jsontext.Value) jsontext.Value {
	if next.Kind() != '{' {
		return base
	}
	merged := members(base)
	for _, m := range members(next) {
		switch m.name {
		case "__proto__", "constructor", "prototype":
			continue
		}
		i := slices.IndexFunc(merged, func(o member) bool { return o.name == m.name })
		switch {
		case i < 0:
			merged = append(merged, m)
		case merged[i].value.Kind() == '{' && m.value.Kind() == '{':
			merged[i].value = mergeMetadata(merged[i].value, m.value)
		default:
			merged[i].value = m.value
		}
	}
	return object(merged)
}

// A member is one name and value of a JSON object.
type member struct {
	name  string
	value jsontext.Value
}

// members returns the members of a JSON object, in order. A value that is not
// an object has none.
func members(v jsontext.Value) []member {
	if v.Kind() != '{' {
		return nil
	}
	d := jsontext.NewDecoder(strings.NewReader(string(v)))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	var ms []member
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			break
		}
		m := member{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		m.value = value.Clone()
		ms = append(ms, m)
	}
	return ms
}

// object is the inverse of members.
func object(ms []member) jsontext.Value {
	b := []byte{'{'}
	for i, m := range ms {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, m.name) // fails for invalid UTF-8 only, which a decoded name is not
		b = append(b, ':')
		b = append(b, m.value...)
	}
	return append(b, '}')
}
