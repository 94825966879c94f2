// Package faultnet has networks that fail on purpose, for tests: a [Link] to a
// server that drops, delays and cuts what goes over it, and a [Balancer] that
// sends each request to another server.
package faultnet

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A Direction is one of the two ways over a link.
type Direction int

const (
	Up   Direction = iota // from the client to the server
	Down                  // from the server to the client
)

// A Link is a TCP proxy in front of one server. It lets everything pass until it
// is told otherwise. It is safe for concurrent use.
//
// What a link drops it keeps, and lets through when it passes again, as TCP does
// when a network heals before the connection is given up.
type Link struct {
	ln     net.Listener
	target string
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	ways    [2]way
	changed chan struct{} // closed and replaced when ways change
	pairs   map[*pair]bool
	kept    []*net.TCPConn // the server's ends of half-open connections
	carried int            // connections there have been
}

// A way is how one direction is.
type way struct {
	drops bool
	delay time.Duration
	cut   bool // within the next message
}

// NewLink listens on a port of its own of the loopback interface, in front of the
// server at the address target. Close it.
func NewLink(target string) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{ln: ln, target: target, changed: make(chan struct{}), pairs: make(map[*pair]bool)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.wg.Go(l.accept)
	return l, nil
}

// Addr is where clients connect to.
func (l *Link) Addr() string { return l.ln.Addr().String() }

// Carried returns how many connections have been made over the link.
func (l *Link) Carried() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.carried
}

// Close cuts all connections, those that are half open too, and takes no more.
func (l *Link) Close() error {
	err := l.ln.Close()
	l.stop()
	l.Cut()
	l.Forget()
	l.wg.Wait()
	return err
}

// Pass lets everything through again: what was dropped, and at once.
func (l *Link) Pass() {
	l.change(func(ways *[2]way) { *ways = [2]way{} })
}

// Drop lets nothing through in the directions. Nobody is told: both ends keep
// their connections, and new ones seem to be made.
func (l *Link) Drop(ds ...Direction) {
	l.change(func(ways *[2]way) {
		for _, d := range ds {
			ways[d].drops = true
		}
	})
}

// Delay makes everything take so much longer, in each direction.
func (l *Link) Delay(d time.Duration) {
	l.change(func(ways *[2]way) { ways[Up].delay, ways[Down].delay = d, d })
}

// CutWithin lets the beginning of the next message through, then cuts its
// connection.
func (l *Link) CutWithin(d Direction) {
	l.change(func(ways *[2]way) { ways[d].cut = true })
}

// Strand lets nothing more through on the connections that there are, while new
// ones are well, as something in between does that has forgotten them. Nobody is
// told, and Pass does not undo it.
func (l *Link) Strand() {
	l.change(func(*[2]way) {
		for p := range l.pairs {
			p.stranded = true
		}
	})
}

func (l *Link) change(fn func(*[2]way)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(&l.ways)
	close(l.changed)
	l.changed = make(chan struct{})
}

// Cut resets all connections, at both ends. What is on its way is lost.
func (l *Link) Cut() {
	for _, p := range l.open() {
		p.cut()
	}
}

// HalfOpen resets all connections at the client's end. The server is not told: it
// keeps its ends, which nothing arrives at any more, until Forget.
func (l *Link) HalfOpen() {
	for _, p := range l.open() {
		p.keepServer()
	}
}

// Forget resets the ends of the connections that HalfOpen has left to the server.
func (l *Link) Forget() {
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	for _, c := range kept {
		reset(c)
	}
}

// open returns the connections there are.
func (l *Link) open() []*pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	ps := make([]*pair, 0, len(l.pairs))
	for p := range l.pairs {
		ps = append(ps, p)
	}
	return ps
}

func (l *Link) accept() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			if l.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				continue // this client is gone; others come
			}
			return
		}
		l.wg.Go(func() { l.carry(c.(*net.TCPConn)) })
	}
}

