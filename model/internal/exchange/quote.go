package exchange

// Quote returns what a server said in a form that can be part of a message:
// valid, bounded, and without control characters and secrets.
func (s *Stream) Quote(said string) string { return clean(s.endpoint.redact(said)) }
