package model

// rank orders the levels that name an effort, so that distances between them
// can be compared. It is false for the default and for unknown levels.
func (t Thinking) rank() (int, bool) {
	for i, level := range [...]Thinking{ThinkingOff, ThinkingMinimal, ThinkingLow, ThinkingMedium, ThinkingHigh, ThinkingXHigh, ThinkingMax} {
		if t == level {
			return i, true
		}
	}
	return 0, false
}

// Nearest returns the level of i.Levels that is nearest to want, and the lower
// of two that are equally near. Another level than off is mapped to off only
// when the model has nothing else. When no level is listed, or want is the
// default, Nearest returns want.
func (i Info) Nearest(want Thinking) Thinking {
	wanted, ok := want.rank()
	if !ok {
		return want
	}
	best, bestRank := want, -1
	for _, level := range i.Levels {
		r, ok := level.rank()
		if ok && (bestRank < 0 || nearer(wanted, r, bestRank)) {
			best, bestRank = level, r
		}
	}
	return best
}

// nearer reports whether rank r fits the wanted rank better than best does.
func nearer(wanted, r, best int) bool {
	if wanted != 0 && (r == 0) != (best == 0) {
		return best == 0
	}
	d, b := max(r-wanted, wanted-r), max(best-wanted, wanted-best)
	return d < b || d == b && r < best
}
