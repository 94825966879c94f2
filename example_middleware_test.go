package flue_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"regexp"
	"slices"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/script"
)

// Journaling is a middleware that writes down each model call and what it used.
func journaling(provider string, next model.Provider) model.Provider {
	return model.StreamFunc(func(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
		return func(yield func(model.Event, error) bool) {
			fmt.Printf("-> %s/%s with %d messages\n", provider, req.Model, len(req.Messages))
			for ev, err := range next.Stream(ctx, req) {
				if done, ok := ev.(model.Done); ok {
					fmt.Printf("<- %s, %d tokens\n", done.Stop, done.Usage.Total())
				}
				if !yield(ev, err) {
					return
				}
			}
		}
	})
}

var address = regexp.MustCompile(`\S+@\S+`)

// Redacting is a middleware that keeps e-mail addresses from the provider. It
// sends a copy: the request belongs to the runtime.
func redacting(_ string, next model.Provider) model.Provider {
	return model.StreamFunc(func(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
		c := *req
		c.Messages = slices.Clone(req.Messages)
		for i, m := range c.Messages {
			c.Messages[i].Blocks = slices.Clone(m.Blocks)
			for j, b := range m.Blocks {
				if b.Kind == model.Text && m.Role == model.RoleUser {
					c.Messages[i].Blocks[j].Text = address.ReplaceAllString(b.Text, "[address]")
				}
			}
		}
		return next.Stream(ctx, &c)
	})
}

// Limiting returns a middleware that lets each provider be asked n times at
// once. A call that waits ends with its context.
func limiting(n int) model.Middleware {
	return func(_ string, next model.Provider) model.Provider {
		free := make(chan struct{}, n)
		return model.StreamFunc(func(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
			return func(yield func(model.Event, error) bool) {
				select {
				case free <- struct{}{}:
					defer func() { <-free }()
				case <-ctx.Done():
					yield(nil, context.Cause(ctx))
					return
				}
				next.Stream(ctx, req)(yield)
			}
		})
	}
}

// Middleware sees all that goes to a model, and all that comes from it.
func ExampleConfig_middleware() {
	ctx := context.Background()
	rt, err := flue.Open(ctx, flue.Config{
		Agents: []*flue.Agent{{Name: "echo", Render: func(r *flue.Render) string {
			flue.UseModel(r, "demo/script")
			return "Repeat what you are told."
		}}},
		Providers: map[string]model.Provider{"demo": script.New(script.Func(func(req *model.Request) script.Turn {
			return script.Say(script.LastUser(req)).Usage(model.Usage{Input: 40, Output: 9})
		}))},
		Middleware: []model.Middleware{journaling, redacting, limiting(4)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)

	receipt, err := rt.Dispatch(ctx, "echo", "one", flue.User("write to ada@example.com"))
	if err != nil {
		log.Fatal(err)
	}
	reply, err := rt.Instance("echo", "one").Read(ctx, receipt.Submission)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text)
	// Output:
	// -> demo/script with 1 messages
	// <- stop, 49 tokens
	// write to [address]
}
