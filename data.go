package flue

import (
	"context"
	"fmt"
	"reflect"

	"github.com/flue-go/flue/internal/schema"
)

// A DataWriter gives one data part of the response its values. See
// [UseDataWriter].
type DataWriter[T any] struct {
	name   string
	schema *schema.Schema // nil if any JSON will do
}

// UseDataWriter declares a part of the response that only clients see, under a
// name of the author's choice, and returns the writer of its values. The part
// appears in the response's message with its first value, as "data-" and the
// name, and later values replace the first in its place. The model never sees it,
// and writing it runs nothing again.
//
// Values are JSON, held to the schema of T (see [SchemaFor]); with T any or
// json.RawMessage, any JSON will do. The names are part of what a response is to
// its clients: every render must declare the same ones, unconditionally, and a
// name only once. A render that does not fails the submission.
func UseDataWriter[T any](r *Render, name string) *DataWriter[T] {
	const hook = "UseDataWriter"
	r.enterRoot(hook, "Clients do not see a delegate's work: let the parent show what comes of it.")
	if !isName(name) {
		r.misuse(hook, fmt.Sprintf("got the name %q", name), nameRule)
	}
	if !r.claim(kindWriter, name) {
		r.misuse(hook, fmt.Sprintf("got the name %q twice", name), "Names of data parts are unique within a render: declare it once and share the writer.")
	}
	r.writers = append(r.writers, name)
	w := &DataWriter[T]{name: name}
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Interface {
		s, err := schema.ForType(t)
		if err != nil {
			r.misuse(hook, fmt.Sprintf("got a type without a JSON form: %v", err), "Use a type that can be shown as JSON.")
		}
		w.schema = s
	}
	return w
}

// MaxData bounds one value of a data part, as JSON, in bytes.
const MaxData = 1 << 20

// Write gives the part a new value. It must be called with the context of a
// running tool call or hook callback.
//
// Durability: when Write returns nil in a tool or at the end of a response, the
// value is stored and on its way to the clients, while the tool still runs. In
// the callback of [UseAgentStart] it lands with what else the callbacks make.
func (w *DataWriter[T]) Write(ctx context.Context, v T) error {
	work := workFrom(ctx)
	if work == nil {
		return fmt.Errorf("writing data part %q: %w", w.name, ErrNoCall)
	}
	raw, err := encodeValue("the value", v, MaxData)
	if err == nil && w.schema != nil {
		err = w.schema.Validate(raw)
	}
	if err == nil {
		err = work.Show(ctx, w.name, raw)
	}
	if err != nil {
		return fmt.Errorf("writing data part %q: %w", w.name, err)
	}
	return nil
}
