package schema

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Marshal encodes a value as JSON by the rules of the package comment: maps in
// the order of their keys, nil slices and maps as [] and {}, a time.Duration as
// text, no escapes but those that JSON needs, broken Unicode replaced. Equal
// values have equal bytes.
//
// What JSON cannot express (a number that is not finite, a cycle, a channel, a
// function) is an error that names the place and the type, and so is more than
// [MaxDocument] bytes. A method of the value that panics is an error too.
func Marshal(v any) (_ stdjson.RawMessage, err error) {
	defer recovered(&err, v)
	var out limited
	if err := json.MarshalWrite(&out, v, encoding); err != nil {
		return nil, encodeError(v, err)
	}
	return stdjson.RawMessage(out.buf), nil
}

// Unmarshal decodes JSON into the value that into points to, by the same rules.
// Names match exactly. A number in an any is a float64, unless it is an integer
// that a float64 cannot hold: then it is a json.Number.
//
// Unmarshal does not check raw against a schema; what does not fit the Go type
// is a [*ValidationError]. A method of the value that panics is an error.
func Unmarshal(raw []byte, into any) (err error) {
	defer recovered(&err, into)
	return decode(raw, into)
}

// The options are made once because they remember the types that they have met.
var (
	encoding = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true), json.WithMarshalers(marshalers()))
	decoding = json.WithUnmarshalers(unmarshalers())
)

// recovered turns a panic in a method of a user's type into an error.
func recovered(err *error, v any) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the JSON methods of %T panicked", v) // with what may be a secret
	}
}

func marshalers() *json.Marshalers {
	return json.JoinMarshalers(
		json.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error {
			return enc.WriteToken(jsontext.String(d.String()))
		}),
		json.MarshalToFunc(func(enc *jsontext.Encoder, n stdjson.Number) error {
			if n == "" {
				n = "0"
			}
			return enc.WriteValue(jsontext.Value(n))
		}),
	)
}

func unmarshalers() *json.Unmarshalers {
	return json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(dec *jsontext.Decoder, d *time.Duration) error {
			tok, err := dec.ReadToken()
			if err != nil {
				return err
			}
			parsed, err := time.ParseDuration(tok.String())
			if err != nil || tok.Kind() != '"' {
				return errors.New("expected " + durationPhrase)
			}
			*d = parsed
			return nil
		}),
		json.UnmarshalFromFunc(func(dec *jsontext.Decoder, n *stdjson.Number) error {
			v, err := dec.ReadValue()
			if err != nil {
				return err
			}
			if v.Kind() != '0' {
				return errors.New("expected a number")
			}
			*n = stdjson.Number(v)
			return nil
		}),
		json.UnmarshalFromFunc(unmarshalAny),
	)
}

// unmarshalAny keeps an integer that would lose digits as a float64, and leaves
// everything else to the JSON package.
func unmarshalAny(dec *jsontext.Decoder, v *any) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	literal := string(raw)
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || math.Abs(f) >= 1<<53 && !strings.ContainsAny(literal, ".eE") {
		*v = stdjson.Number(literal)
		return nil
	}
	*v = f
	return nil
}

var errTooLarge = fmt.Errorf("more than %d bytes of JSON", MaxDocument)

// limited is a buffer that does not grow beyond a document.
type limited struct{ buf []byte }

func (l *limited) Write(p []byte) (int, error) {
	if len(l.buf)+len(p) > MaxDocument {
		return 0, errTooLarge
	}
	l.buf = append(l.buf, p...)
	return len(p), nil
}

func encodeError(v any, err error) error {
	if errors.Is(err, errTooLarge) {
		return fmt.Errorf("the value cannot be written as JSON: %w", errTooLarge)
	}
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return fmt.Errorf("the value cannot be written as JSON: %w", err)
	}
	where := pointerPath(string(semantic.JSONPointer))
	if where != "" {
		where = " at " + where
	}
	if semantic.Err == nil {
		return fmt.Errorf("the value cannot be written as JSON: a %v%s has no JSON form", semantic.GoType, where)
	}
	return fmt.Errorf("the value cannot be written as JSON: a %v%s: %w", semantic.GoType, where, semantic.Err)
}
