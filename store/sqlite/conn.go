package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"github.com/flue-go/flue/store"
)

// A conn is one connection to a SQLite file, used by one goroutine at a time.
//
// It talks to the driver without database/sql, whose pooling, conversions and
// cancellation would be paid for by every statement of every group.
type conn struct {
	driver.Conn
	file     string
	prepared []*stmt
}

// The modes in which a file is opened.
const (
	readOnly  = "ro"
	readWrite = "rw"
	create    = "rwc"
)

// dial opens the file. Nothing is read from it until the first statement.
func dial(file, mode string) (*conn, error) {
	var d sqlite.Driver
	dc, err := d.Open(dsn(file, mode))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, classify(err))
	}
	return &conn{Conn: dc, file: file}, nil
}

// dsn writes the absolute path of a file as a URI, so that characters such as
// ? and # in it mean nothing special.
func dsn(file, mode string) string {
	p := filepath.ToSlash(file)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x becomes /C:/x, as SQLite wants it
	}
	u := url.URL{Scheme: "file", Path: p, OmitHost: true, RawQuery: "mode=" + mode}
	return u.String()
}

// exec runs statements without parameters, one after the other.
func (c *conn) exec(ctx context.Context, statements ...string) error {
	for _, q := range statements {
		if _, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, q, nil); err != nil {
			return fmt.Errorf("%s: %s: %w", c.file, firstLine(q), classify(err))
		}
	}
	return nil
}

// value runs a statement that returns one value and stores it where dest points
// to.
func (c *conn) value(query string, dest any) error {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(context.Background(), query, nil)
	if err == nil {
		r := make(row, len(rows.Columns()))
		if err = rows.Next(r); err == nil {
			err = r.scan(dest)
		}
		err = errors.Join(err, rows.Close())
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", c.file, query, classify(err))
	}
	return nil
}

// prepare prepares a statement that lives as long as the connection.
func (c *conn) prepare(query string) (*stmt, error) {
	ds, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(context.Background(), query)
	if err != nil {
		return nil, fmt.Errorf("%s: prepare %s: %w", c.file, firstLine(query), classify(err))
	}
	s := &stmt{ds: ds, query: query, file: c.file}
	c.prepared = append(c.prepared, s)
	return s, nil
}

// close closes the connection. A statement that is not closed before would keep
// it, and its locks, alive.
func (c *conn) close() error {
	var errs []error
	for _, s := range c.prepared {
		errs = append(errs, s.ds.Close())
	}
	c.prepared = nil
	return errors.Join(append(errs, c.Conn.Close())...)
}

// A stmt is a prepared statement of a conn. Its statements run without a
// context: each is short, and a write that is interrupted half way is worth
// less than a write that ends.
type stmt struct {
	ds    driver.Stmt
	query string
	file  string
	args  []driver.NamedValue
}

func (s *stmt) bind(args []driver.Value) []driver.NamedValue {
	s.args = s.args[:0]
	for i, v := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return s.args
}

// done names the statement in an error, and drops the arguments.
func (s *stmt) done(err error) error {
	clear(s.args)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", s.file, firstLine(s.query), classify(err))
}

// run runs a statement that returns no rows.
func (s *stmt) run(args ...driver.Value) (driver.Result, error) {
	r, err := s.ds.(driver.StmtExecContext).ExecContext(context.Background(), s.bind(args))
	return r, s.done(err)
}

// get runs a query and returns its first row, or nil if there is none.
func (s *stmt) get(args ...driver.Value) (row, error) {
	var first row
	err := s.each(func(r row) error {
		first = r
		return io.EOF
	}, args...)
	return first, err
}

// each runs a query and calls fn with every row until it returns an error, of
// which io.EOF means that it has seen enough. The next row replaces the one
// before.
func (s *stmt) each(fn func(row) error, args ...driver.Value) error {
	rows, err := s.ds.(driver.StmtQueryContext).QueryContext(context.Background(), s.bind(args))
	if err != nil {
		return s.done(err)
	}
	r := make(row, len(rows.Columns()))
	for {
		if err = rows.Next(r); err == nil {
			err = fn(r)
		}
		if err != nil {
			break
		}
	}
	if err == io.EOF {
		err = nil
	}
	return s.done(errors.Join(err, rows.Close()))
}

// A row holds the values of one result row: int64, string, []byte or nil.
type row []driver.Value

// scan stores the values of r where dest points to.
func (r row) scan(dest ...any) error {
	if len(r) != len(dest) {
		return fmt.Errorf("%w: a row with %d values, want %d", store.ErrCorrupt, len(r), len(dest))
	}
	for i, d := range dest {
		ok := false
		switch d := d.(type) {
		case *int64:
			*d, ok = r[i].(int64)
		case *string:
			*d, ok = r[i].(string)
		case *[]byte:
			// The driver returns an empty blob as one without bytes.
			*d, ok = r[i].([]byte)
		}
		if !ok {
			return fmt.Errorf("%w: value %d of a row is a %T", store.ErrCorrupt, i, r[i])
		}
	}
	return nil
}

func firstLine(query string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(query), "\n")
	return line
}
