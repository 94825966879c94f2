package wire

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ParsePrompt reads the body of a POST to a conversation. Members that the
// protocol does not know are ignored. Text that is not valid Unicode, as bytes
// or as escapes, is read with U+FFFD in its place. A name that occurs twice in
// an object is an error, because two readers could take different values.
//
// What it allocates is in proportion to the size of the body, whatever is in it.
//
// An error is an [*Error] whose words may be sent to the client.
func ParsePrompt(body []byte) (Prompt, error) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(bytes.TrimSpace(body)) == 0 {
		return Prompt{}, errShape()
	}
	if measure(body).members > MaxMembers {
		return Prompt{}, errMembers()
	}
	var raw rawPrompt
	if err := json.Unmarshal(body, &raw, lenient); err != nil {
		if _, ok := errors.AsType[*json.SemanticError](err); ok {
			err = json.Unmarshal(body, new(jsontext.Value), lenient)
		}
		if err == nil {
			return Prompt{}, errShape() // JSON, but not an object
		}
		return Prompt{}, errJSON(err)
	}
	return raw.prompt()
}

// lenient reads text that is not valid Unicode as a browser does.
var lenient = jsontext.AllowInvalidUTF8(true)

// rawPrompt has every member as it is, so that absent, null and of the wrong
// type can be told apart.
type rawPrompt struct {
	Kind           jsontext.Value `json:"kind"`
	Body           jsontext.Value `json:"body"`
	Attachments    jsontext.Value `json:"attachments"`
	Type           jsontext.Value `json:"type"`
	Attributes     jsontext.Value `json:"attributes"`
	TagName        jsontext.Value `json:"tagName"`
	InitialData    jsontext.Value `json:"initialData"`
	UID            jsontext.Value `json:"uid"`
	IdempotencyKey jsontext.Value `json:"idempotencyKey"`
}

func (r *rawPrompt) prompt() (p Prompt, err error) {
	if err := r.condition(&p); err != nil {
		return Prompt{}, err
	}
	if p.Message, err = r.delivery(); err != nil {
		return Prompt{}, err
	}
	if err := p.Message.Validate(); err != nil {
		return Prompt{}, err
	}
	if r.IdempotencyKey != nil {
		if p.IdempotencyKey, err = idempotencyKey(r.IdempotencyKey); err != nil {
			return Prompt{}, err
		}
	}
	if p.InitialData, err = initialData(r.InitialData); err != nil {
		return Prompt{}, err
	}
	if err := p.validateCondition(); err != nil {
		return Prompt{}, err
	}
	return p, nil
}

// condition reads the send condition.
func (r *rawPrompt) condition(p *Prompt) error {
	switch r.UID.Kind() {
	case jsontext.KindInvalid: // absent
	case 'n':
		p.Create = true
	case '"':
		p.UID, _ = text(r.UID)
		if p.UID == "" {
			return InvalidRequest("`uid` must not be empty.")
		}
	default:
		return InvalidRequest("`uid` must be a string (continue only that incarnation) or null (create only when fresh).")
	}
	return nil
}

// delivery reads the message. A complaint about one value comes before the one
// about the whole shape, whichever member it is in.
func (r *rawPrompt) delivery() (d Delivery, err error) {
	ok := true
	d.Kind, _ = text(r.Kind)
	d.Body, ok = text(r.Body)
	switch d.Kind {
	case KindUser:
		var shaped bool
		if d.Attachments, shaped, err = attachments(r.Attachments); err != nil {
			return Delivery{}, err
		}
		ok = ok && shaped
	case KindSignal:
		var typed, tagged, attributed bool
		d.Type, typed = text(r.Type)
		d.TagName, tagged = optionalText(r.TagName)
		if d.Attributes, attributed, err = attributes(r.Attributes); err != nil {
			return Delivery{}, err
		}
		if err := d.validateSignal(); err != nil {
			return Delivery{}, err
		}
		if r.TagName != nil && tagged && d.TagName == "" {
			return Delivery{}, errTagName()
		}
		ok = ok && typed && tagged && attributed
	}
	if !ok {
		return Delivery{}, errShape()
	}
	return d, nil
}

// text returns the value of a JSON string.
func text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	var s string
	if err := json.Unmarshal(v, &s, lenient); err != nil {
		return "", false
	}
	return s, true
}

func optionalText(v jsontext.Value) (string, bool) {
	if v == nil {
		return "", true
	}
	return text(v)
}

// attributes reads the attributes of a signal. It reports false if they do not
// have the shape of attributes, and an error if there are too many.
func attributes(v jsontext.Value) (map[string]string, bool, error) {
	if v == nil {
		return nil, true, nil
	}
	if v.Kind() != '{' {
		return nil, false, nil
	}
	m := map[string]string{}
	dec := within(v)
	for dec.PeekKind() != '}' {
		if len(m) == MaxAttributes {
			return nil, false, errAttributes()
		}
		name, err := dec.ReadToken()
		if err != nil {
			return nil, false, nil
		}
		key := name.String() // before the next read, which may overwrite it
		value, err := dec.ReadToken()
		if err != nil || value.Kind() != '"' {
			return nil, false, nil
		}
		m[key] = value.String()
	}
	return m, true, nil
}

// within returns a decoder that stands inside an object or array, whose members
// or elements it reads one by one. The whole would be decoded before anyone
// counted them.
func within(v jsontext.Value) *jsontext.Decoder {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), lenient)
	_, _ = dec.ReadToken() // the bracket, by which the value was told
	return dec
}

// rawFile is an attachment as it is sent.
type rawFile struct {
	Type     jsontext.Value `json:"type"`
	Data     jsontext.Value `json:"data"`
	MIMEType jsontext.Value `json:"mimeType"`
	Filename jsontext.Value `json:"filename"`
}

