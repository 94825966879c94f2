package history_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"regexp"
	"strings"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/history"
)

// picture is a PNG of a width, with bytes behind it.
func picture(t *testing.T, width, more int) model.Block {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 1))); err != nil {
		t.Fatal(err)
	}
	return model.Block{Kind: model.Image, MediaType: "image/png", Data: append(b.Bytes(), make([]byte, more)...)}
}

var number = regexp.MustCompile(`\d+`)

func TestImageLimits(t *testing.T) {
	small, wide, large := picture(t, 10, 0), picture(t, 3000, 0), picture(t, 10, 4<<10)
	many := history.ImageLimits{Side: 8000, Many: 2, ManySide: 2000}
	tests := []struct {
		name   string
		limits history.ImageLimits
		images []model.Block
		want   string // a letter for each: kept, or why not
	}{
		{"no limits", history.ImageLimits{}, []model.Block{small, wide, large}, "k k k"},
		{"bytes", history.ImageLimits{Bytes: 4 << 10}, []model.Block{small, large, small}, "k 5 k"},
		{"side", history.ImageLimits{Side: 2000}, []model.Block{small, wide}, "k 3000"},
		{"count drops the oldest", history.ImageLimits{Count: 2}, []model.Block{small, wide, large}, "2 k k"},
		{"one that is refused does not count", history.ImageLimits{Count: 1, Side: 2000}, []model.Block{small, wide}, "k 3000"},
		{"total drops the oldest", history.ImageLimits{Total: 5 << 10}, []model.Block{large, large}, "5 k"},
		{"few may be large", many, []model.Block{small, wide}, "k k"},
		{"many may not", many, []model.Block{small, small, wide}, "k k 3000"},
		{"no image at all", history.ImageLimits{Side: 1, Bytes: 9}, []model.Block{{Kind: model.Image, Data: []byte("<svg/>")}}, "k"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var messages []model.Message
			for _, b := range tt.images { // one of them shares its message with text
				messages = append(messages, model.Message{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "look"}, b}})
			}
			before := fmt.Sprint(messages)
			var got []string
			for _, m := range tt.limits.Apply(messages) {
				if b := m.Blocks[1]; b.Kind == model.Image {
					got = append(got, "k")
				} else {
					got = append(got, number.FindString(b.Text))
				}
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("images %q, want %q", s, tt.want)
			}
			if after := fmt.Sprint(messages); after != before {
				t.Error("the messages given were changed")
			}
		})
	}
}
