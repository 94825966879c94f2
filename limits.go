package flue

// Limits bound what a runtime takes on at a time. The zero value means the
// defaults.
//
// A message is refused with CodeOverloaded, and the error says when to try again, if
// one of the last two limits is exceeded. One that was accepted before under the same
// idempotency key gets its receipt all the same. What tools and hooks send belongs to
// work under way and is never refused for that; nor are reads and aborts.
type Limits struct {
	// Concurrent is how many instances are worked on at the same time. The others
	// wait in a line, and the oldest is next. Between two messages of its own an
	// instance that has work lets those work that wait, so that one that is spoken
	// to without end keeps nobody from being answered: while others wait, a message
	// does not join a response that is complete, but begins one of its own.
	//
	// An instance gives its place up while it pauses before a failed model call is
	// made again, and while one of its tools or hooks waits in [Instance.Read] for
	// another instance; after that wait it has its place back at once, even if there
	// is one too many in use then. A tool that waits for another conversation of the
	// same runtime in another way, as by a request over HTTP, keeps its place and
	// may so wait until its time is up.
	//
	// Default 1,000; negative means no limit.
	Concurrent int

	// Backlog is how many instances may have work and wait. While there are more, a
	// new message is refused with CodeOverloaded, before anything is stored. On a
	// store that processes share, those count that no process works on.
	//
	// Default 10,000; negative means no limit.
	Backlog int

	// Memory is how many bytes the program may use. While it uses more, new messages
	// are refused in the same way, and the number of instances that are worked on
	// does not grow. What a collection can free is not counted, and what was in use at
	// the last collection is taken for what is in use now; it is looked at once a
	// second.
	//
	// Default 90 % of GOMEMLIMIT, if that is set, and otherwise no limit; negative
	// means no limit.
	Memory int64
}
