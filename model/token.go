package model

import "context"

// A TokenSource returns the bearer token that authorizes a call, for services
// whose tokens expire. It is asked before each call and may be asked by several
// at once, so it should keep a token until shortly before its end.
//
// It must return when ctx ends. An [*Error] that it returns is reported as it
// is; any other error fails the call as [Retryable] when it comes from the
// network, and as [Auth] otherwise. No error may hold the token.
type TokenSource func(ctx context.Context) (string, error)
