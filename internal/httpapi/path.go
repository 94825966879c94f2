package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/flue-go/flue/wire"
)

// maxID bounds the ids in a URL, in bytes, as stores do.
const maxID = 1 << 10

type pathKind int

const (
	pathConversation pathKind = iota
	pathAbort
	pathAttachment
)

// A path is what a request names below the mount.
type path struct {
	kind       pathKind
	id         string
	attachment string
}

// parsePath reads an escaped path below the mount. An id may contain anything
// once it is unescaped, slashes included.
func parsePath(escaped string) (path, bool) {
	segments := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	var p path
	switch n := len(segments); {
	case n == 1:
	case n == 2 && segments[1] == "abort":
		p.kind = pathAbort
	case n == 3 && segments[1] == "attachments" && segments[2] != "":
		p.kind = pathAttachment
		p.attachment = unescape(segments[2])
	default:
		return path{}, false
	}
	if segments[0] == "" {
		return path{}, false
	}
	p.id = unescape(segments[0])
	return p, true
}

func unescape(segment string) string {
	s, err := url.PathUnescape(segment)
	if err != nil {
		return segment
	}
	return s
}

func (p path) methods() []string {
	switch p.kind {
	case pathAbort:
		return []string{http.MethodPost}
	case pathAttachment:
		return []string{http.MethodGet}
	}
	return []string{http.MethodGet, http.MethodHead, http.MethodPost}
}

func (p path) checkID() error {
	if strings.TrimSpace(p.id) == "" {
		return wire.InvalidRequest("Agent conversation URLs must end with a non-empty conversation id segment.")
	}
	if !validID(p.id) {
		return wire.InvalidRequest("Agent conversation ids must be UTF-8 text of at most 1024 bytes without zero bytes.")
	}
	if p.kind == pathAttachment && !validID(p.attachment) {
		return wire.AttachmentNotFound(strings.ToValidUTF8(p.attachment[:min(len(p.attachment), maxID)], "\ufffd"))
	}
	return nil
}

func validID(s string) bool {
	return len(s) <= maxID && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// relativePath returns the part of the request's escaped path that is below
// the mount. What http.StripPrefix left is relative already. Otherwise the
// pattern that the mux matched says how much of the path is the mount.
func relativePath(r *http.Request) string {
	now := r.URL.EscapedPath()
	mount, ok := subtree(r.Pattern)
	if !ok {
		return now
	}
	if stripped, ok := strings.CutSuffix(requestPath(r), now); ok && stripped != "" {
		stripped = strings.TrimSuffix(stripped, "/") + "/"
		if strings.HasPrefix(mount, stripped) || strings.HasSuffix(stripped, mount) {
			return now // the pattern was matched before the prefix was stripped
		}
	}
	rest := now
	for segment := range strings.SplitSeq(strings.Trim(mount, "/"), "/") {
		first, after, found := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		if !found || !strings.HasPrefix(segment, "{") && unescape(first) != unescape(segment) {
			return now
		}
		rest = after
	}
	return "/" + rest
}

// subtree returns the path of a mux pattern that stands for everything below
// it, such as "/agents/chat/" or "POST example.com/agents/{name}/{rest...}".
func subtree(pattern string) (string, bool) {
	i := strings.IndexByte(pattern, '/')
	if i < 0 {
		return "", false
	}
	p := pattern[i:]
	if strings.HasSuffix(p, "...}") {
		p = p[:strings.LastIndexByte(p, '/')+1]
	}
	return p, strings.HasSuffix(p, "/") && p != "/"
}

// requestPath returns the escaped path that the client asked for, whatever a
// mux or middleware made of it since.
func requestPath(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// streamURL returns the URL that the client is to read from: the one that it
// posted to, without its query.
func (x *exchange) streamURL() string {
	scheme, host := "http", x.r.Host
	if x.r.TLS != nil {
		scheme = "https"
	}
	if x.h.TrustForwarded {
		if p := forwarded(x.r, "X-Forwarded-Proto"); p == "http" || p == "https" {
			scheme = p
		}
		if f := forwarded(x.r, "X-Forwarded-Host"); isHost(f) {
			host = f
		}
	}
	return scheme + "://" + host + requestPath(x.r)
}

// forwarded returns the first value of a header that proxies append to.
func forwarded(r *http.Request, name string) string {
	first, _, _ := strings.Cut(r.Header.Get(name), ",")
	return strings.TrimSpace(first)
}

func isHost(s string) bool {
	u, err := url.Parse("http://" + s)
	return err == nil && s != "" && u.Host == s
}
