package engine

import (
	"log/slog"
	"sync"

	"github.com/flue-go/flue/model"
)

// maxBlind bounds the models that are remembered: an agent may take the name of
// its model from whoever talks to it.
const maxBlind = 1000

// blind are the models that were shown a note in the place of an image.
type blind struct {
	mu   sync.Mutex
	told map[model.Origin]bool
}

// warn says once of a model that it does not see the images of a conversation.
func (b *blind) warn(log *slog.Logger, m model.Origin) {
	b.mu.Lock()
	told := b.told[m] || len(b.told) >= maxBlind
	if !told {
		if b.told == nil {
			b.told = map[model.Origin]bool{}
		}
		b.told[m] = true
	}
	b.mu.Unlock()
	if !told {
		log.Warn("the model is known to take no images: a note stands in the place of each; if it does take them, say so in what Config.Catalog returns", "model", m.Provider+"/"+m.Model)
	}
}
