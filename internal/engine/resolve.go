package engine

import (
	"errors"
	"runtime/debug"

	"github.com/flue-go/flue/model"
)

// What the program says of models is its own code, and is asked by drivers. A
// panic in it is one answer: a driver that it ended would ask again for ever.

// resolve finds the provider and the data of a model.
func (e *Engine) resolve(specifier string) (m Model, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Log.Error("what is asked about a model panicked", "model", specifier, "panic", p, "stack", string(debug.Stack()))
			m, err = Model{}, errors.New("what the program knows of the model "+specifier+" cannot be had: its code panicked, see the log")
		}
	}()
	return e.cfg.Models.Resolve(specifier)
}

// lossesOf asks what a model cannot be told of tools.
func (e *Engine) lossesOf(m Model, tools []model.Tool) (losses []model.Loss) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Log.Error("a provider that was asked what it loses of tools panicked", "provider", m.Origin.Provider, "panic", p, "stack", string(debug.Stack()))
			losses = nil
		}
	}()
	return m.Losses.Losses(tools)
}
