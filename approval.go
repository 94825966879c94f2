package flue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/internal/engine"
	"github.com/flue-go/flue/internal/schema"
	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/wire"
)

// ApprovalPolicy says which calls of a tool need a person's approval and how it
// is given. With the zero value every call does, for ever, as it was made.
type ApprovalPolicy struct {
	// Needed, if set, says whether a call needs approval; see [ApproveIf] for
	// one that gets the arguments as a Go value. It gets arguments that fit the
	// tool. An error or a panic counts as yes.
	Needed func(ctx context.Context, arguments json.RawMessage) (bool, error)

	// Expires is how long a call may wait. After that it cannot be approved any
	// more, and is denied on behalf of the policy; see
	// [Instance.ExpireApprovals]. Zero means that it waits for ever.
	Expires time.Duration

	// AllowEdits lets the one who approves change the arguments.
	AllowEdits bool

	// Continue lets the model go on while the call waits, for instance to say
	// so. Otherwise the turn ends, as with [EndTurn].
	Continue bool
}

// ApproveIf makes an [ApprovalPolicy.Needed] of a function of the tool's input
// type. Arguments that do not fit that type need approval.
func ApproveIf[In any](needed func(in In) bool) func(context.Context, json.RawMessage) (bool, error) {
	return func(_ context.Context, arguments json.RawMessage) (bool, error) {
		var in In
		if err := schema.Unmarshal(arguments, &in); err != nil {
			return true, err
		}
		return needed(in), nil
	}
}

// An Approval is a tool call that waits for a person, or did.
type Approval struct {
	// ID names the approval. It is the id that the conversation shows for the
	// call, unless another approval of the instance has that; the output of the
	// call has it as approvalId.
	ID   string `json:"id"`
	Tool string `json:"tool"`

	// Arguments are exactly what will be run, and Hash is the SHA-256 of their
	// canonical form: that of RFC 8785, with all digits of integers.
	Arguments json.RawMessage `json:"arguments"`
	Hash      string          `json:"hash"`

	RequestedAt time.Time `json:"requestedAt"`
	ExpiresAt   time.Time `json:"expiresAt,omitzero"` // zero means never
	Editable    bool      `json:"editable,omitzero"`  // the one who approves may change the arguments

	// Decision is nil while the call waits.
	Decision *Decision `json:"decision,omitzero"`

	Call string `json:"call"` // the call's id
	Key  string `json:"key"`  // the call's key, which is unique; see CallKey
}

// A Decision is a person's word on a call that waits.
type Decision struct {
	Approve bool   `json:"approve"`
	By      string `json:"by"`              // who decided, for the model and for the record
	Reason  string `json:"reason,omitzero"` // why, for the model and for the record

	// Hash, if set, is the Hash of the approval that the person was shown. A
	// decision on anything else is refused.
	Hash string `json:"hash,omitzero"`

	// Arguments, if set, replace the call's. The policy must allow edits.
	Arguments json.RawMessage `json:"arguments,omitzero"`

	At time.Time `json:"at,omitzero"` // when it was carried out; set by the runtime
}

// An ApprovalError says that a decision cannot be taken.
type ApprovalError struct {
	Approval string
	Err      error // wraps one of the errors below, where there is one for the case
}

func (e *ApprovalError) Error() string { return fmt.Sprintf("approval %s: %v", e.Approval, e.Err) }

// Unwrap returns the cause.
func (e *ApprovalError) Unwrap() error { return e.Err }

// Causes of an [ApprovalError].
var (
	// ErrApprovalNotFound means that no call waits under the id: it was never
	// asked for, or decided long ago.
	ErrApprovalNotFound = errors.New("no call waits for it; it was never asked for, or decided long ago")
	// ErrApprovalExpired means that the time to approve the call is up.
	ErrApprovalExpired = errors.New("the time to approve it is up")
)

// Code returns [CodeApproval].
func (e *ApprovalError) Code() Code { return CodeApproval }

