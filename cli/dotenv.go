package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDotenv bounds an env file, in bytes.
const maxDotenv = 1 << 20

// A variable is one assignment of an env file.
type variable struct {
	name, value string
	line        int
}

// parseDotenv reads an env file: one NAME=value a line.
//
//	# a comment
//	export NAME=value   # "export" is allowed and ignored; so is this comment
//	SINGLE='as it is: $HOME \n #'
//	DOUBLE="with \n, \r, \t, \\, \" and \$ as escapes"
//
// A quoted value may go on over several lines. Nothing is expanded: a dollar
// sign stands for itself. A name may be assigned once.
//
// The errors name the line and never show its text, which may be a secret.
func parseDotenv(text string) ([]variable, error) {
	if len(text) > maxDotenv {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(text), maxDotenv)
	}
	p := dotenv{rest: strings.TrimPrefix(text, "\ufeff"), line: 1}
	seen := make(map[string]int)
	var vars []variable
	for p.rest != "" {
		v, ok, err := p.next()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			continue
		case seen[v.name] != 0:
			return nil, p.errorf(v.line, "%s is already set on line %d: remove one", v.name, seen[v.name])
		}
		seen[v.name] = v.line
		vars = append(vars, v)
	}
	return vars, nil
}

// dotenv is the unread part of an env file.
type dotenv struct {
	rest string
	line int
}

func (p *dotenv) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{line}, args...)...)
}

// next reads a line, or as many as a quoted value has. It reports false if the
// line assigns nothing.
func (p *dotenv) next() (v variable, ok bool, err error) {
	v.line = p.line
	line, _, _ := strings.Cut(p.rest, "\n")
	if strings.ContainsRune(line, 0) || !utf8.ValidString(line) {
		return v, false, p.errorf(p.line, "it is not text in UTF-8")
	}
	trimmed := strings.TrimLeft(line, " \t")
	if trimmed = strings.TrimRight(trimmed, " \t\r"); trimmed == "" || trimmed[0] == '#' {
		p.skip(len(line))
		return v, false, nil
	}
	before, _, found := strings.Cut(line, "=")
	if !found {
		return v, false, p.errorf(p.line, "there is no \"=\": write NAME=value, and begin a comment with #")
	}
	v.name = strings.Trim(before, " \t")
	if name, cut := strings.CutPrefix(v.name, "export"); cut && name != strings.TrimLeft(name, " \t") {
		v.name = strings.TrimLeft(name, " \t")
	}
	if !isVariableName(v.name) {
		return v, false, p.errorf(p.line, "what stands before \"=\" is not a name: use letters, digits and \"_\", and do not begin with a digit")
	}
	p.rest = strings.TrimLeft(p.rest[len(before)+1:], " \t")
	v.value, err = p.value()
	return v, err == nil, err
}

// skip moves past n bytes and the end of the line after them.
func (p *dotenv) skip(n int) {
	p.rest = p.rest[n:]
	if p.rest != "" {
		p.rest = p.rest[1:]
	}
	p.line++
}

// value reads what follows the equals sign, to the end of its line.
func (p *dotenv) value() (string, error) {
	if p.rest != "" && (p.rest[0] == '\'' || p.rest[0] == '"') {
		return p.quoted(p.rest[0])
	}
	line, _, _ := strings.Cut(p.rest, "\n")
	value := line
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			value = line[:i]
			break
		}
	}
	value = strings.TrimRight(value, " \t\r")
	if strings.ContainsAny(value, "'\"\r") {
		return "", p.errorf(p.line, "there is a quote or a carriage return inside an unquoted value: quote the whole value")
	}
	p.skip(len(line))
	return value, nil
}

// quoted reads a value in quotes and the rest of the line that they end on.
func (p *dotenv) quoted(quote byte) (string, error) {
	began := p.line
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == quote:
			p.line += strings.Count(p.rest[:i], "\n")
			p.rest = p.rest[i+1:]
			return b.String(), p.endOfLine(b.String(), began)
		case c == '\\' && quote == '"':
			i++
			if i == len(p.rest) {
				return "", p.errorf(began, "the quote that begins here has no end")
			}
			e, ok := unescape(p.rest[i])
			if !ok {
				return "", p.errorf(began+strings.Count(p.rest[:i], "\n"), `unknown escape: use \n, \r, \t, \\, \" or \$, or single quotes to take everything as it is`)
			}
			b.WriteByte(e)
		case c == '\r' && i+1 < len(p.rest) && p.rest[i+1] == '\n':
			// The file has the line endings of Windows, not the value.
		default:
			b.WriteByte(c)
		}
	}
	return "", p.errorf(began, "the quote that begins here has no end")
}

// endOfLine moves past what may follow a quoted value: space and a comment.
func (p *dotenv) endOfLine(value string, began int) error {
	if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
		return p.errorf(began, "it is not text in UTF-8")
	}
	line, _, _ := strings.Cut(p.rest, "\n")
	after := strings.TrimRight(line, " \t\r")
	if comment := strings.TrimLeft(after, " \t"); comment != "" && (comment[0] != '#' || comment == after) {
		return p.errorf(p.line, "there is text after the closing quote: put it inside, or behind a space and #")
	}
	if strings.ContainsRune(line, 0) || !utf8.ValidString(line) {
		return p.errorf(p.line, "it is not text in UTF-8")
	}
	p.skip(len(line))
	return nil
}

func unescape(c byte) (byte, bool) {
	switch c {
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case '\\', '"', '$':
		return c, true
	}
	return 0, false
}

func isVariableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return s != ""
}
