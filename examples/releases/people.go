package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// people are those who may use a part of the API: their names, by the digests of
// their tokens. They stand for the accounts of a company.
type people map[[sha256.Size]byte]string

// minSecret is the least length of a token or code.
const minSecret = 16

// peopleOf reads a variable such as "dana=token,sam=token".
func peopleOf(variable string) (people, error) {
	p := make(people)
	for pair := range strings.SplitSeq(os.Getenv(variable), ",") {
		name, token, _ := strings.Cut(pair, "=")
		switch {
		case pair == "":
		case name == "" || len(token) < minSecret:
			return nil, fmt.Errorf("%s: write name=token, with at least %d characters in a token", variable, minSecret)
		default:
			p[sha256.Sum256([]byte(token))] = name
		}
	}
	return p, nil
}

// required is peopleOf for a server, which must not start without anybody. The
// demo makes a token for one person instead, which is returned.
func required(variable, demoName string) (p people, demoToken string, err error) {
	p, err = peopleOf(variable)
	switch {
	case err != nil || len(p) > 0:
		return p, "", err
	case !demo():
		return nil, "", fmt.Errorf("set %s to the tokens of those who may do this, as name=token", variable)
	}
	token := rand.Text()
	p[sha256.Sum256([]byte(token))] = demoName
	return p, token, nil
}

// demo reports whether no real model can be asked.
func demo() bool {
	return os.Getenv("ANTHROPIC_API_KEY") == "" && os.Getenv("ANTHROPIC_BASE_URL") == ""
}

const demoCode = "DEMO-CODE-4711"

// approvalCode is the code that unlocks publishing.
func approvalCode() (string, error) {
	switch code := os.Getenv("RELEASES_APPROVAL_CODE"); {
	case len(code) >= minSecret:
		return code, nil
	case code == "" && demo():
		return demoCode, nil
	}
	return "", fmt.Errorf("set RELEASES_APPROVAL_CODE to a code of at least %d characters", minSecret)
}

type personKey struct{}

// person is who sent the request.
func person(ctx context.Context) string {
	name, _ := ctx.Value(personKey{}).(string)
	return name
}

// only lets people in who have a token. How long a refusal takes says nothing
// about the tokens.
func (p people) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got, name := sha256.Sum256([]byte(token)), ""
		for want, of := range p {
			if subtle.ConstantTimeCompare(want[:], got[:]) == 1 {
				name = of
			}
		}
		if !bearer || name == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "say who you are with a token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, name)))
	})
}
