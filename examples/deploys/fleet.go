package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A Fleet is the services that may be deployed, and what was deployed. It stands
// for a system that deploys.
type Fleet struct {
	allowed []string

	mu     sync.Mutex
	byKey  map[string]*Deployment
	latest int
}

// A Deployment is a version of a service that was deployed.
type Deployment struct {
	ID      int    `json:"deployment"`
	Service string `json:"service"`
	Version string `json:"version"`
}

func newFleet(allowed []string) *Fleet {
	return &Fleet{allowed: allowed, byKey: make(map[string]*Deployment)}
}

// Deploy deploys a service. Under the same key it does so once.
func (f *Fleet) Deploy(ctx context.Context, service, version, key string) (*Deployment, error) {
	if !slices.Contains(f.allowed, service) {
		return nil, fmt.Errorf("the service %q may not be deployed from here, only %s; tell the user, who can ask its owners",
			service, strings.Join(f.allowed, ", "))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.byKey[key]; d != nil {
		return d, nil
	}
	f.latest++
	d := &Deployment{f.latest, service, version}
	f.byKey[key] = d
	return d, nil
}
