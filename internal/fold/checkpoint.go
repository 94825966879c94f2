package fold

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flue-go/flue/journal"
)

// A Checkpoint is a state that was kept so that the journal need not be folded
// from its start. It is a cache: it says what the batches up to State.Head say,
// and whoever cannot use it folds them instead.
type Checkpoint struct {
	State *State

	// Tail is the digest of the payload of the batch at State.Head, by which the
	// checkpoint belongs to one journal and no other.
	Tail [sha256.Size]byte

	// Streamed is an offset below which no batch holds a piece of an answer that
	// could still be merged with its neighbours.
	Streamed int64
}

// checkpointVersion must be raised with every change of what is in a state, of
// what a state means, and of what the same records fold to; a test notices the
// first. Checkpoints of another version are not read.
const checkpointVersion = 19

// checkpointMagic begins every checkpoint. The version and the digest of what
// follows come next, and a line break.
const checkpointMagic = "flue-checkpoint "

// A ForeignError says that a checkpoint is of another version.
type ForeignError struct{ Version string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the checkpoint is of version %q, this program has version %d", e.Version, checkpointVersion)
}

// stored is the stored form of a checkpoint: the state with what its types do
// not show.
type stored struct {
	State     *State
	Repeats   map[string]int // by the hexadecimal form of the call
	Continued bool
	Tail      string
	Streamed  int64
}

// Encode returns the stored form of a checkpoint, which is the same for equal
// ones. It fails if the state holds raw JSON that is not JSON.
func (c *Checkpoint) Encode() ([]byte, error) {
	resp := &c.State.Response
	v := stored{State: c.State, Continued: resp.continued, Tail: hex.EncodeToString(c.Tail[:]), Streamed: c.Streamed}
	if resp.repeats != nil {
		v.Repeats = make(map[string]int, len(resp.repeats))
		for k, n := range resp.repeats {
			v.Repeats[hex.EncodeToString(k[:])] = n
		}
	}
	body, err := journal.EncodeValue(&v)
	if err != nil {
		return nil, fmt.Errorf("encoding a checkpoint: %w", err)
	}
	sum := sha256.Sum256(body)
	return append(fmt.Appendf(nil, "%s%d %x\n", checkpointMagic, checkpointVersion, sum), body...), nil
}

// DecodeCheckpoint reads the stored form of a checkpoint. It fails if that is
// not whole, and with a [*ForeignError] if it is of another version.
func DecodeCheckpoint(data []byte) (*Checkpoint, error) {
	const longest = len(checkpointMagic) + 20 + len(" ") + 2*sha256.Size + len("\n")
	head, _, ok := strings.Cut(string(data[:min(len(data), longest)]), "\n")
	if !ok || !strings.HasPrefix(head, checkpointMagic) {
		return nil, errors.New("it does not begin as a checkpoint")
	}
	version, sum, _ := strings.Cut(head[len(checkpointMagic):], " ")
	if version != strconv.Itoa(checkpointVersion) {
		return nil, &ForeignError{Version: version}
	}
	body := data[len(head)+1:]
	if want, ok := digest(sum); !ok || sha256.Sum256(body) != want {
		return nil, errors.New("it does not match its checksum")
	}
	return decodeBody(body)
}

func decodeBody(body []byte) (*Checkpoint, error) {
	var v stored
	if err := journal.DecodeValue(body, &v); err != nil {
		return nil, err
	}
	if err := v.State.whole(); err != nil {
		return nil, err
	}
	c := &Checkpoint{State: v.State, Streamed: v.Streamed}
	var ok bool
	if c.Tail, ok = digest(v.Tail); !ok {
		return nil, errors.New("it does not say to which journal it belongs")
	}
	resp := &c.State.Response
	resp.continued = v.Continued
	if v.Repeats != nil {
		resp.repeats = make(map[call]int, len(v.Repeats))
	}
	for id, n := range v.Repeats {
		d, ok := digest(id)
		if !ok {
			return nil, errors.New("a call that was repeated has no digest")
		}
		resp.repeats[d] = n
	}
	resp.regrow()
	return c, nil
}

// digest reads the hexadecimal form of a digest.
func digest(s string) (d [sha256.Size]byte, ok bool) {
	b, err := hex.DecodeString(s)
	return d, copy(d[:], b) == len(d) && len(b) == len(d) && err == nil
}

// whole reports what is missing from a state that was read, without which the
// fold could not go on from it.
func (s *State) whole() error {
	switch {
	case s == nil:
		return errors.New("it has no state")
	case s.Born == nil, s.Vars == nil, s.Phase == Unborn, int(s.Phase) >= len(phaseNames):
		return errors.New("its state is not that of an instance")
	case (s.Active == nil) != (s.Phase == Idle):
		return errors.New("its state has a phase without a submission, or one without a phase")
	case s.Phase == Tools && s.Response.Outcomes == nil, s.Phase != Idle && s.Phase != Input && s.Delivery == nil:
		return errors.New("its state lacks what its phase needs")
	case slices.Contains(s.Queue, nil), slices.Contains(s.Joined, nil):
		return errors.New("its state holds a submission that is none")
	}
	for _, it := range s.Context {
		if it.Summary == nil && it.Entry == nil && it.Turn == nil && it.Outcomes == nil || slices.Contains(it.Outcomes, nil) {
			return errors.New("its context holds nothing in one place")
		}
	}
	for _, steps := range s.Steps {
		for _, step := range steps {
			if step == nil {
				return errors.New("its state holds a step that is none")
			}
		}
	}
	for _, o := range s.Response.Outcomes {
		if o == nil {
			return errors.New("its state holds an outcome that is none")
		}
	}
	return nil
}

// Snapshot returns a copy of the state that does not change when the state does.
// It takes time in proportion to what the state holds, without the texts.
func (s *State) Snapshot() *State {
	c := *s
	c.Queue, c.Joined, c.Active = copies(s.Queue), copies(s.Joined), copied(s.Active)
	c.open = nil // it would name the originals
	c.Context = slices.Clone(s.Context)
	c.Vars = maps.Clone(s.Vars)
	c.Steps = maps.Clone(s.Steps)
	for scope, steps := range c.Steps {
		c.Steps[scope] = maps.Clone(steps)
	}
	c.Passed, c.Undone, c.Blind = slices.Clone(s.Passed), slices.Clone(s.Undone), slices.Clone(s.Blind)
	c.Response = s.Response.snapshot()
	return &c
}

func (r *Response) snapshot() Response {
	c := *r
	c.Ran, c.Metadata = slices.Clone(r.Ran), slices.Clone(r.Metadata)
	c.repeats, c.CallIDs, c.Outcomes = maps.Clone(r.repeats), maps.Clone(r.CallIDs), maps.Clone(r.Outcomes)
	c.Partial, c.Calls, c.Called = slices.Clone(r.Partial), slices.Clone(r.Calls), maps.Clone(r.Called)
	c.regrow()
	return c
}

// regrow lets the last block of an open turn grow apart from whatever it was
// copied from.
func (r *Response) regrow() {
	if r.growing = nil; len(r.Partial) > 0 {
		r.growing = new(strings.Builder)
		r.growing.WriteString(r.Partial[len(r.Partial)-1].Text)
	}
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func copies[T any](list []*T) []*T {
	c := slices.Clone(list)
	for i, p := range c {
		c[i] = copied(p)
	}
	return c
}
