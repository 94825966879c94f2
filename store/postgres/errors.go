package postgres

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flue-go/flue/store"
)

// ErrNoAnswer means that the connection was lost, or that no answer came in time,
// after a call was sent to the database. If it was a write, it may or may not have
// happened, or may still happen. It comes with store.ErrUnavailable, as do the
// failures of which it is certain that nothing was done.
var ErrNoAnswer = errors.New("postgres: no answer from the database")

// SQLSTATE codes that are told apart.
const (
	codeReadOnly      = "25006" // read_only_sql_transaction
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codePrepared      = "42P05" // duplicate_prepared_statement
	codeNotPrepared   = "26000" // invalid_sql_statement_name
)

// code returns the SQLSTATE of an error of the server, or "".
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// undone reports whether a statement that failed with err has certainly not been
// done and will not be: it was never sent, or the server has refused it and lives
// on. A server that ends the connection may do so after the commit.
func undone(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.SeverityUnlocalized == "ERROR" || e.SeverityUnlocalized == "" && e.Severity == "ERROR"
	}
	return pgconn.SafeToRetry(err)
}

// again reports whether a statement that is undone may succeed if it is tried
// again at once, on another connection if need be.
func again(err error) bool {
	switch code(err) {
	case codeSerialization, codeDeadlock, codeReadOnly:
		return true
	case "":
		return pgconn.SafeToRetry(err)
	}
	return false
}

// hopeless reports whether a connection cannot be made by trying again: the
// server has refused this client as such.
func hopeless(err error) bool {
	c := code(err)
	return strings.HasPrefix(c, "28") || c == "3D000" || c == "42501"
}

// answer makes an error of a call that was sent: it does not show an end of our
// own waiting as the end of the caller's context, after which nothing would have
// happened.
func answer(err error) error {
	if err == nil {
		return nil
	}
	p := strip(err)
	switch {
	case !undone(p):
		p.text = ErrNoAnswer.Error() + ": " + p.text
		p.is = append(p.is, ErrNoAnswer, store.ErrUnavailable)
	case p.unsent && code(p) == "": // the connection was lost before
		p.is = append(p.is, store.ErrUnavailable)
	}
	return p
}

// unreached makes an error of a connection that could not be had.
func unreached(err error) error {
	p := strip(err)
	p.is = append(p.is, store.ErrUnavailable)
	return p
}

// unfinished makes an error of a statement in a transaction that is not committed:
// nothing was done, and if it was not the server that refused it may be tried again.
func unfinished(err error) error {
	p := strip(err)
	if code(p) == "" {
		p.is = append(p.is, store.ErrUnavailable)
	}
	return p
}

// plain is err without what it holds: errors of contexts, which are ours, and the
// configuration of a connection, with its password. What the server says stays.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return strip(err)
}

func strip(err error) *plainError {
	p := &plainError{text: err.Error(), unsent: pgconn.SafeToRetry(err)}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		p.is = append(p.is, server)
		if server.Code == codePrepared || server.Code == codeNotPrepared {
			p.text += " (a pooler that gives connections away by transaction, and does not know prepared statements, is in between: " +
				"add default_query_exec_mode=cache_describe to the URL)"
		}
		if passing(server.Code) {
			p.is = append(p.is, store.ErrUnavailable)
		}
	}
	return p
}

// passing reports whether the server has refused something that it may do later:
// it is short of something, starts or stops, or others were in the way.
func passing(code string) bool {
	switch code[:min(len(code), 2)] {
	case "08", "40", "53", "57", "58":
		return true
	}
	return code == codeLockTimeout || code == codeReadOnly
}

type plainError struct {
	text   string
	is     []error
	unsent bool
}

func (e *plainError) Error() string   { return e.text }
func (e *plainError) Unwrap() []error { return e.is }

// SafeToRetry is what package pgconn asks.
func (e *plainError) SafeToRetry() bool { return e.unsent }

// maxCall bounds what one call sends, since the server takes no message of more
// than 1 GiB and holds several copies of one.
const maxCall = 256 << 20

// sendable refuses a call that is too large as a whole.
func sendable(size int) error {
	if size > maxCall {
		return fmt.Errorf("%w: %d bytes in one call, the limit of this store is %d", store.ErrTooLarge, size, maxCall)
	}
	return nil
}

// storable reports whether the server can hold texts. What it cannot hold it does
// not have.
func storable(texts ...string) bool {
	for _, s := range texts {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			return false
		}
	}
	return true
}
