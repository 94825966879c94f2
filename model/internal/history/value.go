package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/model"
)

// Arguments returns the arguments of a tool call as a JSON object, compact, and
// an empty object when raw is anything else.
func Arguments(raw string) json.RawMessage {
	if object := Object(json.RawMessage(raw)); object != nil {
		return object
	}
	return json.RawMessage("{}")
}

// Object returns raw, compact and cleaned by [CleanJSON], when it is a JSON
// object that no strict reader refuses: no object in it has a name twice, and no
// number is larger than a float64. It returns nil otherwise.
func Object(raw json.RawMessage) json.RawMessage {
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, CleanJSON(raw)) != nil || !jsontext.Value(b.Bytes()).IsValid() || overflows(b.Bytes()) {
		return nil
	}
	return b.Bytes()
}

// Verbatim returns what a provider has sent to have it back: a JSON object, with
// its names, numbers and escapes as they came. It returns nil when raw is anything
// else, or holds text that no request can.
func Verbatim(raw json.RawMessage) json.RawMessage {
	clean := CleanJSON(raw)
	if !bytes.HasPrefix(bytes.TrimLeft(clean, " \t\r\n"), []byte("{")) || !bytes.Equal(clean, raw) || !json.Valid(clean) {
		return nil
	}
	return raw
}

// overflows reports whether a number in compact JSON is larger than a float64,
// which some readers refuse and others make infinite.
func overflows(compact []byte) bool {
	const maxDigits = 300 // with fewer and no exponent a number cannot be
	for i := 0; i < len(compact); i++ {
		switch c := compact[i]; {
		case c == '"':
			for i++; compact[i] != '"'; i++ {
				if compact[i] == '\\' {
					i++
				}
			}
		case c >= '0' && c <= '9':
			n := bytes.IndexAny(compact[i:], ",]}")
			digits := compact[i : i+max(n, 0)]
			if len(digits) > maxDigits || bytes.ContainsAny(digits, "eE") {
				if _, err := strconv.ParseFloat(string(digits), 64); err != nil {
					return true
				}
			}
			i += max(n, 1) - 1
		}
	}
	return false
}

// CleanJSON returns JSON text in which every string is valid Unicode: bytes that
// are no UTF-8 and escapes of half a surrogate pair become U+FFFD. Go decodes
// such text without complaint and passes it through a RawMessage untouched,
// while providers refuse the request. Text that needs no change is returned
// itself.
func CleanJSON(raw []byte) []byte {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	if !bytes.Contains(raw, []byte(`\u`)) {
		return raw
	}
	clean := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			clean = append(clean, raw[i])
			i++
			continue
		}
		n := 2 // a backslash and what it escapes
		if unit, ok := escape(raw[i:]); ok {
			n = 6
			if low, ok := escape(raw[min(i+6, len(raw)):]); ok && high(unit) && isLow(low) {
				n = 12
			} else if high(unit) || isLow(unit) {
				clean = append(clean, `\ufffd`...)
				i += n
				continue
			}
		}
		n = min(n, len(raw)-i)
		clean = append(clean, raw[i:i+n]...)
		i += n
	}
	return clean
}

// escape reads the UTF-16 unit of a \uXXXX escape at the start of b.
func escape(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return n, err == nil
}

func high(u uint64) bool  { return u >= 0xD800 && u < 0xDC00 }
func isLow(u uint64) bool { return u >= 0xDC00 && u < 0xE000 }

// SafeID returns id when it is at most limit bytes long and, if strict, made of
// letters, digits, '_' and '-'. Otherwise it returns a short digest of it: the
// same one for the call and for its result.
func SafeID(id string, limit int, strict bool) string {
	if id != "" && len(id) <= limit && (!strict || strings.IndexFunc(id, unsafe) < 0) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

func unsafe(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}

// imageTypes are the formats that the providers accept.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// ImageType returns the media type of an image block, from its data where that
// tells, since providers compare the two and refuse a difference. It is empty
// when the image cannot be sent; [ImageText] then takes its place.
func ImageType(b model.Block) string {
	if len(b.Data) == 0 {
		return ""
	}
	if sniffed := http.DetectContentType(b.Data); slices.Contains(imageTypes, sniffed) {
		return sniffed
	}
	if declared := strings.ToLower(b.MediaType); slices.Contains(imageTypes, declared) {
		return declared
	}
	return ""
}

// ImageText is what the model reads in place of an image that cannot be sent.
func ImageText(b model.Block) string {
	kind := b.MediaType
	if kind == "" {
		kind = "unknown type"
	}
	return "[image of " + kind + " omitted: the model accepts PNG, JPEG, GIF and WebP]"
}
