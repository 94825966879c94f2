// Package rules knows for what the model services refuse a request. It is
// written from what they document and from their own error messages, and shares
// nothing with the codecs that it judges.
//
// Each function is given the JSON body of a request and returns what is wrong
// with it, a sentence each, and nothing if the service would take it. What depends
// on the model, and the size of a whole request, is not looked at.
package rules

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type (
	object = map[string]any
	list   = []any
)

// A judge collects what is wrong with a request.
type judge struct{ problems []string }

// bad reports a problem at a place of the request.
func (j *judge) bad(at, format string, args ...any) {
	if len(j.problems) < 50 {
		j.problems = append(j.problems, at+": "+fmt.Sprintf(format, args...))
	}
}

// must reports a problem unless ok.
func (j *judge) must(ok bool, at, format string, args ...any) bool {
	if !ok {
		j.bad(at, format, args...)
	}
	return ok
}

// read returns the body as an object. It checks what every service does: that it is
// JSON, that no name occurs twice, and that all text is Unicode.
func (j *judge) read(body []byte) object {
	if !utf8.Valid(body) {
		j.bad("body", "not UTF-8")
	}
	j.surrogates(body)
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	j.names(d, "body")
	var o object
	d = json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		j.bad("body", "no JSON object: %v", err)
	}
	return o
}

// surrogates looks for escapes of half a surrogate pair, which Go reads as U+FFFD
// and other readers refuse.
func (j *judge) surrogates(body []byte) {
	for i := 0; i+5 < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		if body[i+1] != 'u' {
			i++ // what is escaped is no backslash of its own
			continue
		}
		unit, _ := strconv.ParseUint(string(body[i+2:i+6]), 16, 16)
		i += 5
		switch {
		case unit >= 0xDC00 && unit < 0xE000:
			j.bad("body", "half a surrogate pair, \\u%04x", unit)
		case unit >= 0xD800 && unit < 0xDC00:
			var low uint64
			if i+6 < len(body) && body[i+1] == '\\' && body[i+2] == 'u' {
				low, _ = strconv.ParseUint(string(body[i+3:i+7]), 16, 16)
			}
			if low < 0xDC00 || low >= 0xE000 {
				j.bad("body", "half a surrogate pair, \\u%04x", unit)
			} else {
				i += 6
			}
		}
	}
}

// names looks for objects that have a name twice.
func (j *judge) names(d *json.Decoder, at string) {
	token, err := d.Token()
	if err != nil {
		return
	}
	open, ok := token.(json.Delim)
	if !ok {
		return
	}
	seen := map[string]bool{}
	for d.More() {
		below := at
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return
			}
			below += "." + name.(string)
			j.must(!seen[name.(string)], below, "occurs twice")
			seen[name.(string)] = true
		}
		j.names(d, below)
	}
	_, _ = d.Token()
}

// only reports members that an object must not have.
func (j *judge) only(o object, at, names string) {
	known := strings.Fields(names)
	for name := range o {
		j.must(slices.Contains(known, name), at+"."+name, "the service does not know this")
	}
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

func blank(v any) bool { return strings.TrimSpace(str(v)) == "" }

// integer returns a number that is one.
func integer(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

// objects returns the objects of a list, and reports what is none.
func (j *judge) objects(v any, at string) []object {
	all, ok := v.(list)
	if !j.must(ok, at, "no list") {
		return nil
	}
	var found []object
	for i, item := range all {
		o, ok := item.(object)
		if j.must(ok, index(at, i), "no object") {
			found = append(found, o)
		} else {
			found = append(found, object{})
		}
	}
	return found
}

func index(at string, i int) string { return at + "[" + strconv.Itoa(i) + "]" }

// imageTypes are the formats of images, by the services that take them.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// image checks an image in base64: services compare what it is with what it is
// said to be.
func (j *judge) image(at, media, data string, types []string) {
	j.must(slices.Contains(types, media), at, "images of type %q are not taken", media)
	raw, err := base64.StdEncoding.DecodeString(data)
	if !j.must(err == nil && len(raw) > 0, at, "no image in base64") {
		return
	}
	if sniffed := http.DetectContentType(raw); strings.HasPrefix(sniffed, "image/") {
		j.must(sniffed == media, at, "the image is said to be %q and is %q", media, sniffed)
	}
	j.must(len(data) <= 5<<20, at, "the image has %d bytes in base64, more than 5 MiB", len(data))
}

// schema checks the schema of a tool's arguments at its root.
func (j *judge) schema(v any, at string, forbidden ...string) {
	o, ok := v.(object)
	if !j.must(ok, at, "no schema") {
		return
	}
	j.must(strings.EqualFold(str(o["type"]), "object"), at, "the type is %v, not object", o["type"])
	for _, name := range forbidden {
		j.must(o[name] == nil, at+"."+name, "not taken at the root")
	}
}

// argumentsText checks arguments that are sent as text.
func (j *judge) argumentsText(v any, at string) {
	var o object
	s, ok := v.(string)
	if j.must(ok, at, "no text") {
		j.must(json.Unmarshal([]byte(s), &o) == nil && o != nil, at, "%q is no JSON object", s)
		j.surrogates([]byte(s))
	}
}

var (
	plainName  = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	longName   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)
	propertyID = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// toolNames checks the names of tools and returns them.
func (j *judge) toolNames(names []string, at string, form *regexp.Regexp) map[string]bool {
	seen := map[string]bool{}
	for i, name := range names {
		j.must(form.MatchString(name), index(at, i), "the name %q is not taken", name)
		j.must(!seen[name], index(at, i), "a second tool is called %q", name)
		seen[name] = true
	}
	return seen
}
