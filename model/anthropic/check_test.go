package anthropic_test

import (
	"errors"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/anthropic"
)

// What is wrong with a Config is known before the first request.
func TestCheck(t *testing.T) {
	var e *model.Error
	if err := anthropic.New(anthropic.Config{}).Check("m"); !errors.As(err, &e) || e.Class != model.Auth {
		t.Errorf("without a key: %v", err)
	}
	if err := anthropic.New(anthropic.Config{BaseURL: "no url"}).Check("m"); !errors.As(err, &e) || e.Class != model.Invalid {
		t.Errorf("without an address: %v", err)
	}
	if err := anthropic.New(anthropic.Config{APIKey: "k"}).Check("whatever"); err != nil {
		t.Error(err)
	}
}
