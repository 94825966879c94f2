package model_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/flue-go/flue/model"
)

func TestCostOf(t *testing.T) {
	sonnet := model.Cost{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75}
	tests := []struct {
		name  string
		cost  model.Cost
		usage model.Usage
		want  float64
		known bool
	}{
		{"all parts", sonnet, model.Usage{Input: 1000, Output: 200, CacheRead: 50_000, CacheWrite: 400}, 0.003 + 0.003 + 0.015 + 0.0015, true},
		{"reasoning is part of the output", sonnet, model.Usage{Output: 1000, Reasoning: 900}, 0.015, true},
		{"dust is rounded off", model.Cost{Input: 0.1}, model.Usage{Input: 3}, 0.0000003, true},
		{"nothing reported", sonnet, model.Usage{}, 0, false},
		{"no price at all", model.Cost{}, model.Usage{Input: 1}, 0, false},
		{"output has no price", model.Cost{Input: 3}, model.Usage{Input: 1, Output: 1}, 0, false},
		{"reading the cache has no price", model.Cost{Input: 3, Output: 15}, model.Usage{Input: 1, CacheRead: 1}, 0, false},
		{"writing the cache has no price", model.Cost{Input: 3, Output: 15}, model.Usage{Input: 1, CacheWrite: 1}, 0, false},
		{"no price needed where nothing was used", model.Cost{Input: 3, Output: 15}, model.Usage{Input: 1_000_000}, 3, true},
		{"free", model.Cost{Free: true}, model.Usage{Input: 1, Output: 1, CacheRead: 1}, 0, true},
		{"free, nothing reported", model.Cost{Free: true}, model.Usage{}, 0, true},
		{"free in spite of prices", model.Cost{Input: 3, Free: true}, model.Usage{Input: 1}, 0, true},
		{"prompt at the bound", model.Cost{Input: 1, CacheRead: 1, UpTo: 200_000}, model.Usage{Input: 100_000, CacheRead: 100_000}, 0.2, true},
		{"prompt beyond the bound", model.Cost{Input: 1, CacheRead: 1, UpTo: 200_000}, model.Usage{Input: 100_000, CacheRead: 100_001}, 0, false},
		{"output is no prompt", model.Cost{Input: 1, Output: 1, UpTo: 10}, model.Usage{Input: 10, Output: 1000}, 0.00101, true},
		{"a count that cannot be", sonnet, model.Usage{Input: -1, Output: 1}, 0, false},
		{"counts that overflow", model.Cost{Input: 1, Output: 1, CacheRead: 1, UpTo: 10}, model.Usage{Input: math.MaxInt, CacheRead: math.MaxInt}, 0, false},
		{"a price that cannot be", model.Cost{Input: -1}, model.Usage{Input: 1}, 0, false},
		{"a price that is no number", model.Cost{Input: math.NaN()}, model.Usage{Input: 1}, 0, false},
		{"an infinite price", model.Cost{Input: math.Inf(1)}, model.Usage{Input: 1}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, known := tt.cost.Of(tt.usage)
			if got != tt.want || known != tt.known {
				t.Errorf("Of = %v, %v; want %v, %v", got, known, tt.want, tt.known)
			}
			want := model.Expense{Dollars: tt.want}
			if !tt.known {
				want.Unknown = 1
				want.AtMost, _ = tt.cost.AtMost(tt.usage)
			}
			if e := tt.cost.Expense(tt.usage); e != want || e.Known() != tt.known {
				t.Errorf("Expense = %+v, known %v; want %+v", e, e.Known(), want)
			}
		})
	}
}

// What a call of unknown cost is taken to have cost is not less than it can have,
// where the prices say anything.
func TestCostAtMost(t *testing.T) {
	tests := []struct {
		name  string
		cost  model.Cost
		usage model.Usage
		want  float64
		ok    bool
	}{
		{"known", model.Cost{Input: 3, Output: 15, CacheRead: 0.3}, model.Usage{Input: 1000, Output: 100, CacheRead: 10_000}, 0.0075, true},
		{"reading the cache costs no more than input", model.Cost{Input: 3, Output: 15}, model.Usage{CacheRead: 1000}, 0.003, true},
		{"writing it no more than twice that", model.Cost{Input: 3, Output: 15}, model.Usage{CacheWrite: 1000}, 0.006, true},
		{"a long prompt no more than double", model.Cost{Input: 1, Output: 10, CacheRead: 0.1, UpTo: 100}, model.Usage{Input: 50, CacheRead: 51, Output: 10}, 0.0003102, true},
		{"a long prompt whose cache has no price", model.Cost{Input: 1, Output: 10, UpTo: 100}, model.Usage{Input: 50, CacheRead: 51}, 0.000202, true},
		{"free", model.Cost{Free: true}, model.Usage{Input: 1}, 0, true},
		{"no price of output", model.Cost{Input: 1}, model.Usage{Input: 1, Output: 1}, 0, false},
		{"no price", model.Cost{}, model.Usage{Input: 1}, 0, false},
		{"nothing reported", model.Cost{Input: 1, Output: 1}, model.Usage{}, 0, false},
	}
	for _, tt := range tests {
		if got, ok := tt.cost.AtMost(tt.usage); got != tt.want || ok != tt.ok {
			t.Errorf("%s: AtMost = %v, %v; want %v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestExpenseAdds(t *testing.T) {
	var sum model.Expense
	if !sum.Known() {
		t.Error("the cost of no calls is not known")
	}
	for range 10 {
		sum = sum.Add(model.Expense{Dollars: 0.1})
	}
	sum = sum.Add(model.Expense{Unknown: 1}).Add(model.Expense{Unknown: 1})
	if want := (model.Expense{Dollars: 1, Unknown: 2}); sum != want || sum.Known() {
		t.Errorf("got %+v, known %v; want %+v", sum, sum.Known(), want)
	}
}

func TestExpenseString(t *testing.T) {
	for _, tt := range []struct {
		e    model.Expense
		want string
	}{
		{model.Expense{}, "$0.00"},
		{model.Expense{Dollars: 12.3456}, "$12.35"},
		{model.Expense{Dollars: 0.00421}, "$0.0042"},
		{model.Expense{Dollars: 0.00001}, "less than $0.0001"},
		{model.Expense{Unknown: 3}, "an unknown amount"},
		{model.Expense{Dollars: 1.5, Unknown: 1}, "$1.50 and 1 call of unknown cost"},
		{model.Expense{Dollars: 0.25, Unknown: 2}, "$0.2500 and 2 calls of unknown cost"},
		{model.Expense{Unknown: 1, AtMost: 0.02}, "an unknown amount (estimated at no more than $0.0200)"},
		{model.Expense{Dollars: 0.25, Unknown: 2, AtMost: 1.5}, "$0.2500 and 2 calls of unknown cost (estimated at no more than $1.50)"},
	} {
		if got := tt.e.String(); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.e, got, tt.want)
		}
	}
}

func ExampleCost_Of() {
	price := model.Cost{Input: 3, Output: 15} // the cache's prices are not known
	fmt.Println(price.Of(model.Usage{Input: 10_000, Output: 2_000}))
	fmt.Println(price.Of(model.Usage{Input: 10_000, Output: 2_000, CacheRead: 5_000}))
	// Output:
	// 0.06 true
	// 0 false
}
