package exchange

import (
	"errors"

	"github.com/flue-go/flue/model"
)

// Used returns the error of a call with what the provider has said that the call
// used before it failed. It changes only a [*model.Error] that says nothing of it.
func Used(err error, u model.Usage) error {
	var failed *model.Error
	if u == (model.Usage{}) || !errors.As(err, &failed) || failed.Usage != (model.Usage{}) {
		return err
	}
	used := *failed
	used.Usage = u
	return &used
}
