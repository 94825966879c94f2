// Package transcript reads recorded HTTP traffic.
//
// A transcript is a text file of exchanges and notes:
//
//	## +0.050s SDK wait() -> resolved
//
//	>>> exchange 2, connection 43, +0.057s
//	GET /agents/chat/a?view=history HTTP/1.1
//	accept: */*
//
//	<<< +0.085s
//	HTTP/1.1 200 OK
//	content-type: application/json
//
//	{"v":1}
//	~~ +0.368s 96B
//	event: data
//	data:[]
//
//	<<< end: client closed the connection
//
// The body of a stream is given in pieces, each after a line with the time of
// its arrival. Times count from the start of the transcript and may be absent.
package transcript

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Transcript is what one file holds, in the order of the file.
type Transcript struct {
	Exchanges []*Exchange
	Notes     []Note
}

// A Note is a line of the one who recorded.
type Note struct {
	Text string
	// Before is the number of exchanges that come before it in the file.
	Before int
}

// An Exchange is one request and its response.
type Exchange struct {
	Method, Target string // as in the request line
	Header         http.Header
	Body           []byte
	Response       *Response // nil if there was none
}

// A Response is what came back.
type Response struct {
	Status int
	Header http.Header
	Body   []byte  // of a stream: all pieces together
	Pieces []Piece // of a stream
}

// A Piece is a part of a stream's body that arrived at once.
type Piece struct {
	At   time.Duration
	Data string
}

// ReadFile reads a transcript from a file.
func ReadFile(name string) (*Transcript, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	t, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// Parse reads a transcript.
func Parse(b []byte) (*Transcript, error) {
	t := new(Transcript)
	p := parser{t: t}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	p.endSection()
	return t, lines.Err()
}

type section int

const (
	outside section = iota
	requestLine
	requestHeader
	requestBody
	statusLine
	responseHeader
	responseBody
	piece
)

type parser struct {
	t    *Transcript
	x    *Exchange
	in   section
	at   time.Duration
	body []string
}

func (p *parser) line(s string) error {
	switch {
	case strings.HasPrefix(s, ">>> exchange"):
		p.endSection()
		p.x = &Exchange{Header: http.Header{}}
		p.t.Exchanges = append(p.t.Exchanges, p.x)
		p.in = requestLine
		return nil
	case strings.HasPrefix(s, "<<<"):
		p.endSection()
		p.in = outside
		if s == "<<<" || strings.HasPrefix(s, "<<< +") {
			p.in = statusLine
		}
		return nil
	case strings.HasPrefix(s, "~~ +") && p.x != nil:
		p.endSection()
		at, _, _ := strings.Cut(s[len("~~ +"):], " ")
		d, err := time.ParseDuration(at)
		if err != nil {
			return err
		}
		p.at, p.in = d, piece
		return nil
	case strings.HasPrefix(s, "## "):
		p.endSection()
		p.in = outside
		text := s[len("## "):]
		if at, rest, ok := strings.Cut(text, " "); ok && strings.HasPrefix(at, "+") {
			text = rest
		}
		p.t.Notes = append(p.t.Notes, Note{Text: text, Before: len(p.t.Exchanges)})
		return nil
	}
	return p.content(s)
}

func (p *parser) content(s string) error {
	switch p.in {
	case requestLine:
		f := strings.Fields(s)
		if len(f) < 2 {
			return fmt.Errorf("request line %q", s)
		}
		p.x.Method, p.x.Target = f[0], f[1]
		p.in = requestHeader
	case statusLine:
		f := strings.Fields(s)
		if len(f) < 2 {
			return fmt.Errorf("status line %q", s)
		}
		status, err := strconv.Atoi(f[1])
		if err != nil {
			return fmt.Errorf("status line %q", s)
		}
		p.x.Response = &Response{Status: status, Header: http.Header{}}
		p.in = responseHeader
	case requestHeader, responseHeader:
		h := p.x.Header
		if p.in == responseHeader {
			h = p.x.Response.Header
		}
		if s == "" {
			p.in++
			return nil
		}
		name, value, ok := strings.Cut(s, ":")
		if !ok {
			return fmt.Errorf("header %q", s)
		}
		h.Add(textproto.TrimString(name), textproto.TrimString(value))
	case requestBody, responseBody, piece:
		p.body = append(p.body, s)
	}
	return nil
}

// endSection hands over the body that has been read. The empty lines after it
// are the file's.
func (p *parser) endSection() {
	body := strings.TrimRight(strings.Join(p.body, "\n"), "\n")
	p.body = nil
	switch {
	case p.x == nil:
	case p.in == requestBody:
		p.x.Body = []byte(body)
	case p.in == responseBody:
		p.x.Response.Body = []byte(body)
	case p.in == piece:
		r := p.x.Response
		r.Pieces = append(r.Pieces, Piece{At: p.at, Data: body + "\n\n"})
		r.Body = append(r.Body, body+"\n\n"...)
	}
}
