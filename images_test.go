package flue_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// A model that is known to take no images is told that there was one, and the
// log says so once. One of which nothing is known gets the image.
func TestImagesForAModelThatTakesNone(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n")
	for name, tt := range map[string]struct {
		info  model.Info
		known bool
		kinds string
		warns int
	}{
		"takes none":    {model.Info{ContextWindow: 200_000}, true, "text,text", 1},
		"takes some":    {model.Info{ContextWindow: 200_000, Images: true}, true, "text,image", 0},
		"nothing known": {model.Info{}, false, "text,image", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			agent := plain(func(*flue.Render) {})
			var log bytes.Buffer
			rt, err := flue.Open(t.Context(), flue.Config{
				Agents: []*flue.Agent{agent}, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Catalog: func(string, string) (model.Info, bool) { return tt.info, tt.known },
				Providers: map[string]model.Provider{"fake": script.New(script.Func(func(req *model.Request) script.Turn {
					kinds = nil
					for _, b := range req.Messages[0].Blocks {
						kinds = append(kinds, string(b.Kind))
					}
					return script.Say("ok")
				}))},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.WithoutCancel(t.Context()))
			for range 2 {
				r, err := rt.Dispatch(t.Context(), agent.Name, "one", flue.User("look", flue.Attachment{MediaType: "image/png", Data: png}))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := rt.Instance(agent.Name, "one").Read(t.Context(), r.Submission); err != nil {
					t.Fatal(err)
				}
			}
			if got := strings.Join(kinds, ","); got != tt.kinds {
				t.Errorf("the model is shown %s, want %s", got, tt.kinds)
			}
			if n := strings.Count(log.String(), "take no images"); n != tt.warns {
				t.Errorf("%d warnings, want %d:\n%s", n, tt.warns, log.String())
			}
		})
	}
}
