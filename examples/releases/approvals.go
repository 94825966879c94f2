package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/flue-go/flue"
)

// approvals is the API for operators: what waits in a conversation, and their
// decisions. A decision comes in here and nowhere else: who may write to a
// conversation may not approve for that reason.
type approvals struct {
	rt  *flue.Runtime
	log *slog.Logger
}

func (a *approvals) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/approvals/{conversation}", a.list)
	mux.HandleFunc("POST /api/approvals/{conversation}", a.decide)
	return mux
}

func (a *approvals) instance(r *http.Request) *flue.Instance {
	return a.rt.Instance("release-manager", r.PathValue("conversation"))
}

// list answers with the calls that wait, oldest first.
func (a *approvals) list(w http.ResponseWriter, r *http.Request) {
	waiting, err := a.instance(r).Approvals(r.Context())
	if err != nil {
		a.fail(w, err)
		return
	}
	if waiting == nil {
		waiting = []flue.Approval{} // an empty list, not null
	}
	a.answer(w, http.StatusOK, map[string]any{"approvals": waiting})
}

// maxDecision bounds the body of a decision, in bytes.
const maxDecision = 16 << 10

// decide takes a decision and answers with a receipt. The first decision counts.
func (a *approvals) decide(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ApprovalID string `json:"approvalId"`
		Decision   string `json:"decision"`
		Reason     string `json:"reason"`
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDecision))
	dec.DisallowUnknownFields()
	// A word that is misread must never count as consent.
	if err := dec.Decode(&in); err != nil || in.ApprovalID == "" || (in.Decision != "approve" && in.Decision != "deny") {
		a.answer(w, http.StatusBadRequest, problem("invalid_request", `send {"approvalId": …, "decision": "approve" or "deny", "reason": …}`))
		return
	}
	receipt, err := a.instance(r).Decide(r.Context(), in.ApprovalID, flue.Decision{
		Approve: in.Decision == "approve", By: person(r.Context()), Reason: in.Reason,
	})
	if err != nil {
		a.fail(w, err)
		return
	}
	a.answer(w, http.StatusAccepted, map[string]any{
		"submissionId": receipt.Submission, "uid": receipt.UID, "acceptedAt": receipt.AcceptedAt, "duplicate": receipt.Duplicate,
	})
}

// fail answers with what the sender can do something about, and keeps the rest
// for the log.
func (a *approvals) fail(w http.ResponseWriter, err error) {
	var told *flue.Error
	var over *flue.ApprovalError
	switch {
	case errors.Is(err, flue.ErrApprovalNotFound):
		a.answer(w, http.StatusNotFound, problem("approval_not_found", err.Error()))
	case errors.As(err, &over):
		a.answer(w, http.StatusConflict, problem(string(over.Code()), over.Error()))
	case errors.As(err, &told) && told.Status() < http.StatusInternalServerError:
		a.answer(w, told.Status(), problem(string(told.Code), told.Error()))
	default:
		a.log.Error("answering an operator", "error", err)
		a.answer(w, http.StatusInternalServerError, problem("internal_error", "it did not work; see the log"))
	}
}

func problem(code, message string) map[string]any {
	return map[string]any{"error": map[string]string{"type": code, "message": message}}
}

func (a *approvals) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		a.log.Warn("writing an answer", "error", err)
	}
}