// UseApprovalGate offers a tool to the model whose calls wait for a person's
// approval, or those that the policy names do.
//
// A call that needs approval does not run. Its exact arguments are stored, the
// model gets the result {"status":"pending_approval","approvalId":...}, and the
// turn ends: no process waits. The application lists what waits with
// [Instance.Approvals], shows it to somebody, and brings the answer with
// [Instance.Decide]. Then the stored call runs, never another, and the model is
// told of the result, or who denied it and why.
//
// What was asked for stays gated: a call that waits survives restarts and
// releases, and runs only upon a decision, even if the agent declares the tool
// without a gate by then. If the tool is gone, the model is told.
//
// An approved call runs once. If the process dies while it runs, it is with it as
// with any other call: that of a durable tool is run again from its steps, that of
// an ordinary tool is not, and the model is told that its outcome is unknown.
func UseApprovalGate(r *Render, tool *ToolDefinition, policy ApprovalPolicy) {
	const hook = "UseApprovalGate"
	r.enterRoot(hook, "A delegate ends before anybody could answer: gate the tool in the parent.")
	switch {
	case tool == nil:
		r.misuse(hook, "got a nil tool", "Make the tool with flue.NewTool.")
	case policy.Expires < 0:
		r.misuse(hook, "got a negative expiry", "Leave it zero for none.")
	}
	gate := *tool
	gate.spec.Description += " Some calls need a person's approval before they run: then the result says so, and what comes of the call is told later."
	gate.ungated = tool
	gate.run = func(ctx context.Context, w *engine.Work, arguments string) engine.Result {
		prepared, err := tool.prepare(w, arguments)
		if err != nil {
			return failure(&ToolInputError{Tool: tool.name, Err: err})
		}
		needed, err := policy.decided(ctx, w, tool, prepared)
		switch {
		case err != nil:
			return failure(err)
		case !needed:
			return tool.run(ctx, w, string(prepared))
		}
		return request(w, tool.name, prepared, policy, r.view.Delivery)
	}
	UseTool(r, &gate)
}

// decided is needed, once for a call: one that is run again after a crash goes
// the way that it went before, whatever the policy says now.
func (p *ApprovalPolicy) decided(ctx context.Context, w *engine.Work, tool *ToolDefinition, arguments json.RawMessage) (bool, error) {
	if !tool.again {
		return p.needed(ctx, w, arguments), nil
	}
	return doStep(ctx, &Step{work: w}, reservedStep+"approval", false, func(ctx context.Context) (bool, error) {
		return p.needed(ctx, w, arguments), nil
	})
}

func (p *ApprovalPolicy) needed(ctx context.Context, w *engine.Work, arguments json.RawMessage) (needed bool) {
	if p.Needed == nil {
		return true
	}
	defer func() {
		if v := recover(); v != nil {
			w.Log.Error("the approval policy panicked; the call needs approval", "panic", v)
			needed = true
		}
	}()
	needed, err := p.Needed(withWork(ctx, w), arguments)
	if err != nil {
		w.Log.Error("the approval policy failed; the call needs approval", "error", err)
		return true
	}
	return needed
}

// approvalState is the name of the persistent state that holds an approval. It
// is never taken back: the ids of approvals are not used again.
func approvalState(id string) string { return approvalsState + id }

const approvalsState = reservedState + "approval:"

// Bounds of approvals.
const (
	maxPending    = 256      // of one instance
	maxApprovalID = 128      // bytes; a call with a longer id is named by its key
	maxApproval   = 32 << 20 // what is kept of one, in bytes
	maxWaiting    = 8 << 20  // the arguments and the message of a call that waits, in bytes
	maxDecider    = 4 << 10  // the name and the reason of the one who decides, in bytes
)

// request stores a call until somebody decides, and says so.
func request(w *engine.Work, tool string, arguments json.RawMessage, policy ApprovalPolicy, delivery journal.Message) engine.Result {
	a := &approvalRecord{Delivery: &delivery, Approval: Approval{
		ID: w.ID, Tool: tool, Arguments: arguments, Hash: hashJSON(arguments), RequestedAt: w.Now().UTC(),
		Editable: policy.AllowEdits, Call: w.ID, Key: w.Key,
	}}
	if policy.Expires > 0 {
		a.ExpiresAt = a.RequestedAt.Add(policy.Expires)
	}
	if len(a.ID) > maxApprovalID || !utf8.ValidString(a.ID) || w.Var(approvalState(a.ID)) != nil {
		a.ID = a.Key
	}
	raw, err := encodeValue("the call that is to wait", a, maxWaiting)
	if err == nil {
		err = w.SetNew(approvalState(a.ID), raw, func(vars map[string]json.RawMessage) error {
			all, err := decodeApprovals(vars)
			if err == nil && len(all.pending()) >= maxPending {
				err = fmt.Errorf("%d calls wait for approval already, and no more can", maxPending)
			}
			return err
		})
	}
	if err != nil {
		return failure(err)
	}
	told := struct {
		Status    string    `json:"status"`
		ID        string    `json:"approvalId"`
		Hash      string    `json:"argumentsHash"`
		ExpiresAt time.Time `json:"expiresAt,omitzero"`
	}{"pending_approval", a.ID, a.Hash, a.ExpiresAt}
	var end error
	if !policy.Continue {
		end = EndTurn
	}
	return result(tool, nil, told, end)
}

// hashJSON is a digest of a JSON value, however it is written.
func hashJSON(raw json.RawMessage) string {
	sum := sha256.Sum256(journal.Canonical(jsontext.Value(raw)))
	return hex.EncodeToString(sum[:])
}