// carry is one connection, from its beginning to its end.
func (l *Link) carry(client *net.TCPConn) {
	p := &pair{link: l, client: client}
	p.ctx, p.stop = context.WithCancel(l.ctx)
	l.mu.Lock()
	l.pairs[p] = true
	l.carried++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pairs, p)
	}()
	if !p.dial() {
		p.cut()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(Up, p.client, p.server) })
	both.Go(func() { p.pump(Down, p.server, p.client) })
	both.Wait()
	p.end()
}

// way returns how a direction is for the connection, and when that changes.
func (p *pair) way(d Direction) (way, <-chan struct{}) {
	l := p.link
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.ways[d]
	w.drops = w.drops || p.stranded
	return w, l.changed
}

// takeCut reports whether the message that comes next is to be cut. Only one is.
func (l *Link) takeCut(d Direction) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := l.ways[d].cut
	l.ways[d].cut = false
	return cut
}

// A pair is the two connections that one over the link is made of.
type pair struct {
	link   *Link
	client *net.TCPConn
	ctx    context.Context // ends when the connection does
	stop   context.CancelFunc

	stranded bool // guarded by the link's mutex

	mu     sync.Mutex
	server *net.TCPConn // nil before there is one
	half   bool         // the server's end is the link's
}

// dial connects to the server, once both ways let that through.
func (p *pair) dial() bool {
	if !p.await(Up, time.Now()) || !p.await(Down, time.Now()) {
		return false
	}
	var d net.Dialer
	c, err := d.DialContext(p.ctx, "tcp", p.link.target)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = c.(*net.TCPConn)
	return p.ctx.Err() == nil
}

// A piece is what was read at once.
type piece struct {
	data []byte
	at   time.Time
	err  error // after data
}

// pump carries what comes from one end to the other, with the order kept and with
// room for what the way delays.
func (p *pair) pump(d Direction, from, to *net.TCPConn) {
	pieces := make(chan piece, 64)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			select {
			case pieces <- piece{buf[:n], time.Now(), err}:
			case <-p.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	for pc := range pieces {
		if !p.pass(d, to, pc) {
			break
		}
	}
	reader.Wait()
}

// pass hands one piece on, when the way lets it through. It reports false if
// nothing comes after it.
func (p *pair) pass(d Direction, to *net.TCPConn, pc piece) bool {
	if !p.await(d, pc.at) {
		return false
	}
	if len(pc.data) > 1 && p.link.takeCut(d) {
		_, _ = to.Write(pc.data[:len(pc.data)/2])
		p.cut()
		return false
	}
	if _, err := to.Write(pc.data); err != nil {
		p.cut()
		return false
	}
	switch {
	case errors.Is(pc.err, io.EOF):
		_ = to.CloseWrite()
		return false
	case pc.err != nil:
		p.cut()
		return false
	}
	return true
}

// await waits until what was sent at the time may pass. It reports false if the
// connection ends first.
func (p *pair) await(d Direction, sent time.Time) bool {
	for {
		w, changed := p.way(d)
		wait := time.Until(sent.Add(w.delay))
		if !w.drops && wait <= 0 {
			return p.ctx.Err() == nil
		}
		var due <-chan time.Time
		if !w.drops {
			t := time.NewTimer(wait)
			defer t.Stop()
			due = t.C
		}
		select {
		case <-changed:
		case <-due:
		case <-p.ctx.Done():
			return false
		}
	}
}

// cut resets both ends.
func (p *pair) cut() {
	p.stop()
	reset(p.client)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil && !p.half {
		reset(p.server)
	}
}

// keepServer resets the client's end and leaves the server's to the link.
func (p *pair) keepServer() {
	p.mu.Lock()
	if p.server != nil && !p.half && p.ctx.Err() == nil {
		p.half = true
		p.link.keep(p.server)
	}
	p.mu.Unlock()
	p.stop()
	reset(p.client)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.half { // its reader must come to its end, without the server's being told
		_ = p.server.SetReadDeadline(time.Now())
	}
}

func (l *Link) keep(c *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, c)
}

// end closes the ends when both ways have come to theirs.
func (p *pair) end() {
	p.stop()
	_ = p.client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.half {
		_ = p.server.Close()
	}
}

// reset ends a connection so that the other end gets an error, as when a process
// dies or a firewall forgets it.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
