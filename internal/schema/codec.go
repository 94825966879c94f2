package schema

import (
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Marshal encodes a value as JSON, the way tool results are: maps in the order
// of their keys, a nil slice as [], a time.Duration as text such as "1m30s",
// broken Unicode replaced. What JSON cannot express (NaN, a channel, a cycle) is
// an error that names the type.
func Marshal(v any) (stdjson.RawMessage, error) {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), json.WithMarshalers(marshalers()))
	if err != nil {
		return nil, fmt.Errorf("the value cannot be written as JSON: %w", err)
	}
	return b, nil
}

// Unmarshal decodes JSON into the value that into points to. Names match
// exactly. A duration is text as time.ParseDuration reads it.
func Unmarshal(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into, json.WithUnmarshalers(unmarshalers())); err != nil {
		return fmt.Errorf("decoding into %v: %w", reflect.TypeOf(into), err)
	}
	return nil
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
			if tok.Kind() != '"' {
				return fmt.Errorf("want a duration such as \"1m30s\", got %s", tok)
			}
			*d, err = time.ParseDuration(tok.String())
			return err
		}),
		json.UnmarshalFromFunc(func(dec *jsontext.Decoder, n *stdjson.Number) error {
			v, err := dec.ReadValue()
			if err != nil {
				return err
			}
			if v.Kind() != '0' {
				return fmt.Errorf("want a number, got %s", v)
			}
			*n = stdjson.Number(v)
			return nil
		}),
	)
}
