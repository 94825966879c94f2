package main

import (
	"strings"
	"testing"

	"github.com/flue-go/flue/internal/pgtest"
)

// Everything can be measured, and every message is settled.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a server and starts nine")
	}
	p := plan{
		postgres: pgtest.URL(t), replicas: []int{0, 1, 3}, conversations: []int{4}, kinds: []string{"text", "tool"},
		prompts: 20, turns: 3, rounds: 1,
	}
	var out strings.Builder
	if err := run(t.Context(), p, &out); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "\n\n")
	if rows := strings.Count(table, "\n"); rows != 2+6 {
		t.Errorf("the table has %d rows:\n%s", rows, table)
	}
}
