package httpapi

import "time"

// pieceSize is how many bytes of a response a reader has to take within
// Config.WriteTimeout.
const pieceSize = 64 << 10

// write writes b piece by piece and gives each piece its time. A reader that has
// stopped reading is dropped. One that is slow, but reads, gets everything: if it
// were cut off in the middle, it would ask for the same again, for ever.
func (x *exchange) write(b []byte) error {
	for len(b) > 0 {
		if x.room == 0 {
			x.bound()
		}
		n := min(len(b), x.room)
		if _, err := x.w.Write(b[:n]); err != nil {
			return err
		}
		x.room -= n
		b = b[n:]
	}
	return nil
}

// bound gives the coming piece its time, in place of the server's own deadline
// for the whole response. It needs no clearing when the response is complete: the
// server does that. Writers that have no deadlines, such as those of tests, do
// without.
func (x *exchange) bound() {
	x.room = pieceSize
	_ = x.control.SetWriteDeadline(time.Now().Add(x.h.WriteTimeout))
}

// unbound takes the deadline away while a response waits for something to say.
// Over HTTP/2 a deadline ends even a response that is not writing.
func (x *exchange) unbound() {
	_ = x.control.SetWriteDeadline(time.Time{})
}
