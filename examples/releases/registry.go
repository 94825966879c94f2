package main

import (
	"context"
	"fmt"
	"sync"
)

// A Registry is where releases are published. It is in memory and stands for a
// real one.
type Registry struct {
	mu    sync.Mutex
	byKey map[string]Release
	taken map[Release]bool
}

// A Release is a version of a package that was published.
type Release struct {
	Package string `json:"package"`
	Version string `json:"version"`
	URL     string `json:"url"`
}

func newRegistry() *Registry {
	return &Registry{byKey: make(map[string]Release), taken: make(map[Release]bool)}
}

// Publish publishes a release. Under the same key it does so once.
func (g *Registry) Publish(ctx context.Context, pkg, version, key string) (Release, error) {
	if ctx.Err() != nil {
		return Release{}, context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := Release{pkg, version, fmt.Sprintf("https://registry.example.com/%s/%s", pkg, version)}
	if done, ok := g.byKey[key]; ok {
		return done, nil
	}
	if g.taken[r] {
		return Release{}, fmt.Errorf("%s %s was published before; choose another version", pkg, version)
	}
	g.byKey[key], g.taken[r] = r, true
	return r, nil
}

// published returns how many releases there are.
func (g *Registry) published() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.taken)
}
