package journal

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Kinds returns the kinds of record that this package knows.
func Kinds() []Kind {
	return []Kind{
		KindBorn, KindAdmitted, KindAbort,
		KindAttempt, KindRelease, KindEntry, KindSeam, KindState, KindStep, KindData, KindMetadata, KindResources,
		KindTurnStarted, KindTurnDelta, KindTurnDone, KindFallback, KindCalled, KindOutcome, KindToolBatch, KindSettled, KindRepair,
		KindCompacted, KindUncompacted, KindSummarizing, KindUnsummarized,
	}
}

// EncodeValue returns the stored form of a value that holds records, such as
// the state that they fold to. Records in it come back as they would from a
// batch, see [Encode]; a nil slice or map comes back as nil.
func EncodeValue(v any) ([]byte, error) {
	out, err := json.Marshal(v, stored, json.FormatNilSliceAsNull(true), json.FormatNilMapAsNull(true),
		json.WithMarshalers(json.JoinMarshalers(json.MarshalToFunc(encodeTurn), json.MarshalToFunc(encodeBlock))))
	if err != nil {
		return nil, fmt.Errorf("encoding a value: %w", err)
	}
	if !utf8.Valid(out) {
		out = bytes.ToValidUTF8(out, []byte("\uFFFD"))
	}
	return out, nil
}

// The same types, for which encodeTurn and encodeBlock are not called.
type (
	turnDone TurnDone
	block    Block
)

func encodeTurn(enc *jsontext.Encoder, t *TurnDone) error {
	return json.MarshalEncode(enc, (*turnDone)(mend(t).(*TurnDone)))
}

// encodeBlock is for blocks that are not in a turn.
func encodeBlock(enc *jsontext.Encoder, b *Block) error {
	mended := block(*b)
	if len(b.Opaque) == 0 {
		mended.Opaque = nil
	}
	return json.MarshalEncode(enc, &mended)
}

// DecodeValue reads what EncodeValue has made of a value into one of the same
// type. It fails with a [*FormatError]. The value does not share memory with
// data.
func DecodeValue(data []byte, v any) error {
	if !utf8.Valid(data) {
		return &FormatError{Reason: "not UTF-8"}
	}
	if err := json.Unmarshal(data, v, stored, json.RejectUnknownMembers(true)); err != nil {
		return &FormatError{Reason: "malformed", Err: err}
	}
	return nil
}
