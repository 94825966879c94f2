package cli

import (
	"context"
	"net"
	"syscall"
)

const (
	tcpNotsentLowat = 0x19      // TCP_NOTSENT_LOWAT, which package syscall does not have
	maxUnsent       = 128 << 10 // bytes
)

// boundUnsent keeps little of what a connection has to send in the kernel. It
// would hold megabytes for a reader that is slow, and say that there is room for
// more only when a third of them has been read: to the handler, which gives each
// piece some time, the reader would seem to have stopped. It is set for each
// connection because those of multipath TCP have nothing from the socket that
// listens.
func boundUnsent(ctx context.Context, c net.Conn) context.Context {
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				// Where the kernel does not know the option, it is as it was.
				_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, maxUnsent)
			})
		}
	}
	return ctx
}
