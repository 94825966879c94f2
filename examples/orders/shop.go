package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"
)

//go:embed shop.sql
var shopSQL string

// A Shop is the table of orders. It is safe for concurrent use.
type Shop struct{ db *sql.DB }

// OpenShop opens the shop in the file at path, or makes one there with a few
// orders. The path ":memory:" is a shop that ends with the program.
func OpenShop(ctx context.Context, path string) (*Shop, error) {
	if path != inMemory {
		if err := touch(path); err != nil {
			return nil, fmt.Errorf("making the file of the shop: %w", err)
		}
	}
	source := url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), // a "?" in it means nothing special
		RawQuery: "_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=synchronous(full)",
	}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, fmt.Errorf("opening the shop %s: %w", path, err)
	}
	// In memory each connection would be a shop of its own, and in a file
	// SQLite has one writer anyway.
	db.SetMaxOpenConns(1)
	s := &Shop{db}
	if err := s.fill(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the shop %s: %w", path, err), db.Close())
	}
	return s, nil
}

const inMemory = ":memory:"

// touch makes sure that there is a file, which nobody else can read.
func touch(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// fill makes the tables of a new shop.
func (s *Shop) fill(ctx context.Context) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil || version != 0 {
			return err
		}
		_, err := tx.ExecContext(ctx, shopSQL+"; PRAGMA user_version = 1")
		return err
	})
}

// Close closes the shop.
func (s *Shop) Close() error { return s.db.Close() }

// A Status says where an order is.
type Status string

// Delivered is the status of an order that may be refunded.
const Delivered Status = "delivered"

// An Order is what a customer may know of an order.
type Order struct {
	ID          string  `json:"orderId"`
	Item        string  `json:"item"`
	Amount      string  `json:"amount"`
	Status      Status  `json:"status"`
	PlacedOn    string  `json:"placedOn"`
	ExpectedOn  string  `json:"expectedOn,omitempty"`
	DeliveredOn string  `json:"deliveredOn,omitempty"`
	Refund      *Refund `json:"refund,omitempty"`

	cents int64
}

// A Refund is money that was given back.
type Refund struct {
	ID       string `json:"refundId"`
	Amount   string `json:"amount"`
	Reason   Reason `json:"reason"`
	IssuedAt string `json:"issuedAt"`

	callID string
}

// A Reason is why a customer wants the money back.
type Reason string

// The reasons.
const (
	Damaged     Reason = "damaged"
	NotReceived Reason = "not_received"
	ChangedMind Reason = "changed_mind"
)

// Order returns the order with the id. Its error says what to do next.
func (s *Shop) Order(ctx context.Context, id string) (*Order, error) {
	return order(ctx, s.db, id)
}

// querier is what *sql.DB and *sql.Tx have in common.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func order(ctx context.Context, db querier, id string) (*Order, error) {
	o := Order{ID: id}
	var expected, delivered, callID, reason, issuedAt sql.NullString
	var refundID, refunded sql.NullInt64
	err := db.QueryRowContext(ctx, `
		SELECT o.item, o.cents, o.status, o.placed_on, o.expected_on, o.delivered_on, r.id, r.cents, r.reason, r.issued_at, r.call_id
		FROM orders o LEFT JOIN refunds r ON r.order_id = o.id
		WHERE o.id = ?`, id).
		Scan(&o.Item, &o.cents, &o.Status, &o.PlacedOn, &expected, &delivered, &refundID, &refunded, &reason, &issuedAt, &callID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("there is no order %s: ask the customer to check the number, which looks like ORD-2024-0042", id)
	case err != nil:
		return nil, fmt.Errorf("reading order %s: %w", id, err)
	}
	o.Amount, o.ExpectedOn, o.DeliveredOn = euros(o.cents), expected.String, delivered.String
	if refundID.Valid {
		o.Refund = &Refund{
			ID: refundNumber(refundID.Int64), Amount: euros(refunded.Int64), Reason: Reason(reason.String),
			IssuedAt: issuedAt.String, callID: callID.String,
		}
	}
	return &o, nil
}

// Refund gives the whole amount of a delivered order back, once. Asking again
// under the same key of a call returns the first refund; under another one it is an
// error, as is asking for an order that was not delivered. The error says what
// to do next.
func (s *Shop) Refund(ctx context.Context, orderID string, reason Reason, callID string) (*Refund, error) {
	var refund *Refund
	err := s.transact(ctx, func(tx *sql.Tx) error {
		o, err := order(ctx, tx, orderID)
		switch {
		case err != nil:
			return err
		case o.Refund != nil && o.Refund.callID == callID:
			refund = o.Refund
			return nil
		case o.Refund != nil:
			return fmt.Errorf("order %s was refunded already: refund %s over %s was issued on %s; tell the customer, and do not refund it again",
				orderID, o.Refund.ID, o.Refund.Amount, o.Refund.IssuedAt)
		case o.Status != Delivered:
			return fmt.Errorf("order %s is %s, and only delivered orders can be refunded; tell the customer so", orderID, o.Status)
		}
		refund, err = issue(ctx, tx, o, reason, callID)
		return err
	})
	return refund, err
}

func issue(ctx context.Context, tx *sql.Tx, o *Order, reason Reason, callID string) (*Refund, error) {
	at := time.Now().UTC().Format(time.RFC3339)
	res, err := tx.ExecContext(ctx, "INSERT INTO refunds (order_id, call_id, reason, cents, issued_at) VALUES (?, ?, ?, ?, ?)",
		o.ID, callID, reason, o.cents, at)
	if err != nil {
		return nil, fmt.Errorf("refunding order %s: %w", o.ID, err)
	}
	id, err := res.LastInsertId()
	if err != nil {
		return nil, fmt.Errorf("refunding order %s: %w", o.ID, err)
	}
	return &Refund{ID: refundNumber(id), Amount: o.Amount, Reason: reason, IssuedAt: at, callID: callID}, nil
}

func (s *Shop) transact(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("asking the shop: %w", err)
	}
	if err := fn(tx); err != nil {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, undo)
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("changing the shop: %w", err)
	}
	return nil
}

func euros(cents int64) string { return fmt.Sprintf("%d.%02d EUR", cents/100, cents%100) }

func refundNumber(id int64) string { return fmt.Sprintf("RF-%06d", id) }
