package cli

import (
	"fmt"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/model"
)

// Used is what the model calls of a run have used and cost.
type used struct {
	calls int
	usage model.Usage
	cost  model.Expense
}

func (u *used) add(ev flue.Event) {
	u.calls++
	u.usage = u.usage.Add(ev.Usage)
	u.cost = u.cost.Add(ev.Cost)
}

// any reports whether the models have said that they used anything.
func (u *used) any() bool { return u.usage != (model.Usage{}) || u.cost.Dollars > 0 }

// String tells it in one line.
func (u *used) String() string {
	read := ""
	if n := u.usage.CacheRead; n > 0 {
		read = fmt.Sprintf(" (%s from the cache)", thousands(n))
	}
	in := u.usage.Input + u.usage.CacheRead + u.usage.CacheWrite
	return fmt.Sprintf("%s, %s tokens in%s, %s out, %s", plural(u.calls, "model call"), thousands(in), read, thousands(u.usage.Output), u.cost)
}
