package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func newShop(t *testing.T, path string) *Shop {
	t.Helper()
	s, err := OpenShop(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestOrder(t *testing.T) {
	shop := newShop(t, inMemory)
	tests := []struct {
		id   string
		want *Order
		err  string
	}{
		{id: "ORD-2024-0041", want: &Order{
			ID: "ORD-2024-0041", Item: "stoneware teapot", Amount: "64.50 EUR", Status: Delivered,
			PlacedOn: "2024-11-18", ExpectedOn: "2024-11-22", DeliveredOn: "2024-11-22",
		}},
		{id: "ORD-2024-0042", want: &Order{
			ID: "ORD-2024-0042", Item: "pour-over kettle", Amount: "89.00 EUR", Status: "shipped",
			PlacedOn: "2024-11-25", ExpectedOn: "2024-12-02",
		}},
		{id: "ORD-2024-9999", err: "there is no order ORD-2024-9999: ask the customer to check the number"},
		{id: "' OR 1=1 --", err: "there is no order"},
	}
	for _, tt := range tests {
		t.Run(tt.id, func(t *testing.T) {
			got, err := shop.Order(t.Context(), tt.id)
			check(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Order{})); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefundRules(t *testing.T) {
	tests := []struct {
		name, order string
		err         string
	}{
		{"delivered", "ORD-2024-0041", ""},
		{"shipped", "ORD-2024-0042", "order ORD-2024-0042 is shipped, and only delivered orders can be refunded; tell the customer so"},
		{"processing", "ORD-2024-0043", "is processing, and only delivered"},
		{"cancelled", "ORD-2024-0044", "is cancelled, and only delivered"},
		{"unknown", "ORD-2024-0001", "there is no order ORD-2024-0001"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			shop := newShop(t, inMemory)
			refund, err := shop.Refund(t.Context(), tt.order, Damaged, "call_1")
			check(t, err, tt.err)
			if tt.err == "" && (refund.ID != "RF-000001" || refund.Amount != "64.50 EUR" || refund.Reason != Damaged) {
				t.Errorf("refund %+v", refund)
			}
			if n := refunds(t, shop); (tt.err == "") != (n == 1) {
				t.Errorf("there are %d refunds", n)
			}
		})
	}
}

func TestRefundOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a dir?", "shop #1.db")
	shop, err := OpenShop(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := shop.Refund(t.Context(), "ORD-2024-0041", Damaged, "call_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := shop.Close(); err != nil {
		t.Fatal(err)
	}

	shop = newShop(t, path) // as after a restart
	again, err := shop.Refund(t.Context(), "ORD-2024-0041", Damaged, "call_1")
	if err != nil {
		t.Fatalf("the same call again: %v", err)
	}
	if diff := cmp.Diff(first, again, cmpopts.IgnoreUnexported(Refund{})); diff != "" {
		t.Errorf("the same call got another refund (-want +got):\n%s", diff)
	}
	_, err = shop.Refund(t.Context(), "ORD-2024-0041", ChangedMind, "call_2")
	check(t, err, "order ORD-2024-0041 was refunded already: refund RF-000001 over 64.50 EUR")
	// A key belongs to one order: it does not answer for another.
	other, err := shop.Refund(t.Context(), "ORD-2024-0040", NotReceived, "call_1")
	if err != nil || other.ID == first.ID {
		t.Errorf("the same key for another order: %+v, %v", other, err)
	}
	if n := refunds(t, shop); n != 2 {
		t.Errorf("there are %d refunds, want 2", n)
	}
}

func TestRefundOnceConcurrently(t *testing.T) {
	shop := newShop(t, filepath.Join(t.TempDir(), "shop.db"))
	var wg sync.WaitGroup
	errs := make(chan error, 20)
	for i := range cap(errs) {
		wg.Go(func() {
			_, err := shop.Refund(t.Context(), "ORD-2024-0041", Damaged, fmt.Sprint("call_", i))
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	done := 0
	for err := range errs {
		if err == nil {
			done++
			continue
		}
		check(t, err, "was refunded already")
	}
	if n := refunds(t, shop); done != 1 || n != 1 {
		t.Errorf("%d calls got a refund and there are %d, want 1 of each", done, n)
	}
}

func TestShopHonoursContext(t *testing.T) {
	shop := newShop(t, inMemory)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := shop.Refund(ctx, "ORD-2024-0041", Damaged, "call_1"); err == nil {
		t.Error("a refund after the end of its context")
	}
	if n := refunds(t, shop); n != 0 {
		t.Errorf("there are %d refunds, want none", n)
	}
}

func refunds(t *testing.T, shop *Shop) (n int) {
	t.Helper()
	if err := shop.db.QueryRowContext(t.Context(), "SELECT count(*) FROM refunds").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// check checks that err has the words, or is nil if there are none.
func check(t *testing.T, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("error: %v", err)
	case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
		t.Errorf("error %v, want one with %q", err, words)
	}
}
