package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A filePlatform is a Platform in a file, which stands for a service.
type filePlatform struct {
	path string
	pace time.Duration

	mu   sync.Mutex
	data platformData
}

type platformData struct {
	Tenants  map[string]Tenant   `json:"tenants"`  // by the keys under which they were created
	Projects map[string][]string `json:"projects"` // by tenant
}

func openPlatform(path string, pace time.Duration) (*filePlatform, error) {
	p := &filePlatform{path: path, pace: pace, data: platformData{map[string]Tenant{}, map[string][]string{}}}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("opening the platform: %w", err)
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &p.data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening the platform %s: %w", path, err)
	}
	return p, nil
}

func (p *filePlatform) CreateTenant(ctx context.Context, key, customerID string) (Tenant, error) {
	var t Tenant
	err := p.change(ctx, func(d *platformData) {
		var ok bool
		if t, ok = d.Tenants[key]; !ok {
			t = Tenant{ID: fmt.Sprintf("ten_%d", len(d.Tenants)+1), Customer: customerID}
			d.Tenants[key] = t
		}
	})
	return t, err
}

func (p *filePlatform) SeedProject(ctx context.Context, tenantID, project string) error {
	return p.change(ctx, func(d *platformData) {
		if !slices.Contains(d.Projects[tenantID], project) {
			d.Projects[tenantID] = append(d.Projects[tenantID], project)
		}
	})
}

// change does something after the platform's time, and writes the file anew.
func (p *filePlatform) change(ctx context.Context, do func(*platformData)) error {
	select {
	case <-time.After(p.pace):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	do(&p.data)
	raw, err := json.MarshalIndent(p.data, "", "  ")
	if err != nil {
		return err
	}
	// Written beside and renamed, so that a crash leaves one whole file.
	if err := os.WriteFile(p.path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(p.path+".new", p.path)
}
