package model

import (
	"fmt"
	"math"
)

// Cost is the price of a model in US dollars per million tokens. A price of
// zero is not known, unless the model is free.
type Cost struct {
	Input, Output, CacheRead, CacheWrite float64

	// Free says that the model costs nothing, as one does that runs on a machine
	// of one's own. The prices do not matter then.
	Free bool

	// UpTo is the size of a prompt up to which the prices hold, in tokens, what
	// is read from and written to the cache included. Longer prompts cost
	// something else, which is not known. Zero means that the prices hold for
	// every prompt.
	UpTo int
}

// perToken turns a price into that of one token.
const perToken = 1e-6

// Of returns what one call costs in US dollars, and whether that is known. It
// is not if the call used anything whose price is not known: what is known is
// not given for the whole. Nor is it if u is zero, since then the provider has
// not said what the call used.
//
// Prices depend on the size of one prompt, so a sum of usages is not to be
// priced at once: add up what each call costs, as [Expense] does.
func (c Cost) Of(u Usage) (dollars float64, known bool) {
	if c.Free {
		return 0, true
	}
	prompt := float64(u.Input) + float64(u.CacheRead) + float64(u.CacheWrite)
	if u == (Usage{}) || c.UpTo > 0 && prompt > float64(c.UpTo) {
		return 0, false
	}
	for _, part := range [...]struct {
		tokens int
		price  float64
	}{{u.Input, c.Input}, {u.Output, c.Output}, {u.CacheRead, c.CacheRead}, {u.CacheWrite, c.CacheWrite}} {
		switch {
		case part.tokens == 0:
		case part.tokens < 0, !(part.price > 0), math.IsInf(part.price, 1):
			return 0, false
		default:
			dollars += float64(part.tokens) * part.price * perToken
		}
	}
	return nano(dollars), true
}

// longPrompt is how many times the prices a prompt is charged that is longer
// than they hold for, in AtMost. Most makers charge twice as much.
const longPrompt = 2

// AtMost returns an estimate of what one call costs in US dollars that is rather
// too high, for calls whose cost is not known: what is read from a cache at the
// price of input where there is no other, what is written to one at twice that,
// and a prompt that is longer than UpTo at twice the prices. It is false where
// not even that can be said: without a price of input or output that was used.
func (c Cost) AtMost(u Usage) (dollars float64, ok bool) {
	if c.UpTo > 0 && u.Input+u.CacheRead+u.CacheWrite > c.UpTo {
		c.Input, c.Output, c.CacheRead, c.CacheWrite = longPrompt*c.Input, longPrompt*c.Output, longPrompt*c.CacheRead, longPrompt*c.CacheWrite
		c.UpTo = 0
	}
	if !(c.CacheRead > 0) {
		c.CacheRead = c.Input
	}
	if !(c.CacheWrite > 0) {
		c.CacheWrite = 2 * c.Input
	}
	return c.Of(u)
}

// nano rounds to billionths of a dollar, so that what is stored and shown does
// not end in the dust of binary fractions.
func nano(dollars float64) float64 { return math.Round(dollars*1e9) / 1e9 }

// Expense returns what one call costs as an [Expense].
func (c Cost) Expense(u Usage) Expense {
	dollars, known := c.Of(u)
	if !known {
		atMost, _ := c.AtMost(u)
		return Expense{Unknown: 1, AtMost: atMost}
	}
	return Expense{Dollars: dollars}
}

// An Expense is what a number of calls have cost. The zero value is that of
// none.
type Expense struct {
	Dollars float64 `json:"dollars"`           // of the calls whose cost is known
	Unknown int     `json:"unknown,omitempty"` // how many there are whose cost is not

	// AtMost estimates, rather too high, what the calls of unknown cost have cost,
	// as far as it can be told from their tokens. It is what a budget is charged.
	AtMost float64 `json:"atMost,omitempty"`
}

// Known reports whether the cost of all calls is known, so that Dollars is what
// they have cost together.
func (e Expense) Known() bool { return e.Unknown == 0 }

// Add returns the sum of e and f.
func (e Expense) Add(f Expense) Expense {
	return Expense{Dollars: nano(e.Dollars + f.Dollars), Unknown: e.Unknown + f.Unknown, AtMost: nano(e.AtMost + f.AtMost)}
}

// String returns the amount for people, such as "$0.0042", "an unknown amount",
// or "$0.0042 and 2 calls of unknown cost (estimated at no more than $0.01)".
// Small amounts have more digits.
func (e Expense) String() string {
	estimate := ""
	if e.Unknown > 0 && e.AtMost > 0 {
		estimate = " (estimated at no more than " + amount(e.AtMost) + ")"
	}
	switch {
	case e.Unknown == 0:
		return amount(e.Dollars)
	case e.Dollars == 0:
		return "an unknown amount" + estimate
	case e.Unknown == 1:
		return amount(e.Dollars) + " and 1 call of unknown cost" + estimate
	}
	return fmt.Sprintf("%s and %d calls of unknown cost%s", amount(e.Dollars), e.Unknown, estimate)
}

func amount(dollars float64) string {
	switch {
	case dollars != 0 && dollars < 0.0001:
		return "less than $0.0001"
	case dollars != 0 && dollars < 1:
		return fmt.Sprintf("$%.4f", dollars)
	}
	return fmt.Sprintf("$%.2f", dollars)
}
