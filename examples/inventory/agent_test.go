package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
)

func ask(t *testing.T, message string) string {
	t.Helper()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{assistant(stockSystem)}, Providers: map[string]model.Provider{"anthropic": newDemo()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	in := rt.Instance("inventory-assistant", "shop")
	receipt, err := in.Dispatch(t.Context(), flue.User(message))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := in.Read(t.Context(), receipt.Submission)
	if err != nil {
		t.Fatal(err)
	}
	return reply.Text
}

// What does not match the schema never reaches the model. It is told where the
// result is wrong, and that the tool has run.
func TestCheckInventory(t *testing.T) {
	const refused = `Tool "check_inventory" ran, but its result could not be used`
	tests := []struct {
		name, message string
		want          []string
		not           string
	}{
		{"right", "How many KETTLE-01?", []string{"There are 12 in porto."}, refused},
		{"a number out of range", "How many TEAPOT-02?", []string{refused, "inStock", "-3"}, "turku"},
		{"a value of another type", "How many FILTER-03?", []string{refused, "inStock", "integer"}, "porto"},
		{"a member that is missing", "How many GRINDER-04?", []string{refused, "warehouse"}, "There are"},
		{"no such item", "How many SPOON-99?", []string{"there is no item SPOON-99"}, refused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ask(t, tt.message)
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("the model says %q, want %q in it", got, want)
				}
			}
			if strings.Contains(got, tt.not) {
				t.Errorf("the model says %q, want no %q in it", got, tt.not)
			}
		})
	}
}

func TestRunWithoutKey(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), app(), []string{"run", "--db", ":memory:", "-m", "How many of KETTLE-01 are there?"}, strings.NewReader(""), &stdout, &stderr)
	if want := "There are 12 in porto." + scriptedNote + "\n"; code != 0 || stdout.String() != want {
		t.Errorf("exit code %d and %q, want %q\n%s", code, stdout.String(), want, stderr.String())
	}
}
