// Package shutdown ends servers of agents in order.
package shutdown

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// A Runtime is what a server's requests need.
type Runtime interface {
	// Stop begins to end the work, and returns at once.
	Stop()
}

// Server has srv take no more requests, and waits for those that it has, which it cuts
// off after a time; then the error says so. Work ends meanwhile, and others go on with
// it: they do not wait for requests that are slow, nor for connections that nobody has
// used yet.
func Server(srv *http.Server, rt Runtime, patience time.Duration) error {
	rt.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := srv.Shutdown(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(err, srv.Close())
}
