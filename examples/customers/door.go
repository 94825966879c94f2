package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// tokens are the digests of the customers' tokens, with the customers. They
// stand for the sessions of a web site.
type tokens map[[sha256.Size]byte]string

const minToken = 16

// parseTokens reads a list such as "ada=token,bob=token".
func parseTokens(list string) (tokens, error) {
	all := make(tokens)
	for pair := range strings.SplitSeq(list, ",") {
		if pair == "" {
			continue
		}
		customer, token, _ := strings.Cut(pair, "=")
		if customer == "" || len(token) < minToken {
			return nil, fmt.Errorf("CUSTOMER_TOKENS: write customer=token, with at least %d characters in a token", minToken)
		}
		all[sha256.Sum256([]byte(token))] = customer
	}
	return all, nil
}

// customer returns whose token the request has. How long it takes says nothing
// about the tokens.
func (t tokens) customer(r *http.Request) (customer string, ok bool) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got := sha256.Sum256([]byte(token))
	for want, name := range t {
		if subtle.ConstantTimeCompare(want[:], got[:]) == 1 {
			customer = name
		}
	}
	return customer, bearer && customer != ""
}

// frontDoor lets customers in, each to the one conversation that has their name.
// What they send is delivered as a signal that says who they are. The agent's own
// handler takes signals with any attributes, so nothing may get by this.
func (t tokens) frontDoor(agent http.Handler) http.Handler {
	own := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			customer, ok := t.customer(r)
			switch {
			case !ok:
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "say who you are with a token", http.StatusUnauthorized)
			case customer != r.PathValue("customer"):
				http.NotFound(w, r)
			default:
				next(w, r)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /agents/customer-orders/{customer}", own(func(w http.ResponseWriter, r *http.Request) {
		signed, err := sign(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		agent.ServeHTTP(w, signed)
	}))
	mux.HandleFunc("GET /agents/customer-orders/{customer}", own(agent.ServeHTTP))
	mux.HandleFunc("POST /agents/customer-orders/{customer}/abort", own(agent.ServeHTTP))
	return mux
}

// maxMessage bounds what a customer may send, in bytes.
const maxMessage = 64 << 10

// sign returns the request with the customer's words in a signal. Of what the
// customer sent only the text and the key of the delivery are taken over.
func sign(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		return nil, errors.New("the message could not be read, or is too long")
	}
	var sent struct {
		Body string `json:"body"`
		Key  string `json:"idempotencyKey,omitempty"`
	}
	if err := json.Unmarshal(raw, &sent); err != nil || strings.TrimSpace(sent.Body) == "" {
		return nil, errors.New(`send a JSON object with the text as its "body"`)
	}
	signal := map[string]any{
		"kind": "signal", "type": customerMessage, "body": sent.Body,
		"attributes": map[string]string{"customerId": r.PathValue("customer")},
	}
	if sent.Key != "" {
		signal["idempotencyKey"] = sent.Key
	}
	body, err := json.Marshal(signal)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.Header.Set("Content-Type", "application/json")
	return out, nil
}
