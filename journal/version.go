package journal

// version returns the version that r is written with: the first one of its kind
// whose readers know all members that r has and that must not be ignored.
func version(r Record) int {
	switch r := r.(type) {
	case *TurnStarted:
		if r.Capped != nil || r.Images {
			return 2
		}
	case *TurnDone:
		if r.Refused || r.Mute {
			return 2
		}
	case *Called:
		if len(r.Once) > 0 {
			return 2
		}
	}
	return 1
}

// newest returns the highest version of a kind that this package reads.
func newest(k Kind) int {
	switch k {
	case KindTurnStarted, KindTurnDone, KindCalled:
		return 2
	}
	return 1
}

// optional reports whether a reader that does not know r's kind may pass it over:
// it only says more, to whoever counts, and nothing that follows depends on it.
func optional(r Record) bool {
	switch r.(type) {
	case *Summarizing, *Unsummarized:
		return true
	}
	return false
}