// attachments reads the files of a message. It reports false if they do not
// have the shape of attachments, and an error if one has and cannot be taken.
func attachments(v jsontext.Value) ([]File, bool, error) {
	if v == nil {
		return nil, true, nil
	}
	if v.Kind() != '[' {
		return nil, false, nil
	}
	files := []File{}
	dec := within(v)
	for i := 0; dec.PeekKind() != ']'; i++ {
		if i == MaxImages {
			return nil, false, errImages()
		}
		var raw rawFile
		if err := json.UnmarshalDecode(dec, &raw); err != nil {
			return nil, false, nil // an element that is not an object
		}
		f, ok, err := raw.file(i)
		if err != nil || !ok {
			return nil, false, err
		}
		files = append(files, f)
	}
	return files, true, nil
}

// file reads the i-th attachment.
func (r *rawFile) file(i int) (f File, ok bool, err error) {
	data, isText := rawText(r.Data)
	if len(data) > MaxImageData {
		return File{}, false, errImageSize()
	}
	var typed, named bool
	f.MediaType, typed = text(r.MIMEType)
	f.Filename, named = optionalText(r.Filename)
	if kind, _ := text(r.Type); kind != "image" || !isText || !typed || !named {
		return File{}, false, nil
	}
	if f.Data, err = decodeBase64(data); err != nil {
		return File{}, false, errAttachment(i, "is not valid base64: send the base64 of the image alone, without a \"data:\" prefix")
	}
	return f, true, nil
}

// rawText returns the value of a JSON string. It copies nothing if the string
// has no escapes, which matters for images.
func rawText(v jsontext.Value) ([]byte, bool) {
	if v.Kind() != '"' {
		return nil, false
	}
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	s, ok := text(v)
	return []byte(s), ok
}

// decodeBase64 reads base64 as web browsers do: white space is skipped and the
// padding may be left out.
func decodeBase64(s []byte) ([]byte, error) {
	const space = " \t\n\f\r"
	b, err := decodePadded(s)
	if err != nil && bytes.ContainsAny(s, space) {
		return decodePadded(bytes.Map(func(r rune) rune {
			if strings.ContainsRune(space, r) {
				return -1
			}
			return r
		}, s))
	}
	return b, err
}

func decodePadded(s []byte) ([]byte, error) {
	if len(s)%4 != 0 {
		return base64.RawStdEncoding.AppendDecode(nil, s)
	}
	return base64.StdEncoding.AppendDecode(nil, s)
}

func idempotencyKey(v jsontext.Value) (string, error) {
	s, ok := text(v)
	if !ok {
		s = ""
	}
	return s, ValidateIdempotencyKey(s)
}

// initialData returns the data as valid JSON of bounded depth.
func initialData(v jsontext.Value) (jsontext.Value, error) {
	if v == nil {
		return nil, nil
	}
	if measure(v).depth > MaxDepth {
		return nil, errDepth()
	}
	v = v.Clone()
	if err := v.Format(lenient, jsontext.PreserveRawStrings(false)); err != nil {
		return nil, InvalidRequest("`initialData` is not valid JSON.")
	}
	return v, nil
}

// An extent is what a JSON value asks of who reads it.
type extent struct {
	depth   int // to which objects and arrays are nested
	members int // most members of an object, with those of the objects around it
}

// parserDepth is how deep the parser goes before it calls a value an error.
const parserDepth = 10_000

// measure returns the extent of a JSON value, as far as the parser will read if
// it is not valid. It is there to be asked before anything is decoded: to find a
// name that occurs twice, the parser remembers all names of the objects that it
// is in, and that takes many times their size.
func measure(v []byte) (e extent) {
	var few [16]int
	open := few[:0] // members so far of what is open
	members := 0    // their sum
	for i := 0; i < len(v) && len(open) <= parserDepth; i++ {
		last := len(open) - 1
		switch c := v[i]; {
		case c == '{' || c == '[':
			open = append(open, 0)
			e.depth = max(e.depth, len(open))
		case c == '"':
			i = textEnd(v, i)
		case last < 0: // nothing else counts outside
		case c == '}' || c == ']':
			members -= open[last]
			open = open[:last]
		case c == ':':
			open[last]++
			members++
			e.members = max(e.members, members)
		}
	}
	return e
}

// textEnd returns where the text ends whose opening quote is at i: the index of
// the quote that closes it, or the end of v.
func textEnd(v []byte, i int) int {
	for {
		n := bytes.IndexByte(v[i+1:], '"')
		if n < 0 {
			return len(v)
		}
		i += n + 1
		if before := v[:i]; (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0 {
			return i // and not an escaped one
		}
	}
}

// errJSON is the error for a body that is not JSON.
func errJSON(cause error) *Error {
	reported := strings.TrimPrefix(cause.Error(), "jsontext: ")
	if errors.Is(cause, io.ErrUnexpectedEOF) || errors.Is(cause, io.EOF) {
		reported = "Unexpected end of JSON input"
	}
	return &Error{
		Code:    CodeInvalidJSON,
		Message: "Request body is not valid JSON.",
		Details: "The JSON parser reported: " + clip(reported, 200) +
			"\nVerify the body is well-formed JSON, or omit the body entirely if the request doesn't have a payload.",
	}
}

// clip shortens s to at most n bytes, at a character's boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

var reservedSignals = []string{
	"resources", "instructions", "environment", "stream_interrupted", "stream_continued",
	"submission_aborted", "submission_interrupted", "compaction", "memory",
	"approval_decision", "approval_result",
}

// ReservedSignal reports whether a signal type belongs to the runtime, which
// tells its own messages by it, so that no client may send one.
func ReservedSignal(typ string) bool { return slices.Contains(reservedSignals, typ) }
