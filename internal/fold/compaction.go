package fold

import (
	"fmt"
	"slices"

	"github.com/flue-go/flue/journal"
)

// Counted is what a provider has counted of the context: the tokens of its first
// items, with all that a request holds beside them. The zero value means that
// nothing was counted since the context last changed its beginning.
type Counted struct {
	Tokens int
	Items  int
}

// Compaction returns the latest compaction that is in effect, or nil.
func (s *State) Compaction() *journal.Compacted {
	if len(s.Context) == 0 {
		return nil
	}
	return s.Context[0].Summary
}

// show adds an item to the context.
func (s *State) show(it Item) {
	s.Context = append(s.Context, it)
	s.Size += it.size()
}

// size is roughly how many bytes the item holds.
func (it Item) size() int {
	switch {
	case it.Summary != nil:
		return itemSize + len(it.Summary.Summary)
	case it.Entry != nil:
		return itemSize + len(it.Entry.Message.Body)
	case it.Turn != nil:
		return blocksSize(it.Turn.Blocks)
	}
	size := 0
	for _, o := range it.Outcomes {
		size += itemSize + len(o.Content)
	}
	return size
}

// count takes note of what the turn used that has just been completed. If its request held less than
// the context, that says nothing of the context.
func (s *State) count(u journal.Usage) {
	s.Fresh = false
	if s.Squeezed++; !s.Response.Fitted {
		s.Squeezed = 0
	}
	tokens := u.Input + u.Output + u.CacheRead + u.CacheWrite
	switch {
	case s.Response.Fitted:
		s.Counted = Counted{}
	case tokens > 0:
		s.Counted = Counted{Tokens: tokens, Items: len(s.Context)}
	}
}

// ID returns the name by which a compaction knows the item: the id of its entry
// or of its turn. It is empty for a summary and for outcomes, which go with the
// turn before them.
func (it Item) ID() string {
	switch {
	case it.Entry != nil:
		return it.Entry.ID
	case it.Turn != nil:
		return it.Turn.Turn
	}
	return ""
}

// Follows reports whether the item belongs to the turn before it and must not
// be parted from it: the outcomes of its calls, and the notices that tell the
// model that it was cut.
func (it Item) Follows() bool {
	return it.Outcomes != nil || it.Entry != nil && it.Entry.Purpose == journal.Notice
}

// compacted puts a summary in the place of the older part of the context.
func (s *State) compacted(r *journal.Compacted) error {
	if !s.Resting() {
		return s.refuse(r, "the conversation is not at rest")
	}
	if len(s.Undone) > 0 {
		return s.refuse(r, "compaction %s is undone further on, and it must be the latest one then", s.Undone[len(s.Undone)-1])
	}
	kept, err := s.kept(r)
	if err != nil {
		return err
	}
	context := append([]Item{{Summary: r}}, kept...)
	for _, it := range s.Context {
		s.Size -= it.size()
	}
	for _, it := range context {
		s.Size += it.size()
	}
	s.Context, s.Counted, s.Fresh, s.Squeezed = context, Counted{}, true, 0
	s.Response.Relieved = s.Response.Overflows > 0
	s.rebase(r)
	return nil
}

// kept returns the items of the context that the compaction leaves.
func (s *State) kept(r *journal.Compacted) ([]Item, error) {
	first := slices.IndexFunc(s.Context, func(it Item) bool { return r.First != "" && it.ID() == r.First })
	switch {
	case first < 0:
		return nil, s.refuse(r, "the context has no item %q", r.First)
	case first == 0:
		return nil, s.refuse(r, "there is nothing before %q", r.First)
	case s.Context[first].Follows():
		return nil, s.refuse(r, "%q cannot be parted from the turn before it", r.First)
	}
	var kept []Item
	keep := r.Keep
	with := false
	for _, it := range s.Context[:first] {
		if !it.Follows() {
			if with = len(keep) > 0 && it.ID() == keep[0] && keep[0] != ""; with {
				keep = keep[1:]
			}
		}
		if with {
			kept = append(kept, it)
		}
	}
	if len(keep) > 0 {
		return nil, s.refuse(r, "the context has no item %q that could stay before %q", keep[0], r.First)
	}
	return append(kept, s.Context[first:]...), nil
}

// rebase takes over what a compaction leaves beside the summary: the new
// baseline, that a summary was had, and what was spent.
func (s *State) rebase(r *journal.Compacted) {
	if r.Resources != nil {
		s.Baseline, s.Told = r.Resources, r.Resources
	}
	if s.Summarizing = nil; !r.Dropped {
		s.Unsummarized = Unsummarized{}
	}
	s.countSummary(r.Submission, summed{r.Usage, r.Guess, r.Calls, r.Cost, r.AtMost})
}

// PassCompaction takes note of a compaction that a record further on undoes. It
// is called in place of applying it: the context stays, and what is not undone,
// the new baseline and what was spent, counts.
func (s *State) PassCompaction(r *journal.Compacted) error {
	if !s.Resting() {
		return s.refuse(r, "the conversation is not at rest")
	}
	s.Undone, s.Squeezed = append(s.Undone, r.ID), 0
	s.Response.Relieved = s.Response.Overflows > 0
	s.rebase(r)
	return nil
}

// uncompacted ends the effect of the latest compaction, which must have been
// passed over: what it replaced is not in the state.
func (s *State) uncompacted(r *journal.Uncompacted) error {
	if !s.Resting() {
		return s.refuse(r, "the conversation is not at rest")
	}
	last := len(s.Undone) - 1
	if last < 0 || s.Undone[last] != r.ID {
		return &RuleError{Kind: r.Kind(), Phase: s.Phase, Undoes: true, Reason: fmt.Sprintf("compaction %q has not been passed over", r.ID)}
	}
	s.Undone = s.Undone[:last]
	if last == 0 {
		s.Undone = nil
	}
	s.Counted, s.Fresh, s.Squeezed = Counted{}, false, 0
	return nil
}
