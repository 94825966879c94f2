package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A SyntaxError says that a text is not one JSON value, where it goes wrong
// and what was expected there.
type SyntaxError struct {
	Offset       int // bytes before the fault
	Line, Column int // of the fault, both from 1; a column is a character
	Message      string
	Near         string // the text around the fault, at most a few dozen bytes
}

// Error says where the fault is and what was expected.
func (e *SyntaxError) Error() string {
	msg := fmt.Sprintf("not valid JSON at line %d, column %d: %s", e.Line, e.Column, e.Message)
	if e.Near != "" {
		msg += ", near " + strconv.Quote(e.Near)
	}
	return msg
}

// nearBytes is how much of the text is quoted on either side of a fault.
const nearBytes = 24

func newSyntaxError(in string, at int, msg string) *SyntaxError {
	at = min(at, len(in))
	line, column := lineColumn(in, at)
	from, to := max(at-nearBytes, 0), min(at+nearBytes, len(in))
	for from > 0 && !utf8.RuneStart(in[from]) {
		from--
	}
	for to < len(in) && !utf8.RuneStart(in[to]) {
		to++
	}
	return &SyntaxError{Offset: at, Line: line, Column: column, Message: msg, Near: strings.ToValidUTF8(in[from:to], "\uFFFD")}
}

func lineColumn(in string, at int) (line, column int) {
	before := in[:at]
	line = 1 + strings.Count(before, "\n")
	column = 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return line, column
}
