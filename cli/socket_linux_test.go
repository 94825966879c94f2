package cli

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/flue-go/flue"
)

// noted is a listener that passes on what it has accepted.
type noted struct {
	net.Listener
	conns chan net.Conn
}

func (l noted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.conns <- c
	}
	return c, err
}

// A reader that is slow must not look like one that has stopped.
func TestConnectionsHoldLittleUnsent(t *testing.T) {
	rt, err := flue.Open(t.Context(), flue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := noted{tcp, make(chan net.Conn, 1)}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	s := &server{program: &program{}, log: slog.New(slog.DiscardHandler)}
	go func() { served <- s.listen(ctx, rt, l) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	resp, err := http.Get("http://" + l.Addr().String() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := (<-l.conns).(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	var failed error
	if err := raw.Control(func(fd uintptr) {
		got, failed = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat)
	}); err != nil {
		t.Fatal(err)
	}
	if failed != nil {
		t.Skipf("this kernel does not have the option: %v", failed)
	}
	if got != maxUnsent {
		t.Errorf("a connection may hold %d bytes unsent, want %d", got, maxUnsent)
	}
}
