package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
)

// A printed is a record as inspect prints it.
type printed struct {
	Offset int64           `json:"offset"`
	Last   int64           `json:"last,omitzero"` // of the batches whose place this one has taken, if it has
	Index  int             `json:"index"`         // within the batch
	At     time.Time       `json:"at,omitzero"`
	Kind   journal.Kind    `json:"kind"` // or kindDamaged
	Digest string          `json:"digest"`
	Body   json.RawMessage `json:"body,omitzero"`
}

// kindDamaged stands for the kind of a record that cannot be read, and marks the
// place where the journal cannot be continued.
const kindDamaged journal.Kind = "(damaged)"

// print prints the journal of a conversation, one record a line. Behind damage it
// goes on with what can be read.
func (in *inspection) print(ctx context.Context, addr store.Address) error {
	_, err := replay(ctx, in.st, addr)
	damage, err := asDamage(err)
	if err != nil {
		return err
	}
	for b, err := range batches(ctx, in.st, addr) {
		if err != nil {
			return err
		}
		// Every batch that cannot be read is marked, also one that a repair
		// passes over.
		reason := ""
		if b.Err != nil {
			reason = b.Err.Error()
		} else if damage != nil && damage.Offset == b.Offset {
			reason = damage.Reason
		}
		if reason != "" {
			if err := in.printOne(printed{Offset: b.Offset, At: b.At, Kind: kindDamaged, Digest: line(reason)}); err != nil {
				return err
			}
		}
		raw := in.raw(b)
		for i, r := range b.Records {
			p := printed{Offset: b.Offset, Index: i, At: b.At, Kind: r.Kind(), Digest: line(digest(r))}
			if b.last > b.Offset {
				p.Last = b.last
				p.Digest = words(p.Digest, fmt.Sprintf("(merged, batches %d to %d)", b.Offset, b.last))
			}
			if i < len(raw) {
				p.Body = raw[i]
			}
			if err := in.printOne(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (in *inspection) printOne(p printed) error {
	if in.json {
		return in.encode(p)
	}
	_, err := fmt.Fprintf(in.to, "%6d  %-24s  %-12s  %s\n", p.Offset, stamp(p.At), p.Kind, words(p.Digest, line(string(p.Body))))
	return err
}

// raw returns the bodies of the records of a batch, if they are to be printed.
func (in *inspection) raw(b batch) []json.RawMessage {
	if !in.bodies {
		return nil
	}
	var env struct {
		Records []struct {
			Data json.RawMessage `json:"d"`
		} `json:"r"`
	}
	if json.Unmarshal(b.payload, &env) != nil {
		return nil
	}
	var raw []json.RawMessage
	for _, r := range env.Records {
		raw = append(raw, r.Data)
	}
	return raw
}

// digest tells in a few words what a record is about, and nothing that was said.
func digest(r journal.Record) string {
	switch r := r.(type) {
	case *journal.Born:
		return words(r.UID, r.Incarnation, size("initial data", r.InitialData))
	case *journal.Admitted:
		return words(r.Submission, content(r.Message), r.Origin)
	case *journal.Attempt:
		return fmt.Sprintf("%s attempt %d (%s)", r.Submission, r.Ordinal, r.Reason)
	case *journal.Release:
		return r.Submission
	case *journal.Entry:
		return words(string(r.Purpose), r.Submission, content(r.Message), r.Ending)
	case *journal.Seam:
		return words(string(r.Name), r.Submission, r.Response)
	case *journal.State:
		return words(r.Name, size("value", r.Value))
	case *journal.Step:
		return words(r.Scope, fmt.Sprintf("%q", r.Name), either(len(r.Value) > 0, size("value", r.Value), "begun"))
	case *journal.Data:
		return words(r.Name, r.Response, size("value", r.Value))
	case *journal.Metadata:
		return words(r.Response, size("value", r.Value))
	case *journal.Resources:
		return words(either(r.Baseline, "baseline,", ""), plural(len(r.Declared), "resource"))
	case *journal.TurnStarted:
		return words(r.Turn, r.Submission, r.Provider+"/"+r.Model, reached(r.Budget))
	case *journal.TurnDelta:
		return fmt.Sprintf("%s %s block %d, %s", r.Turn, r.BlockKind, r.Block, plural(len(r.Text), "byte"))
	case *journal.TurnDone:
		return turnDigest(r)
	case *journal.Fallback:
		return words(r.Response, r.From+" failed,", r.To+" takes its place:", r.Class)
	case *journal.Called:
		return words(r.Turn, strings.Join(r.Calls, ", "))
	case *journal.Outcome:
		return outcomeDigest(r)
	case *journal.ToolBatch:
		return r.Turn
	case *journal.Settled:
		return words(r.Submission, r.Outcome, reached(r.Budget))
	case *journal.Repair:
		return fmt.Sprintf("batches %d to %d are passed over, %s: %s", r.From, r.To, plural(len(r.Open), "submission")+" ended", r.Reason)
	case *journal.Compacted:
		return words(r.ID, string(r.Reason)+",", either(r.Dropped, "no summary,", plural(len(r.Summary), "byte")+" of summary,"),
			fmt.Sprintf("about %d tokens before and %d after,", r.Before, r.After), "from", r.First, either(len(r.Keep) > 0, "and "+plural(len(r.Keep), "item")+" before it", ""))
	case *journal.Uncompacted:
		return words(r.ID, "undone")
	case *journal.Summarizing:
		return words(string(r.Reason)+",", "of", r.Provider+"/"+r.Model+",", fmt.Sprintf("about %d tokens", r.Guess.Total()))
	case *journal.Unsummarized:
		return unsummarizedDigest(r)
	case *journal.Unknown:
		return fmt.Sprintf("version %d, not known to this program%s", r.Version, either(r.Optional, "; optional", ""))
	}
	return ""
}

// content describes a message.
func content(m journal.Message) string {
	what := string(m.Kind)
	if m.Kind == journal.Signal {
		what += " " + m.Type
	}
	what += ", " + plural(len(m.Body), "byte")
	if n := len(m.Attachments); n > 0 {
		what += " and " + plural(n, "file")
	}
	return what
}

func size(what string, raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	return what + " of " + plural(len(raw), "byte")
}

func turnDigest(r *journal.TurnDone) string {
	text := 0
	var tools []string
	for _, b := range r.Blocks {
		text += len(b.Text)
		if b.Kind == journal.ToolCall {
			tools = append(tools, b.Name)
		}
	}
	d := fmt.Sprintf("%s %s, %s, ", r.Turn, r.Stop, plural(text, "byte")) + usedDigest(r.Usage, r.Guess, r.Cost, r.AtMost)
	if len(tools) > 0 {
		d += ", calls " + strings.Join(tools, ", ")
	}
	return d
}

// usedDigest tells what calls have used, and what that cost if it is known.
func usedDigest(usage, guess journal.Usage, cost *int64, atMost int64) string {
	d := fmt.Sprintf("%d tokens in and %d out", usage.Input, usage.Output)
	if n := guess.Total(); n > 0 {
		d += fmt.Sprintf(" and about %d not counted by the provider", n)
	}
	switch {
	case cost != nil:
		d += ", " + costOf(journal.Expense{}.Add(cost, 0)).String()
	case atMost > 0:
		d += ", no more than " + costOf(journal.Expense{}.Add(&atMost, 0)).String() + " by estimate"
	}
	return d
}

func unsummarizedDigest(r *journal.Unsummarized) string {
	d := string(r.Reason) + ", cut"
	if r.Error != nil {
		d = fmt.Sprintf("%s, failed (%s), the next not before %s", r.Reason, r.Error.Class, stamp(time.UnixMilli(r.Next)))
	}
	if r.Calls > 0 {
		d += fmt.Sprintf(", %s/%s, %s, ", r.Provider, r.Model, plural(r.Calls, "model call")) + usedDigest(r.Usage, r.Guess, r.Cost, r.AtMost)
	}
	return d
}

func outcomeDigest(r *journal.Outcome) string {
	d := fmt.Sprintf("%s %s %s, %s", r.Call, r.Tool, either(r.Failed, "failed", "ok"), plural(len(r.Content), "byte"))
	if r.Kept != nil {
		d += fmt.Sprintf(" of %d, kept as %s", r.Kept.Size, r.Kept.ID)
	}
	if r.DurationMS != nil {
		d += fmt.Sprintf(", %d ms", *r.DurationMS)
	}
	if n := len(r.Writes); n > 0 {
		d += ", " + plural(n, "write")
	}
	return d
}
