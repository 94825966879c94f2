package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flue-go/flue/internal/httpapi"
)

// A pipeListener accepts connections that live in memory, so that a real
// server can run under a false clock.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// serve runs a server with short timeouts, as a careful operator would.
func serve(t *testing.T, f *fake, c httpapi.Config) (*http.Server, *pipeListener) {
	t.Helper()
	c.Backend, c.Logger = f, slog.New(slog.DiscardHandler)
	srv := &http.Server{
		Handler:     http.StripPrefix("/agents/chat", httpapi.New(c)),
		ReadTimeout: 2 * time.Second, WriteTimeout: 3 * time.Second, IdleTimeout: 5 * time.Second,
		Protocols: new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	return srv, start(t, srv)
}

// start runs a server until the test ends.
func start(t *testing.T, srv *http.Server) *pipeListener {
	t.Helper()
	l := newPipeListener()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return l
}

func get(t *testing.T, c net.Conn, target string) (*bufio.Reader, *http.Response) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", target); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return br, resp
}

// The timeouts of the server are for responses that do not wait.
func TestServerTimeoutsSpareStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f, httpapi.Config{})
		post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", "x @text=1")
		c := l.dial()
		_, resp := get(t, c, "/agents/chat/s?view=updates&offset=-1&live=sse")
		timer := time.AfterFunc(100*time.Second, func() { _ = c.Close() })
		defer timer.Stop()
		b, _ := io.ReadAll(resp.Body)
		if got := strings.Count(string(b), ": heartbeat"); got != 6 {
			t.Errorf("%d heartbeats in 100 s, want 6", got)
		}
		if got := strings.Count(string(b), "event: control"); got != 4 {
			t.Errorf("%d control events in 100 s, want 4", got)
		}
	})
}

func TestServerTimeoutsSpareLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f, httpapi.Config{})
		post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", "x @text=1")
		c := l.dial()
		defer func() { _ = c.Close() }()
		for range 2 { // on one connection
			start := time.Now()
			_, resp := get(t, c, "/agents/chat/s?view=updates&live=long-poll&offset=0000000000000000_0000000000000009")
			if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
				t.Fatalf("got %d %s, %v", resp.StatusCode, b, err)
			}
			if d := time.Since(start); d != 30*time.Second {
				t.Errorf("waited %v, want 30s", d)
			}
		}
	})
}

// Over HTTP/2 a write timeout ends the request itself.
func TestServerTimeoutsSpareStreamsOfHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f, httpapi.Config{})
		post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", "x @text=1")
		transport := &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil },
			Protocols:   new(http.Protocols),
		}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for _, test := range []struct {
			live, want string
			n          int
		}{
			{"sse", ": heartbeat", 6},
			{"long-poll", "stream-checkpoint", 1},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
			r, err := http.NewRequestWithContext(ctx, "GET", "http://h/agents/chat/s?view=updates&offset=0000000000000000_0000000000000009&live="+test.live, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatalf("%s: %v", test.live, err)
			}
			b, _ := io.ReadAll(resp.Body)
			cancel()
			_ = resp.Body.Close()
			if got := strings.Count(string(b), test.want); got != test.n || resp.ProtoMajor != 2 {
				t.Errorf("%s over %s has %q %d times, want %d", test.live, resp.Proto, test.want, got, test.n)
			}
		}
	})
}

// The deadline of one response must not be there for the next one.
func TestDeadlinesEndWithTheResponse(t *testing.T) {
	for _, live := range []string{"sse", "long-poll"} {
		t.Run(live, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				api := httpapi.New(httpapi.Config{Backend: f, Logger: slog.New(slog.DiscardHandler)})
				h := http.StripPrefix("/agents/chat", api)
				l := start(t, &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}) // has no timeout of its own for writing
				post(t, h, "/agents/chat/s", "x @text=1")
				c := l.dial()
				defer func() { _ = c.Close() }()
				if _, err := fmt.Fprintf(c, "GET /agents/chat/s?view=updates&offset=0000000000000000_0000000000000009&live=%s HTTP/1.1\r\nHost: h\r\n\r\n", live); err != nil {
					t.Fatal(err)
				}
				br := bufio.NewReader(c)
				time.AfterFunc(10*time.Second, api.Close)
				for range 2 {
					resp, err := http.ReadResponse(br, nil)
					if err != nil {
						t.Fatal(err)
					}
					if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
						t.Fatalf("%d %s %v", resp.StatusCode, b, err)
					}
					time.Sleep(50 * time.Second)
					if _, err := fmt.Fprint(c, "GET /agents/chat/s HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A reader that has stopped reading must not be served for ever.
func TestStuckReaderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f, httpapi.Config{WriteTimeout: 10 * time.Second})
		post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", "x @text=1000")
		c := l.dial()
		get(t, c, "/agents/chat/s?view=updates&offset=-1&live=sse") // reads the headers and a little more
		time.Sleep(11 * time.Second)
		synctest.Wait()
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("the connection of a stuck reader is still open: %v", err)
		}
	})
}

// A server that shuts down must not be held up by its readers.
func TestShutdownEndsWaitingReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		srv, l := serve(t, f, httpapi.Config{})
		post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", "x @text=1")
		c, d := l.dial(), l.dial()
		_, stream := get(t, c, "/agents/chat/s?view=updates&offset=-1&live=sse")
		streamed, polled := make(chan string, 1), make(chan int, 1)
		go func() {
			b, err := io.ReadAll(stream.Body)
			streamed <- fmt.Sprint(strings.Count(string(b), "event: control"), " ", err)
		}()
		go func() {
			_, resp := get(t, d, "/agents/chat/s?view=updates&live=long-poll&offset=0000000000000000_0000000000000009")
			_, _ = io.Copy(io.Discard, resp.Body)
			polled <- resp.StatusCode
		}()
		synctest.Wait()

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
			_ = srv.Close()
		}
		if d := time.Since(start); d > 5*time.Second { // the server looks at its connections from time to time
			t.Errorf("Shutdown took %v", d)
		}
		if got := <-streamed; got != "1 <nil>" {
			t.Errorf("the stream ended with %s, want one control event and a clean end", got)
		}
		if got := <-polled; got != http.StatusOK {
			t.Errorf("the waiting read got %d", got)
		}
	})
}

// A client that leaves must free what it waited for.
func TestClientLeaves(t *testing.T) {
	for _, live := range []string{"sse", "long-poll"} {
		t.Run(live, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				_, l := serve(t, f, httpapi.Config{})
				post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", "x @text=1")
				f.waiting = make(chan struct{}, 16)
				c := l.dial()
				go func() { _, _ = io.Copy(io.Discard, c) }()
				if _, err := fmt.Fprintf(c, "GET /agents/chat/s?view=updates&offset=0000000000000000_0000000000000009&live=%s HTTP/1.1\r\nHost: h\r\n\r\n", live); err != nil {
					t.Fatal(err)
				}
				<-f.waiting
				_ = c.Close()
				synctest.Wait() // the bubble ends only when every goroutine has
			})
		})
	}
}
