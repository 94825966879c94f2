package google

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/flue-go/flue/model"
)

const (
	metadataURL = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"

	metadataTimeout = 10 * time.Second
	metadataMargin  = time.Minute // a token with less than this left is not used
	maxMetadata     = 64 << 10    // bytes of an answer
)

// MetadataToken returns a source of access tokens for programs that run on Google
// Cloud (Compute Engine, GKE, Cloud Run): those of the default service account,
// from the metadata server. A token is kept until a minute before it expires.
// Elsewhere there is no such server, and each call fails after ten seconds at most.
//
// A nil client means one that uses [http.DefaultTransport].
func MetadataToken(client *http.Client) model.TokenSource {
	if client == nil {
		client = &http.Client{}
	}
	m := &metadata{client: client, turn: make(chan struct{}, 1)}
	return m.token
}

type metadata struct {
	client *http.Client
	turn   chan struct{} // holds an element while somebody uses what follows
	kept   string
	until  time.Time
}

func (m *metadata) token(ctx context.Context) (string, error) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if m.kept != "" && time.Until(m.until) > metadataMargin {
		return m.kept, nil
	}
	token, life, err := m.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the metadata server for a token: %w", err)
	}
	m.kept, m.until = token, time.Now().Add(life)
	return token, nil
}

// fetch asks for a token and how long it is valid.
func (m *metadata) fetch(ctx context.Context) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metadataURL, nil)
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	resp, err := m.client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	var t struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"` // seconds
	}
	switch err := json.NewDecoder(io.LimitReader(resp.Body, maxMetadata)).Decode(&t); {
	case resp.StatusCode != http.StatusOK:
		return "", 0, fmt.Errorf("it answered %s; does the machine have a service account?", resp.Status)
	case err != nil:
		return "", 0, errors.New("it answered with something else than a token")
	case t.AccessToken == "":
		return "", 0, errors.New("it answered without a token")
	}
	return t.AccessToken, time.Duration(min(max(t.ExpiresIn, 0), 24*3600) * float64(time.Second)), nil
}
