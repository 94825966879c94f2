package journal

// An Expense is what turns have cost.
type Expense struct {
	Nano    int64 // of those whose cost is known, in billionths of a US dollar
	Unknown int   // how many there are whose cost is not

	// AtMost is an estimate, rather too high, for Bounded of those whose cost is not
	// known. Nothing can be said of the others.
	AtMost  int64
	Bounded int
}

// Add returns e and what one turn cost, which is nil if it is not known. Then
// atMost is an estimate, or zero if there is none.
func (e Expense) Add(cost *int64, atMost int64) Expense {
	switch {
	case cost != nil:
		e.Nano += *cost
		return e
	case atMost > 0:
		e.AtMost += atMost
		e.Bounded++
	}
	e.Unknown++
	return e
}
