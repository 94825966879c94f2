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
	"github.com/flue-go/flue/wire"
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
				for range 3 {
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

// long makes a conversation whose text is of n bytes and has a file of as many,
// and is the path to it. The head is batch 9.
func long(t *testing.T, f *fake, n int) string {
	t.Helper()
	post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", strings.Repeat("x", n)+" @text=1")
	f.conversations["s"].files["big"] = wire.File{MediaType: "image/png", Data: make([]byte, n)}
	return "/agents/chat/s"
}

// Every kind of response of some length, by its path below a conversation.
var longReads = []string{
	"", "/attachments/big", "?view=updates&offset=-1", "?view=updates&live=long-poll&offset=-1", "?view=updates&live=sse&offset=-1",
}

// A reader that has stopped reading must not be served for ever, by a server
// that has no timeout for it either.
func TestStuckReaderIsDropped(t *testing.T) {
	reads := append([]string{"/abort", "?view=updates&live=long-poll&offset=0000000000000000_0000000000000009"}, longReads...)
	for _, method := range []string{"GET", "HEAD"} {
		for _, read := range reads { // some of them give errors
			t.Run(method+read, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					c := httpapi.Config{Backend: f, WriteTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}
					l := start(t, &http.Server{Handler: mounted(c), ReadHeaderTimeout: time.Minute})
					conn := l.dial()
					if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: h\r\n\r\n", method, long(t, f, 1<<20)+read); err != nil {
						t.Fatal(err)
					}
					if strings.HasSuffix(read, "9") {
						time.Sleep(30 * time.Second)
					}
					time.Sleep(11 * time.Second)
					synctest.Wait()
					_ = conn.SetReadDeadline(time.Now().Add(time.Second))
					if _, err := io.Copy(io.Discard, conn); err != nil {
						t.Errorf("the connection of a stuck reader is still open: %v", err)
					}
				})
			})
		}
	}
}

// slowly reads 16 KiB each second to the end.
func slowly(r io.Reader) (read int64, err error) {
	for {
		time.Sleep(time.Second)
		n, err := io.CopyN(io.Discard, r, 16<<10)
		read += n
		if err == io.EOF {
			return read, nil
		}
		if err != nil {
			return read, err
		}
	}
}

// A reader that is slow, but reads, must get what it asked for. If it were cut
// off in the middle, it would ask for the same again, for ever.
func TestSlowReaderIsServed(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		size := 1 << 20
		if http2 {
			size = 5 << 20 // a client takes 4 MiB without reading
		}
		for _, read := range longReads {
			t.Run(fmt.Sprintf("HTTP2=%v%s", http2, read), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					srv, l := serve(t, f, httpapi.Config{WriteTimeout: 10 * time.Second, Heartbeat: 5 * time.Second})
					transport := &http.Transport{
						DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil },
						Protocols:   new(http.Protocols),
					}
					transport.Protocols.SetHTTP1(!http2)
					transport.Protocols.SetUnencryptedHTTP2(http2)
					defer transport.CloseIdleConnections()
					target := "http://h" + long(t, f, size) + read
					resp, err := (&http.Client{Transport: transport}).Get(target)
					if err != nil {
						t.Fatal(err)
					}
					ended := make(chan error)
					time.AfterFunc(10*time.Minute, func() { ended <- srv.Shutdown(context.Background()) }) // ends streams
					n, err := slowly(resp.Body)
					if n < int64(size) || err != nil {
						t.Errorf("read %d bytes of more than %d: %v", n, size, err)
					}
					_ = resp.Body.Close()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// A reader that has stopped reading one of the streams of a connection must not
// hold that one up for ever.
func TestStuckReaderOfHTTP2IsDropped(t *testing.T) {
	for _, read := range longReads {
		t.Run(read, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				h := mounted(httpapi.Config{Backend: f, WriteTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
				target := "http://h" + long(t, f, 5<<20) + read
				done := make(chan struct{})
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(done)
					h.ServeHTTP(w, r)
				}), ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
				srv.Protocols.SetUnencryptedHTTP2(true)
				l := start(t, srv)
				transport := &http.Transport{
					DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil },
					Protocols:   new(http.Protocols),
				}
				transport.Protocols.SetUnencryptedHTTP2(true)
				defer transport.CloseIdleConnections()
				resp, err := (&http.Client{Transport: transport}).Get(target)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				time.Sleep(11 * time.Second)
				synctest.Wait()
				select {
				case <-done:
				default:
					t.Error("the response to a stuck reader goes on")
				}
			})
		})
	}
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

// A read that begins to wait when the server has told all that wait to stop must
// not wait.
func TestShutdownEndsReadsThatComeToWait(t *testing.T) {
	for _, before := range []string{"no other request", "another stream"} {
		for _, live := range []string{"sse", "long-poll"} {
			t.Run(live+" after "+before, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					srv, l := serve(t, f, httpapi.Config{})
					post(t, mounted(httpapi.Config{Backend: f}), "/agents/chat/s", "x @text=1")
					if before == "another stream" {
						c := l.dial()
						get(t, c, "/agents/chat/s?view=updates&offset=-1&live=sse")
						_ = c.Close()
						synctest.Wait()
					}
					reading := make(chan struct{})
					f.before = func(method string) error {
						if method == "Updates" {
							<-reading
						}
						return nil
					}
					read := make(chan error, 1)
					go func() {
						c := l.dial()
						_, _ = fmt.Fprintf(c, "GET /agents/chat/s?view=updates&offset=0000000000000000_0000000000000009&live=%s HTTP/1.1\r\nHost: h\r\n\r\n", live)
						resp, err := http.ReadResponse(bufio.NewReader(c), nil)
						if err == nil {
							_, err = io.Copy(io.Discard, resp.Body)
						}
						read <- err
					}()
					synctest.Wait()

					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					down := make(chan error, 1)
					go func() { down <- srv.Shutdown(ctx) }()
					synctest.Wait()
					close(reading)
					if err := <-down; err != nil {
						t.Errorf("Shutdown: %v", err)
						_ = srv.Close()
					}
					if err := <-read; err != nil {
						t.Errorf("the read was cut off: %v", err)
					}
				})
			})
		}
	}
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
