package modeltest

import (
	"slices"

	"github.com/flue-go/flue/store"
)

// A model is the contract in its simplest form.
type model struct {
	instances map[store.Address]*instance
	owners    map[store.Address]store.Lease
	nodes     map[string]bool // with a live lease
}

type instance struct {
	row         store.Instance
	batches     []store.Batch
	submissions map[string]*submission
}

type submission struct {
	store.Submission
	identity string
	receipt  store.Receipt
}

func newModel() *model {
	return &model{
		instances: make(map[store.Address]*instance),
		owners:    make(map[store.Address]store.Lease),
		nodes:     make(map[string]bool),
	}
}

func (m *model) alive(node string) bool { return m.nodes[node] }

func (m *model) free(addr store.Address) bool {
	l, ok := m.owners[addr]
	return !ok || !m.alive(l.Node)
}

func (m *model) own(l store.Lease) { m.owners[l.Address] = l }

func (m *model) release(l store.Lease) {
	if m.owners[l.Address] == l {
		delete(m.owners, l.Address)
	}
}

// restart is what a store does that proves every earlier owner dead.
func (m *model) restart() {
	clear(m.owners)
	clear(m.nodes)
}

func (in *instance) append(epoch int64, payload []byte) int64 {
	in.row.Head++
	in.batches = append(in.batches, store.Batch{Offset: in.row.Head, Epoch: epoch, Payload: payload})
	return in.row.Head
}

// prune is what [store.Pruner] says.
func (m *model) prune(l store.Lease, runs []store.Run) error {
	if store.ValidateRuns(runs) != nil {
		return store.ErrInvalid
	}
	if owner, ok := m.owners[l.Address]; !ok || owner != l {
		return store.ErrFenced
	}
	in := m.instances[l.Address]
	var left []store.Batch
	at := 0
	for _, r := range runs {
		for at < len(in.batches) && in.batches[at].Offset < r.From {
			left = append(left, in.batches[at])
			at++
		}
		from := at
		for at < len(in.batches) && in.batches[at].Offset <= r.To {
			if b := in.batches[at]; b.Epoch == 0 || b.Epoch != in.batches[from].Epoch {
				return store.ErrInvalid
			}
			at++
		}
		if from == at || in.batches[from].Offset != r.From || in.batches[at-1].Last() != r.To || r.To >= in.row.Head {
			return store.ErrInvalid
		}
		left = append(left, store.Batch{Offset: r.From, Epoch: in.batches[from].Epoch, Payload: r.Payload, Span: r.To - r.From})
	}
	in.batches = append(left, in.batches[at:]...)
	return nil
}

type admitted struct {
	store.Receipt
	give bool // the instance is given to the node
}

func (m *model) admit(a *store.Admission) (admitted, error) {
	in := m.instances[a.Address]
	if in != nil {
		if sub := in.submissions[a.Submission]; sub != nil {
			if sub.identity != string(a.Identity) {
				return admitted{}, store.ErrConflict
			}
			r := sub.receipt
			r.Duplicate = true
			return admitted{Receipt: r}, nil
		}
		if a.Condition.Create || a.Condition.UID != "" && a.Condition.UID != in.row.UID {
			return admitted{}, &store.ConditionError{Address: a.Address, Exists: true, UID: in.row.UID}
		}
	} else if a.Birth == nil || a.Condition.UID != "" {
		return admitted{}, &store.ConditionError{Address: a.Address}
	}
	created := in == nil
	if created {
		in = &instance{
			row:         store.Instance{Address: a.Address, UID: a.Birth.UID, Incarnation: a.Birth.Incarnation, Head: -1},
			submissions: make(map[string]*submission),
		}
		in.append(0, a.Birth.Payload)
		m.instances[a.Address] = in
	}
	r := store.Receipt{
		Submission: a.Submission, UID: in.row.UID, AcceptedAt: store.Timestamp(a.AcceptedAt),
		Before: in.row.Head, Created: created,
	}
	r.Offset = in.append(0, a.Payload)
	in.row.Unsettled++
	in.submissions[a.Submission] = &submission{
		Submission: store.Submission{ID: a.Submission, Offset: r.Offset, AcceptedAt: r.AcceptedAt},
		identity:   string(a.Identity),
		receipt:    r,
	}
	return admitted{Receipt: r, give: a.Node != "" && m.alive(a.Node) && m.free(a.Address)}, nil
}

func (m *model) abort(addr store.Address, payload []byte) bool {
	in := m.instances[addr]
	if in == nil || in.row.Unsettled == 0 {
		return false
	}
	in.append(0, payload)
	return true
}

func (m *model) append(l store.Lease, w store.Write) (int64, error) {
	if owner, ok := m.owners[l.Address]; !ok || owner != l {
		return 0, store.ErrFenced
	}
	in := m.instances[l.Address]
	seen := make(map[string]bool)
	for _, st := range w.Settle {
		if sub := in.submissions[st.Submission]; sub == nil || sub.Outcome != "" || seen[st.Submission] {
			return 0, store.ErrSettled
		}
		seen[st.Submission] = true
	}
	offset := in.append(l.Epoch, w.Payload)
	for _, st := range w.Settle {
		in.submissions[st.Submission].Outcome = st.Outcome
		in.submissions[st.Submission].SettledAt = offset
		in.row.Unsettled--
	}
	return offset, nil
}

func (m *model) claimable(node string, agents []string) ([]store.Address, error) {
	if !m.alive(node) {
		return nil, store.ErrNoLease
	}
	var free []store.Address
	for addr, in := range m.instances {
		wanted := len(agents) == 0 || slices.Contains(agents, addr.Agent)
		if wanted && in.row.Unsettled > 0 && m.free(addr) {
			free = append(free, addr)
		}
	}
	return free, nil
}

func (m *model) take(node string, addr store.Address) error {
	switch {
	case m.instances[addr] == nil:
		return store.ErrNotFound
	case !m.alive(node):
		return store.ErrNoLease
	case m.owners[addr].Node != node && !m.free(addr):
		return store.ErrOwned
	}
	return nil
}

func (m *model) read(addr store.Address, after int64, limit int) (store.Page, error) {
	in := m.instances[addr]
	if in == nil {
		return store.Page{}, store.ErrNotFound
	}
	p := store.Page{Instance: in.row}
	for _, b := range in.batches {
		if b.Offset > after && (limit < 1 || len(p.Batches) < limit) {
			p.Batches = append(p.Batches, b)
		}
	}
	return p, nil
}

func (m *model) submission(addr store.Address, id string) (store.Submission, error) {
	if in := m.instances[addr]; in != nil {
		if sub := in.submissions[id]; sub != nil {
			return sub.Submission, nil
		}
	}
	return store.Submission{}, store.ErrNotFound
}
