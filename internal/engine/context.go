package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/flue-go/flue/internal/fold"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// An imageRef says where an image of the context belongs.
type imageRef struct {
	message, block int
	attachment     string
}

// request builds the next model call from the plan and the context.
func (d *driver) request(m Model, settings journal.Settings) (*model.Request, error) {
	d.extend()
	messages, err := d.withImages(m)
	if err != nil {
		return nil, err
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
	return &model.Request{
		Model: m.Origin.Model, System: system, Messages: messages, Tools: tools, Thinking: thinking,
		CacheKey: d.state.Born.Incarnation, Info: m.Info,
	}, nil
}

// extend brings the model's form of the context up to date, in time
// proportional to what is new.
func (d *driver) extend() {
	for _, it := range d.state.Context[d.built:] {
		d.addItem(it)
	}
	d.built = len(d.state.Context)
}

func (m *memory) addItem(it fold.Item) {
	switch {
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

func (m *memory) addEntry(e *journal.Entry) {
	text := e.Message.Body
	if e.Message.Kind == journal.Signal {
		text = signalText(e.Message)
	}
	msg := model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: text}}}
	for _, a := range e.Message.Attachments {
		m.images = append(m.images, imageRef{message: len(m.messages), block: len(msg.Blocks), attachment: a.ID})
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
// note in place of each if the model is known to take none.
func (d *driver) withImages(m Model) ([]model.Message, error) {
	if len(d.images) == 0 {
		return d.messages, nil
	}
	messages := slices.Clone(d.messages)
	copied := -1
	for _, ref := range d.images {
		if copied != ref.message {
			messages[ref.message].Blocks = slices.Clone(messages[ref.message].Blocks)
			copied = ref.message
		}
		b := &messages[ref.message].Blocks[ref.block]
		if m.Info.ContextWindow > 0 && !m.Info.Images {
			*b = model.Block{Kind: model.Text, Text: "[An image was attached here. The current model cannot see images.]"}
			continue
		}
		a, err := d.e.cfg.Store.Attachment(d.storeContext(), d.slot.addr, ref.attachment)
		if err != nil {
			return nil, fmt.Errorf("reading attachment %s of %s: %w", ref.attachment, d.slot.addr, err)
		}
		b.Data = a.Data
	}
	return messages, nil
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
