package flue

import "github.com/flue-go/flue/internal/engine"

// ErrLeaseLapsed is why work is stopped in a process that has lost its store.
//
// A process holds a lease in the store, which it renews every few seconds. Five
// seconds after the last renewal that succeeded it can no longer rule out that
// another process will take its instances over, and stops: it begins no model
// call, tool call, step, hook or dispatch, and appends nothing. The contexts of
// calls and callbacks that run end with this error as their [context.Cause], and
// what they do after that returns it. [EventLeaseLapsed] and
// [EventLeaseRenewed] tell of it.
//
// Messages are accepted all the same, as long as the store accepts them. When a
// renewal succeeds the work is taken up again, unless another process has done so,
// as after a crash, but without counting an attempt.
var ErrLeaseLapsed = engine.ErrLeaseLapsed
