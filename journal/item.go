package journal

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// stored are the options of the stored form. Raw JSON comes from providers and
// from tools, whose idea of JSON is wider than ours: they repeat names and
// escape halves of surrogate pairs. Attributes are sorted so that equal batches
// have equal bytes.
var stored = json.JoinOptions(
	json.Deterministic(true),
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
	jsontext.PreserveRawStrings(true),
)

// envelope is the stored form of a batch.
type envelope struct {
	Version int    `json:"v"`
	At      int64  `json:"at"` // Unix milliseconds
	Records []item `json:"r"`
}

// item is the stored form of a record. The data come last: by the time that a
// reader comes to them it knows how to read them.
type item struct {
	Kind     Kind `json:"k"`
	Version  int  `json:"v,omitzero"` // absent means 1
	Optional bool `json:"opt,omitzero"`
	Data     any  `json:"d"`
}

// pack returns the stored form of r.
func pack(r Record) item {
	u, ok := r.(*Unknown)
	if !ok {
		return item{Kind: r.Kind(), Version: written(version(r)), Optional: optional(r), Data: mend(r)}
	}
	return item{Kind: u.Name, Version: written(u.Version), Optional: u.Optional, Data: u.Data}
}

// written is a version as it is stored: the first one is left out.
func written(v int) int {
	if v <= 1 {
		return 0
	}
	return v
}

// UnmarshalJSONFrom reads an item. Its data become a Record.
func (it *item) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		return errors.New("a record is not an object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*it = item{Version: 1}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		member := name.String() // before the next read, which overwrites the token
		if it.Data != nil && (member == "k" || member == "v" || member == "opt" || member == "d") {
			return fmt.Errorf("member %q comes after the data of a record", member)
		}
		switch member {
		case "k":
			err = json.UnmarshalDecode(dec, &it.Kind)
		case "v":
			err = json.UnmarshalDecode(dec, &it.Version)
		case "opt":
			err = json.UnmarshalDecode(dec, &it.Optional)
		case "d":
			it.Data, err = it.readData(dec)
		default:
			err = dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	if it.Data == nil {
		return errors.New("a record has no data")
	}
	_, err := dec.ReadToken()
	return err
}

// readData reads the data of a record, as far as its head is understood.
func (it *item) readData(dec *jsontext.Decoder) (Record, error) {
	switch {
	case it.Kind == "":
		return nil, errors.New("a record has data before its kind")
	case it.Version < 1:
		return nil, fmt.Errorf("a record of kind %s has version %d", it.Kind, it.Version)
	}
	r := newRecord(it.Kind)
	if r == nil || it.Version > newest(it.Kind) {
		raw, err := dec.ReadValue()
		return &Unknown{Name: it.Kind, Version: it.Version, Optional: it.Optional, Data: raw.Clone()}, err
	}
	if dec.PeekKind() != '{' {
		return nil, fmt.Errorf("the data of a record of kind %s are not an object", it.Kind)
	}
	if err := json.UnmarshalDecode(dec, r); err != nil {
		return nil, fmt.Errorf("a record of kind %s: %w", it.Kind, err)
	}
	return r, nil
}
