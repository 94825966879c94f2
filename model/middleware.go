package model

import (
	"context"
	"iter"
)

// A Middleware wraps the provider of a name, to log, record, limit, redact or
// cache what goes through it. It returns the provider to use in its place.
//
// What it wraps is asked once for each try at a turn, by many goroutines at a
// time. It must pass on events as they come, in their order, and what a provider
// may not do, it may not do either: see [Provider]. A request belongs to the
// engine. A middleware that wants another one sends a copy, and puts new slices
// in the place of those that it changes; what an answer is stored and sent back
// under, its origin, stays the provider that was named.
type Middleware func(provider string, next Provider) Provider

// A StreamFunc is a function that is a [Provider].
type StreamFunc func(ctx context.Context, req *Request) iter.Seq2[Event, error]

// Stream calls f.
func (f StreamFunc) Stream(ctx context.Context, req *Request) iter.Seq2[Event, error] {
	return f(ctx, req)
}
