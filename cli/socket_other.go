//go:build !linux

package cli

import (
	"context"
	"net"
)

// boundUnsent is for Linux.
func boundUnsent(ctx context.Context, _ net.Conn) context.Context { return ctx }
