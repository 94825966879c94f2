package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
)

// An imageRef says where an image of the context belongs.
type imageRef struct {
	message, block int
	attachment     string
	weight         int // tokens, estimated
}

// A view is a context in the model's form.
type view struct {
	messages []model.Message
	images   []imageRef // those of messages whose bytes are in the store
	items    []viewed
	weight   int // of all messages, in tokens, estimated
}

// A viewed is an item of the context in its view: the message at the place,
// which is missing if the item has nothing for the model.
type viewed struct {
	at     int
	weight int
}

// request builds the next model call from the plan and the context. It sends
// less than the context if that would not fit. The size is in tokens, estimated.
func (d *driver) request(m Model, settings journal.Settings) (req *model.Request, size int, fitted bool, err error) {
	v, size, err := d.fitting(budgetOf(settings.Compaction, m.Info), settings.Model)
	if err != nil {
		return nil, 0, false, err
	}
	messages, err := d.withImages(v, m)
	if err != nil {
		return nil, 0, false, err
	}
	tools := make([]model.Tool, len(d.plan.Tools))
	for i := range d.plan.Tools {
		tools[i] = d.plan.Tools[i].Spec
		if told := find(d.state.Told.Declared, journal.ResourceTool, tools[i].Name); told != nil {
			tools[i].After = told.After
		}
	}
	system := d.plan.Instructions
	if c := catalog(d.state.Baseline); c != "" {
		system = strings.TrimLeft(system+"\n\n"+c, "\n")
	}
	thinking := model.Thinking(settings.Thinking)
	if thinking == "" && m.Info.Reasoning {
		thinking = model.ThinkingMedium
	}
	d.fixedThen = d.fixed()
	return &model.Request{
		Model: m.Origin.Model, System: system, Messages: messages, Tools: tools, Thinking: thinking,
		MaxOutput: maxOutput(m.Info, size+d.slack(size)), CacheKey: d.state.Born.Incarnation, Info: m.Info,
	}, size, v.fitted, nil
}

// slack is how much larger a request may turn out to be than was estimated. What a
// provider has counted is certain; the rest may be a fifth more.
func (d *driver) slack(size int) int {
	if c := d.state.Counted; c.Items <= len(d.items) {
		size -= c.Tokens
	}
	return max(size, 0) / 5
}

// maxOutput bounds an answer to a request of a size, so that both fit the
// window. It is zero, which leaves the answer to the provider, where they do so
// anyhow.
func maxOutput(info model.Info, size int) int {
	free := info.ContextWindow - size
	if info.ContextWindow == 0 || info.MaxOutput <= free {
		return 0
	}
	return max(free, leastOutput)
}

// leastOutput is the room that an answer is given however full the window is by
// the estimate.
const leastOutput = 256

// extend brings the model's form of the context up to date, in time
// proportional to what is new.
func (d *driver) extend() {
	for _, it := range d.state.Context[len(d.items):] {
		d.add(it)
	}
}

// add appends an item of the context.
func (m *view) add(it fold.Item) {
	item := viewed{at: len(m.messages)}
	images := len(m.images)
	m.addItem(it)
	for _, msg := range m.messages[item.at:] {
		item.weight += messageWeight(msg)
	}
	for _, ref := range m.images[images:] {
		item.weight += ref.weight
	}
	m.items = append(m.items, item)
	m.weight += item.weight
}

func (m *view) addItem(it fold.Item) {
	switch {
	case it.Summary != nil:
		m.messages = append(m.messages, model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: summaryText(it.Summary)}}})
	case it.Entry != nil:
		m.addEntry(it.Entry)
	case it.Turn != nil:
		if msg, ok := turnMessage(it.Turn); ok {
			m.messages = append(m.messages, msg)
		}
	default:
		msg := model.Message{Role: model.RoleTool}
		for _, o := range it.Outcomes {
			msg.Blocks = append(msg.Blocks, model.Block{Kind: model.ToolResult, CallID: o.Call, Name: o.Tool, Text: o.Content, IsError: o.Failed})
		}
		m.messages = append(m.messages, msg)
	}
}

func (m *view) addEntry(e *journal.Entry) {
	text := e.Message.Body
	if e.Message.Kind == journal.Signal {
		text = signalText(e.Message)
	}
	msg := model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: text}}}
	for _, a := range e.Message.Attachments {
		m.images = append(m.images, imageRef{message: len(m.messages), block: len(msg.Blocks), attachment: a.ID, weight: imageWeight(a.Size)})
		msg.Blocks = append(msg.Blocks, model.Block{Kind: model.Image, MediaType: a.MediaType})
	}
	m.messages = append(m.messages, msg)
}

