package openai_test

import (
	"errors"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/openai"
)

// What is wrong with a Config is known before the first request.
func TestCheck(t *testing.T) {
	var e *model.Error
	if err := openai.New(openai.Config{}).Check("m"); !errors.As(err, &e) || e.Class != model.Auth {
		t.Errorf("without a key: %v", err)
	}
	if err := openai.New(openai.Config{BaseURL: "no url"}).Check("m"); !errors.As(err, &e) || e.Class != model.Invalid {
		t.Errorf("without an address: %v", err)
	}
	if err := openai.New(openai.Config{APIKey: "k"}).Check("whatever"); err != nil {
		t.Error(err)
	}
}