// An approvalRecord is what is kept of an approval. When the model has been told
// what came of it, little is left but who decided.
type approvalRecord struct {
	Approval

	// Delivery is the message that was in front of the model when it made the
	// call: the call runs as it would have run then.
	Delivery *journal.Message `json:"delivery,omitzero"`

	// Status says how far the decision has come, Result what came of it, in
	// words for the model, and Told that the model has had them.
	Status approvalStatus `json:"status,omitzero"`
	Result string         `json:"result,omitzero"`
	Told   bool           `json:"told,omitzero"`
	Shown  []journal.Data `json:"shown,omitzero"` // data parts that the call has made
}

// approvalStatus says what has become of a decided call.
type approvalStatus string

const (
	approvalRunning   approvalStatus = "running"
	approvalExecuted  approvalStatus = "executed"
	approvalFailed    approvalStatus = "failed"
	approvalDenied    approvalStatus = "denied"
	approvalWithdrawn approvalStatus = "withdrawn" // the tool is no longer there
	approvalUnknown   approvalStatus = "unknown"   // it was begun and interrupted
)

// approvals are the approvals of an instance by their ids.
type approvals map[string]*approvalRecord

// decodeApprovals finds the approvals in the persistent state of an instance.
func decodeApprovals(vars map[string]json.RawMessage) (approvals, error) {
	all := make(approvals)
	for name, raw := range vars {
		id, ok := strings.CutPrefix(name, approvalsState)
		if !ok {
			continue
		}
		a := new(approvalRecord)
		if err := schema.Unmarshal(raw, a); err != nil {
			return nil, fmt.Errorf("reading the stored approval %s: %w", id, err)
		}
		all[id] = a
	}
	return all, nil
}

