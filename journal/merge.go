package journal

// Streamed returns the turn of a batch that holds nothing but pieces of what one
// turn streamed, and false for any other batch.
func (b Batch) Streamed() (turn string, ok bool) {
	for i, r := range b.Records {
		d, isDelta := r.(*TurnDelta)
		if !isDelta || i > 0 && d.Turn != turn {
			return "", false
		}
		turn = d.Turn
	}
	return turn, len(b.Records) > 0
}

// Merge returns one batch that says what several say of one turn. They must be
// consecutive, and Streamed must report the same turn for each of them. Once the
// turn has ended it may stand in their place: whoever reads all of them gets the
// same text in the same order.
func Merge(batches []Batch) Batch {
	merged := Batch{At: batches[0].At}
	var last *TurnDelta
	var text []byte // of last
	end := func() {
		if last != nil {
			last.Text, text = string(text), text[:0]
		}
	}
	for _, b := range batches {
		for _, r := range b.Records {
			d := r.(*TurnDelta)
			if last == nil || d.Block != last.Block || d.BlockKind != last.BlockKind || d.Response != last.Response {
				end()
				next := *d
				last = &next
				merged.Records = append(merged.Records, last)
			}
			text = append(text, d.Text...)
		}
	}
	end()
	return merged
}
