package history

import (
	"bytes"
	"fmt"
	"image"
	_ "image/gif"  // decodes the sizes of images
	_ "image/jpeg" // as above
	_ "image/png"  // as above
	"slices"

	"github.com/flue-go/flue/model"
)

// ImageLimits are what a provider takes of images. It refuses a whole request
// for an image too many or too large, and would refuse each one after it. A zero
// field is no limit.
type ImageLimits struct {
	Bytes int // of an image
	Side  int // pixels of an image's longer side
	Count int // images of a request
	Total int // bytes of all images of a request

	// Many is how many images there may be before the longer side of each is
	// limited to ManySide.
	Many, ManySide int
}

// Apply returns messages with a note in the place of each image that is too large,
// and of the oldest ones if they are too many. The messages given are not changed.
func (l ImageLimits) Apply(messages []model.Message) []model.Message {
	count := 0
	for _, m := range messages {
		for _, b := range m.Blocks {
			if b.Kind == model.Image {
				count++
			}
		}
	}
	if count == 0 {
		return messages
	}
	side := l.Side
	if l.Many > 0 && count > l.Many {
		side = l.ManySide
	}
	out := slices.Clone(messages)
	kept, total := 0, 0
	for i := len(out) - 1; i >= 0; i-- {
		cloned := false
		for k := len(out[i].Blocks) - 1; k >= 0; k-- {
			b := out[i].Blocks[k]
			if b.Kind != model.Image {
				continue
			}
			note := l.refuse(b, side)
			switch {
			case note != "":
			case l.Count > 0 && kept == l.Count:
				note = fmt.Sprintf("[image omitted: the model accepts %d images, and there are newer ones]", l.Count)
			case l.Total > 0 && total+len(b.Data) > l.Total:
				note = fmt.Sprintf("[image omitted: the model accepts %s of images, and there are newer ones]", size(l.Total))
			default:
				kept, total = kept+1, total+len(b.Data)
				continue
			}
			if !cloned {
				out[i].Blocks, cloned = slices.Clone(out[i].Blocks), true
			}
			out[i].Blocks[k] = text(note)
		}
	}
	return out
}

// refuse says why an image cannot be sent, and nothing if it can.
func (l ImageLimits) refuse(b model.Block, side int) string {
	if l.Bytes > 0 && len(b.Data) > l.Bytes {
		return fmt.Sprintf("[image of %s omitted: the model accepts %s]", size(len(b.Data)), size(l.Bytes))
	}
	if side == 0 {
		return ""
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(b.Data))
	if err == nil && max(c.Width, c.Height) > side {
		return fmt.Sprintf("[image of %d by %d pixels omitted: the model accepts %d]", c.Width, c.Height, side)
	}
	return ""
}

func size(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