// pending returns those that wait, oldest first.
func (all approvals) pending() []Approval {
	var out []Approval
	for _, a := range all {
		if a.Decision == nil {
			out = append(out, a.Approval)
		}
	}
	slices.SortFunc(out, func(a, b Approval) int {
		return cmp.Or(a.RequestedAt.Compare(b.RequestedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Approvals returns the calls that wait for approval, oldest first. It reads the
// whole journal of the instance.
func (in *Instance) Approvals(ctx context.Context) ([]Approval, error) {
	all, _, err := in.approvals(ctx)
	if err != nil {
		return nil, err
	}
	return all.pending(), nil
}

func (in *Instance) approvals(ctx context.Context) (all approvals, uid string, err error) {
	if in.err != nil {
		return nil, "", in.err
	}
	vars, uid, err := in.rt.engine.Vars(ctx, in.addr)
	if err != nil {
		return nil, "", in.missing(err)
	}
	all, err = decodeApprovals(vars)
	return all, uid, err
}

// Decide brings a person's decision on a call that waits. Whether the person may
// decide is for the caller to check before. It returns when the decision is
// stored, as a message that only this method can send; the call runs after that.
//
// The first decision counts. The same one again has no effect and returns the
// first receipt, marked as a duplicate; another one is refused with
// CodeSubmissionConflict. A call that does not wait, or whose time is up, gives an
// [*ApprovalError].
func (in *Instance) Decide(ctx context.Context, approval string, d Decision) (Receipt, error) {
	all, uid, err := in.approvals(ctx)
	if err != nil {
		return Receipt{}, err
	}
	a := all[approval]
	if a == nil {
		return Receipt{}, &ApprovalError{approval, ErrApprovalNotFound}
	}
	key, sent, settled, err := in.decisionKey(ctx, a)
	switch {
	case err != nil:
		return Receipt{}, err
	case a.Decision != nil && !sent: // withdrawn by a repair
		return Receipt{}, &ApprovalError{approval, ErrApprovalNotFound}
	}
	if settled && a.Decision == nil { // by what came between the two looks?
		if all, _, err = in.approvals(ctx); err != nil {
			return Receipt{}, err
		}
		if a = cmp.Or(all[approval], a); a.Decision == nil {
			key = a.decisionKey(key.n + 1)
		}
	}
	if err := a.check(d, in.rt.engine.Now()); err != nil {
		return Receipt{}, err
	}
	p, err := a.message(d)
	if err != nil {
		return Receipt{}, err
	}
	p.UID = uid
	receipt, err := in.sendAs(ctx, outgoing{Prompt: p}, "dispatch", key.submission(in.addr))
	if errors.Is(err, &Error{Code: CodeSubmissionConflict}) {
		return Receipt{}, &Error{
			Code: CodeSubmissionConflict, Message: fmt.Sprintf("The call %s was decided already, and otherwise.", approval),
			Details: "The first decision counts.", Err: err,
		}
	}
	return receipt, err
}

// A decisionKey names a decision, as an idempotency key does. No sender can use
// it. There is a second one only if the response to the first ended before it
// came to the decision, because it was aborted or failed.
type decisionKey struct {
	call string
	n    int
}

func (a *approvalRecord) decisionKey(n int) decisionKey { return decisionKey{call: a.Key, n: n} }

// submission is the id of the submission that the decision becomes.
func (k decisionKey) submission(addr store.Address) string {
	return derivedSubmission("sub_approval_", "flue-approval-1", addr, fmt.Sprintf("%s:%d", k.call, k.n))
}

// decisionKey returns the newest key under which a decision was sent, or the
// first if none was, and whether one was sent and is settled.
func (in *Instance) decisionKey(ctx context.Context, a *approvalRecord) (key decisionKey, sent, settled bool, err error) {
	for key = a.decisionKey(1); ; key.n++ {
		sub, err := in.rt.engine.Submission(ctx, in.addr, key.submission(in.addr))
		switch {
		case errors.Is(err, store.ErrNotFound):
			return a.decisionKey(max(key.n-1, 1)), key.n > 1, settled, nil
		case err != nil:
			return key, false, false, fmt.Errorf("flue: looking up the decision on approval %s: %w", a.ID, in.missing(err))
		}
		settled = sub.Outcome != ""
	}
}

// check refuses a decision that cannot be taken.
func (a *approvalRecord) check(d Decision, now time.Time) error {
	switch {
	case d.Hash != "" && d.Hash != a.Hash:
		return &ApprovalError{a.ID, errors.New("the arguments that were shown are not those that wait")}
	case isBlank(d.By):
		return wire.InvalidRequest("A decision says who took it: set By.")
	case len(d.By) > maxDecider || len(d.Reason) > maxDecider:
		return wire.InvalidRequest(fmt.Sprintf("Who decided and why may have at most %d bytes each.", maxDecider))
	case d.Approve && a.Decision == nil && a.expired(now):
		return &ApprovalError{a.ID, fmt.Errorf("%w since %s", ErrApprovalExpired, a.ExpiresAt.Format(time.RFC3339))}
	case d.Arguments != nil:
		return a.checkEdit(d)
	}
	return nil
}

func (a *Approval) expired(now time.Time) bool {
	return !a.ExpiresAt.IsZero() && now.After(a.ExpiresAt)
}

// checkEdit refuses edited arguments that the policy does not allow or that are
// no arguments.
func (a *Approval) checkEdit(d Decision) error {
	switch {
	case !a.Editable:
		return &ApprovalError{a.ID, errors.New("its policy does not allow the arguments to be changed")}
	case !d.Approve:
		return wire.InvalidRequest("Only an approval can change the arguments.")
	case jsontext.Value(d.Arguments).Kind() != '{' || !jsontext.Value(d.Arguments).IsValid():
		return wire.InvalidRequest("The changed arguments must be a JSON object.")
	case len(d.Arguments) > maxEdit:
		return wire.InvalidRequest(fmt.Sprintf("The changed arguments may have at most %d bytes.", maxEdit))
	}
	return nil
}

// maxEdit bounds edited arguments, in bytes.
const maxEdit = 256 << 10

// message is the decision in the form in which it is delivered.
func (a *Approval) message(d Decision) (wire.Prompt, error) {
	word, verb := "deny", "denied"
	if d.Approve {
		word, verb = "approve", "approved"
	}
	attributes := map[string]string{"approvalId": a.ID, "tool": a.Tool, "decision": word, "approver": d.By, "argumentsHash": a.Hash}
	if d.Reason != "" {
		attributes["reason"] = d.Reason
	}
	if d.Arguments != nil {
		attributes["arguments"] = string(d.Arguments)
	}
	p := wire.Prompt{
		Message: wire.Delivery{
			Kind: wire.KindSignal, Type: "approval", Body: fmt.Sprintf("%s %s the call %s of %s.", d.By, verb, a.ID, a.Tool), Attributes: attributes,
		},
	}
	if err := p.Validate(); err != nil {
		return wire.Prompt{}, err
	}
	p.Message.Type = journal.SignalApproval // which only this code may send
	return p, nil
}

// ExpireApprovals denies the calls whose time to be approved is up and returns
// how many they are. A runtime does so by itself for instances that it has worked
// on since it was opened; call this from a scheduled job for those that nobody
// has touched since.
func (in *Instance) ExpireApprovals(ctx context.Context) (int, error) {
	all, _, err := in.approvals(ctx)
	if err != nil {
		return 0, err
	}
	denied := 0
	var failed error
	for _, a := range all.pending() {
		if !a.expired(in.rt.engine.Now()) {
			continue
		}
		_, err := in.Decide(ctx, a.ID, Decision{By: "The approval policy", Reason: "the time to approve it was up"})
		switch {
		case errors.Is(err, &Error{Code: CodeSubmissionConflict}): // somebody was faster
		case err != nil:
			failed = errors.Join(failed, err)
		default:
			denied++
		}
	}
	return denied, failed
}
