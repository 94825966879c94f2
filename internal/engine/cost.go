package engine

import (
	"errors"
	"math"
	"net"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// nano is how many units of a stored cost are a dollar.
const nano = 1e9

// maxCost bounds what one call can cost, in dollars. Beyond it the provider's
// counts or the prices are nonsense, and the sum of a few would overflow.
const maxCost = 1e6

// cost is what the call of the turn cost as it is stored, nil if that is not
// known. A call that the provider refused costs nothing; one that broke may have
// cost something, and nobody says how much.
func (t *openTurn) cost(usage journal.Usage, failure *journal.TurnError) *int64 {
	switch {
	case t.refused(failure, usage):
		return new(int64)
	case !t.ended: // what is said is not all
		usage = journal.Usage{}
	}
	return price(t.price, usage, t.charged)
}

// refused reports whether a call has failed before the model was put to work.
func (t *openTurn) refused(failure *journal.TurnError, used journal.Usage) bool {
	if failure == nil || used != (journal.Usage{}) || len(t.blocks) > 0 || t.calling > 0 {
		return false
	}
	switch model.Class(failure.Class) {
	case model.Retryable, model.Filtered:
		return failure.Status >= 400
	}
	return true
}

// unsent reports whether a call has failed since there was no way to the provider.
func unsent(cause error) bool {
	var name *net.DNSError
	var op *net.OpError
	return errors.As(cause, &name) || errors.As(cause, &op) && op.Op == "dial"
}

// estimate is what the call has used beside what its provider has said, so that
// a budget leaves nothing out: the prompt, and what was received.
func (t *openTurn) estimate(said journal.Usage) journal.Usage {
	blocks, _ := t.whole()
	guess := journal.Usage{Output: max(answerTokens(blocks)+t.calling-said.Output, 0)}
	if said.Input+said.CacheRead+said.CacheWrite == 0 {
		guess.Input = t.started.Size
	}
	return guess
}

// answerTokens estimates the tokens of an answer.
func answerTokens(blocks []journal.Block) int {
	n := 0
	for _, b := range blocks {
		n += textTokens(b.Text) + textTokens(b.Name) + textTokens(b.Arguments)
		if b.Kind == journal.Reasoning && b.Text == "" { // as long as what was thought, about
			n += len(b.Opaque) / 4
		}
	}
	return n
}

// price is what tokens cost as it is stored, nil if that is not known. What the
// provider says that it has charged is believed.
func price(c model.Cost, usage journal.Usage, charged *float64) *int64 {
	dollars, known := c.Of(model.Usage(usage))
	if charged != nil {
		dollars, known = *charged, *charged >= 0
	}
	if !known || dollars > maxCost {
		return nil
	}
	cost := int64(math.Round(dollars * nano))
	return &cost
}

// atMost estimates what tokens cost whose price is not known, rather too high, as
// it is stored; zero if nothing can be said.
func atMost(c model.Cost, usage journal.Usage) int64 {
	dollars, ok := c.AtMost(model.Usage(usage))
	if !ok || dollars > maxCost {
		return 0
	}
	return int64(math.Ceil(dollars * nano))
}

// Expense is e in dollars.
func Expense(e journal.Expense) model.Expense {
	return model.Expense{Dollars: float64(e.Nano) / nano, Unknown: e.Unknown, AtMost: float64(e.AtMost) / nano}
}
