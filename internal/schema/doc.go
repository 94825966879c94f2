// Package schema describes, checks and decodes the JSON that crosses the
// boundary of a program: tool arguments written by a model, tool results,
// creation data sent by a client.
//
// A [Schema] is inferred from a Go type with [For] or given as JSON Schema with
// [Parse]. The bytes that [Schema.JSON] advertises are the bytes that the checks
// were compiled from, so the two cannot differ. Checking is split in two on purpose:
//
//   - [Schema.DecodeArguments] takes what a model wrote. It is strict about
//     meaning and lenient about two habits of models: an empty string for "no
//     arguments" and a nested value that was encoded twice. What it corrects it
//     reports as a [Repair].
//   - [Schema.Normalize] and [Schema.Decode] take what a program wrote and
//     correct nothing but an explicit null for an absent field.
//
// Both return a [ValidationError] that speaks about the sender's own document:
// where, what was expected, what came, and of everything that is wrong at once.
// It is written to be read by the model that has to try again.
//
// # Go types
//
// A struct is an object that allows no other properties. A field is optional
// if it is a pointer, or tagged omitempty or omitzero, or has a default;
// otherwise it is required. No field is nullable: a null for an optional field
// means that it is absent. An entry of a map and an element of a list are not
// optional. Names match exactly, "PATH" is not "path".
//
//	string, bool, integers, floats   string, boolean, integer, number
//	slice, array, map                array, array of that length, object
//	[]byte, [n]byte                  base64 string
//	time.Time                        string, RFC 3339
//	time.Duration                    string as time.ParseDuration reads it, "1m30s"
//	json.Number, big.Int             number, integer
//	json.RawMessage, any             anything
//	encoding.TextUnmarshaler         string
//	recursive types                  $defs and $ref
//
// What the type cannot hold is refused too, where the schema does not say it: a
// time that is none, an integer of more than 64 bits, text that UnmarshalText
// does not take. A duration is text because a bare number leaves its unit to be
// guessed; the form is part of its description, so that the model knows it.
//
// A type with JSON methods of its own cannot be inferred; it says what its JSON
// looks like with a method
//
//	JSONSchema() json.RawMessage
//
// The description of a field is its jsonschema tag. These tags add constraints;
// on a slice, those marked * apply to the elements:
//
//	enum:"a,b,c" *        min:"0" *            max:"10" *
//	exclusiveMin:"0" *    exclusiveMax:"1" *   pattern:"^[A-Z]+$" *
//	minLength:"1" *       maxLength:"9" *      format:"email" *
//	minItems:"1"          maxItems:"5"
//	default:"x"           example:"x"
//
// The formats are date, date-time, email, hostname, ipv4, ipv6, time, uri and
// uuid. A default is filled in where the property is absent. An example is shown to
// the model, also in the error when something else came.
//
// A contradiction (a default that is not in the enum, a pattern on a number)
// is an error of [For], which names the type and the field. So is a type that
// could be written and not read again, or the other way round.
//
// # JSON Schema
//
// A schema is written by hand where a Go type cannot say it: unions, or
// properties that depend on each other. [Arguments] checks that it goes with the
// type that it is decoded into.
//
// Everything of draft 2020-12 is checked except $dynamicRef, remote references
// and format, which in a schema written by hand only describes; draft-07 forms are
// understood too. Patterns are Go regular expressions: lookahead and
// backreferences are errors. Numbers are compared exactly, whatever their size.
//
// # Limits
//
// A document may have [MaxDocument] bytes, [MaxDepth] levels and [MaxValues]
// values; the work spent on checking it is bounded too, so that a recursive
// union cannot keep a processor busy. Nothing here panics on bad input.
//
// The tests hold the checks to the official test suite of JSON Schema and to
// Google's jsonschema-go. That library does not do the checking, because a check
// here needs what it does not give: every problem at its place in the sender's
// document, exact numbers, and a bound on the work when the schema came from
// somebody else.
package schema