// turnMessage is a turn as the model is shown it. Of a turn that was cut only
// the text is shown: its other blocks are not whole.
func turnMessage(t *journal.TurnDone) (model.Message, bool) {
	msg := model.Message{Role: model.RoleAssistant, Origin: model.Origin{Provider: t.Provider, Model: t.Model}}
	for _, b := range t.Blocks {
		if b.Kind == "" || (t.Stop == journal.StopAborted && b.Kind != journal.Text) {
			continue
		}
		msg.Blocks = append(msg.Blocks, model.Block{
			Kind: model.BlockKind(b.Kind), Text: b.Text, CallID: b.Call, Name: b.Name, Arguments: b.Arguments, Opaque: []byte(b.Opaque),
		})
	}
	return msg, len(msg.Blocks) > 0
}

// withImages returns the messages with the bytes of their images, or with a
// note in place of each if the model is known to take none, and of each that the
// store has lost.
func (d *driver) withImages(v fitted, m Model) ([]model.Message, error) {
	if len(v.images) == 0 {
		return v.messages, nil
	}
	messages := slices.Clone(v.messages)
	copied := -1
	for _, ref := range v.images {
		if copied != ref.message {
			messages[ref.message].Blocks = slices.Clone(messages[ref.message].Blocks)
			copied = ref.message
		}
		b := &messages[ref.message].Blocks[ref.block]
		if d.blind(m) {
			d.e.blind.warn(d.e.cfg.Log, m.Origin)
			*b = model.Block{Kind: model.Text, Text: "[An image was attached here. The current model cannot see images.]"}
			continue
		}
		a, err := d.e.cfg.Store.Attachment(d.storeContext(), d.slot.addr, ref.attachment)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) { // for good: one bad image must not stop the conversation
			d.e.cfg.Log.Error("an image of a conversation cannot be read; a note stands in its place", "instance", d.slot.addr.String(), "attachment", ref.attachment, "error", err)
			*b = model.Block{Kind: model.Text, Text: "[An image was attached here. It is damaged and cannot be shown.]"}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading attachment %s of %s: %w", ref.attachment, d.slot.addr, err)
		}
		b.Data = a.Data
	}
	return messages, nil
}

// blind reports whether a model is known to take no images, or has shown it.
func (d *driver) blind(m Model) bool {
	if m.Info.Images {
		return false
	}
	return m.Info.Known || m.Info.ContextWindow > 0 || d.state.SeesNothing(m.Origin.Provider+"/"+m.Origin.Model)
}

// showsImages reports whether a request shows images to a model of which nobody
// knows whether it takes any.
func (d *driver) showsImages(req *model.Request, m Model) bool {
	return !m.Info.Images && !d.blind(m) && slices.ContainsFunc(req.Messages, func(msg model.Message) bool {
		return slices.ContainsFunc(msg.Blocks, func(b model.Block) bool { return b.Kind == model.Image })
	})
}

// summaryText is what the model reads in the place of what was compacted.
func summaryText(r *journal.Compacted) string {
	body := "The earlier part of this conversation is replaced by a summary of it. What follows it is as it was.\n\n" + r.Summary
	if r.Dropped {
		body = r.Summary
	}
	return signalText(journal.Message{Kind: journal.Signal, Type: journal.SignalCompaction, TagName: "compaction", Body: body})
}

// signalText is a signal as the model reads it: its body in an element whose
// attributes are the signal's type and attributes.
func signalText(m journal.Message) string {
	tag := m.TagName
	if tag == "" {
		tag = "signal"
	}
	var b strings.Builder
	b.WriteString("<" + tag + ` type="` + escapeAttribute.Replace(m.Type) + `"`)
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		if name == "type" { // the signal has one, and whoever sends it does not choose another
			continue
		}
		b.WriteString(" " + attributeName(name) + `="` + escapeAttribute.Replace(m.Attributes[name]) + `"`)
	}
	b.WriteString(">\n" + escapeText.Replace(m.Body) + "\n</" + tag + ">")
	return b.String()
}

// attributeName is a name that cannot be taken for anything but one.
func attributeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.:", r) {
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "_"
	}
	return name
}

var (
	escapeText      = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	escapeAttribute = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\n", "&#10;", "\r", "&#13;")
)
