package wire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An Envelope is the body of every response that is an error.
type Envelope struct {
	Error *Error `json:"error"`
}

// Encode returns the envelope of e as JSON. Only what a client may see is in
// it: the code, the words, the metadata and the reference, never the cause.
// Values of Meta that cannot be written as JSON leave the whole of Meta out.
func (e *Error) Encode() []byte {
	b, err := json.Marshal(Envelope{e}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		plain := *e
		plain.Meta = nil
		b, _ = json.Marshal(Envelope{&plain}, jsontext.AllowInvalidUTF8(true))
	}
	return b
}
