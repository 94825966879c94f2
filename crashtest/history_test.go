package crashtest

import (
	"context"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/wire"
)

// checkHistory holds what clients see of a conversation, in which all is
// settled, to the promise.
func (c *client) checkHistory(ctx context.Context, of *conversation) {
	snap := c.history(ctx, of)
	if snap == nil {
		return
	}
	if ids := settledIDs(snap); len(ids) != len(of.sends) || len(slices.Compact(ids)) != len(ids) {
		c.complain("%s: %d messages were accepted, and these are settled: %q", of.path(), len(of.sends), ids)
	}
	for _, s := range of.sends {
		c.checkAnswer(of, s, snap)
	}
	for i := range snap.Messages {
		for _, p := range snap.Messages[i].Parts {
			if p.State == wire.StateStreaming || p.State == wire.StateInputAvailable {
				c.complain("%s: a part of %s is still %s", of.path(), snap.Messages[i].ID, p.State)
			}
		}
	}
	c.checkUpdates(ctx, c.newReader(of, "", wire.Start), snap)
	if of.reader != nil {
		c.checkUpdates(ctx, of.reader, snap)
	}
}

func settledIDs(snap *wire.Snapshot) []string {
	var ids []string
	for i := range snap.Settlements {
		ids = append(ids, snap.Settlements[i].SubmissionID)
	}
	return slices.Sorted(slices.Values(ids))
}

// checkAnswer checks how a message was settled, and that its token is named in
// the response that answered it, once, and in no other.
func (c *client) checkAnswer(of *conversation, s *sending, snap *wire.Snapshot) {
	end := settlementIn(snap.Settlements, s)
	switch {
	case end == nil:
		c.complain("%s: %s is not settled", of.path(), s.token)
		return
	case end.Outcome == journal.Aborted && of.aborts > 0:
	case end.Outcome != journal.Completed:
		c.complain("%s: %s settled as %s: %s", of.path(), s.token, end.Outcome, end.Error)
		return
	}
	var by []string // the submissions whose responses name the token
	shown := 0
	for i := range snap.Messages {
		m := &snap.Messages[i]
		text := messageText(m)
		switch m.Role {
		case wire.RoleUser:
			shown += strings.Count(text, "handle ["+s.token+"]")
		case wire.RoleAssistant:
			for range strings.Count(text, "["+s.token+"]") {
				by = append(by, m.SubmissionID)
			}
		}
	}
	completed := end.Outcome == journal.Completed
	if completed && shown != 1 || shown > 1 {
		c.complain("%s: the message of %s is shown %d times", of.path(), s.token, shown)
	}
	if completed && !slices.Equal(by, []string{end.AnsweredBy}) || len(by) > 1 {
		c.complain("%s: %s settled as %s, answered by %s; it is named by %q", of.path(), s.token, end.Outcome, end.AnsweredBy, by)
	}
}

func messageText(m *wire.Message) string {
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Type == wire.PartText && p.Text != nil {
			b.WriteString(*p.Text + "\n")
		}
	}
	return b.String()
}

// checkUpdates brings a reader up to date, whose chunks must add up to the
// history.
func (c *client) checkUpdates(ctx context.Context, r *reader, snap *wire.Snapshot) {
	r.live = ""
	r.follow(ctx, func(*wire.Conversation) bool { return r.offset >= snap.Offset })
	if r.offset != snap.Offset || r.incarnation != snap.Incarnation || r.seen.ID != snap.ConversationID {
		c.complain("%s: the updates lead to %s of %s (%s), the history is at %s of %s (%s)", r.of.path(),
			r.offset, r.seen.ID, r.incarnation, snap.Offset, snap.ConversationID, snap.Incarnation)
	}
	if diff := cmp.Diff(snap.Messages, r.seen.Messages); diff != "" {
		c.complain("%s: the history and the updates differ in messages (-history +updates):\n%s", r.of.path(), diff)
	}
	if diff := cmp.Diff(snap.Settlements, r.seen.Settlements); diff != "" {
		c.complain("%s: the history and the updates differ in settlements (-history +updates):\n%s", r.of.path(), diff)
	}
}
