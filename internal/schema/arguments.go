package schema

import (
	"encoding/json"
	"strings"
)

// PrepareArguments makes the arguments of a tool call out of the text that a
// model wrote: one JSON object that fits the schema, in the form of
// [Schema.Normalize]. The text itself is for the caller to keep.
//
// Arguments that fit are not touched. Beyond what Normalize does, it accepts
//
//   - nothing, white space or null for no arguments,
//   - an array, object, number or boolean inside a string, once and only where
//     the schema allows no string, provided that all of the arguments fit then.
//
// Each correction is reported. Everything else is an error for the model to
// read, a [*SyntaxError] or a [*ValidationError]; no value is ever guessed,
// rounded or dropped.
func (s *Schema) PrepareArguments(raw string) (json.RawMessage, []Repair, error) {
	var repairs []Repair
	if blank := strings.Trim(raw, " \t\r\n"); blank == "" || blank == "null" {
		raw = "{}"
		repairs = append(repairs, Repair{Kind: EmptyArguments})
	}
	doc, err := parse(raw)
	if err != nil {
		return nil, nil, err
	}
	for _, path := range doc.broken {
		repairs = append(repairs, Repair{Path: path, Kind: UnicodeReplaced})
	}
	more, err := s.settle(doc, lenient)
	if err != nil {
		return nil, nil, err
	}
	if doc.root.kind != object {
		// A schema for something else than an object could let it pass.
		return nil, nil, problem("", "expected an object with the arguments", showGot(doc.root))
	}
	return doc.bytes(), append(repairs, more...), nil
}
