package providers

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/flue-go/flue/internal/near"
	"github.com/flue-go/flue/model"
)

// Only returns p for some models and no others: a response that names another
// one fails before anything is done for it, with an error that lists these. It is
// for programs whose agents take the model from elsewhere, and for a server that
// is known to have no others. An id that ends in "*" stands for all that begin
// like it.
func Only(p model.Provider, ids ...string) model.Provider {
	return &only{next: p, ids: slices.Clone(ids)}
}

type only struct {
	next model.Provider
	ids  []string
}

var (
	_ model.Checker      = (*only)(nil)
	_ model.Lister       = (*only)(nil)
	_ model.LossReporter = (*only)(nil)
	_ model.Named        = (*only)(nil)
)

// Check implements [model.Checker].
func (o *only) Check(id string) error {
	if c, ok := o.next.(model.Checker); ok {
		if err := c.Check(id); err != nil {
			return err
		}
	}
	if id == "" || slices.ContainsFunc(o.ids, func(pattern string) bool { return matches(pattern, id) }) {
		return nil
	}
	return &NotAllowedError{ID: id, Allowed: slices.Clone(o.ids)}
}

// ModelIDs implements [model.Lister].
func (o *only) ModelIDs() []string { return slices.Clone(o.ids) }

func matches(pattern, id string) bool {
	begin, any := strings.CutSuffix(pattern, "*")
	return any && strings.HasPrefix(id, begin) || pattern == id
}

// Stream implements [model.Provider].
func (o *only) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	if err := o.Check(req.Model); err != nil {
		return func(yield func(model.Event, error) bool) {
			yield(nil, &model.Error{Class: model.Invalid, Message: err.Error(), Err: err})
		}
	}
	return o.next.Stream(ctx, req)
}

// Losses implements [model.LossReporter] for those that do.
func (o *only) Losses(tools []model.Tool) []model.Loss {
	if r, ok := o.next.(model.LossReporter); ok {
		return r.Losses(tools)
	}
	return nil
}

// A NotAllowedError says that a provider is not to be asked for a model; see
// [Only].
type NotAllowedError struct {
	ID      string
	Allowed []string
}

func (e *NotAllowedError) Error() string {
	return fmt.Sprintf("the model %q is not one of those that this program allows: %s%s", e.ID, strings.Join(e.Allowed, ", "), near.Hint(e.ID, e.Allowed))
}

// Name implements [model.Named] for those that do.
func (o *only) Name() string {
	if n, ok := o.next.(model.Named); ok {
		return n.Name()
	}
	return ""
}
