package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue"
	"github.com/flue-go/flue/cli"
	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/memstore"
	"github.com/flue-go/flue/store/storetest/faultstore"
)

// An outside is a platform as it is seen from outside of any process. It counts
// what it is asked for and what it does, and can have the process die while it is
// being asked.
type outside struct {
	mu      sync.Mutex
	asked   map[string]int
	done    map[string]int
	tenants map[string]Tenant

	at    string // the step during which the process dies, the first time
	after bool   // it dies when the effect is there, else before
	die   func()
}

func (o *outside) CreateTenant(_ context.Context, key, customerID string) (t Tenant, err error) {
	err = o.ask("create-tenant", func() bool {
		_, known := o.tenants[key]
		if !known {
			o.tenants[key] = Tenant{"ten_of_" + customerID, customerID}
		}
		t = o.tenants[key]
		return !known
	})
	return t, err
}

func (o *outside) SeedProject(_ context.Context, tenantID, project string) error {
	return o.ask("seed:"+project, func() bool { return tenantID == "ten_of_cus_7" && o.done["seed:"+project] == 0 })
}

func (o *outside) ask(step string, effect func() (fresh bool)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[step]++
	dies := step == o.at && o.asked[step] == 1
	if dies && !o.after {
		o.die()
		return errors.New("the connection was lost")
	}
	if effect() {
		o.done[step]++
	}
	if dies {
		o.die()
	}
	return nil
}

// Wherever the process dies, the next one finishes the work: each effect is
// there once, no finished step is asked for again, and the one that was cut is
// asked for under the same key.
func TestCrash(t *testing.T) {
	steps := []string{"create-tenant"}
	for _, p := range defaultProjects {
		steps = append(steps, "seed:"+p)
	}
	once := map[string]int{}
	for _, s := range steps {
		once[s] = 1
	}
	for _, at := range append([]string{""}, steps...) {
		for _, after := range []bool{false, true} {
			name := "no crash"
			if at != "" {
				name = map[bool]string{false: "before ", true: "after "}[after] + at
			}
			t.Run(name, func(t *testing.T) {
				o := &outside{asked: map[string]int{}, done: map[string]int{}, tenants: map[string]Tenant{}, at: at, after: after}
				reply := playThrough(t, o)
				if want := "The workspace is ready: tenant ten_of_cus_7 with 3 projects." + scriptedNote; reply != want {
					t.Errorf("the reply is %q, want %q", reply, want)
				}
				if diff := cmp.Diff(once, o.done); diff != "" {
					t.Errorf("effects (-want +got):\n%s", diff)
				}
				asked := maps.Clone(once)
				if at != "" {
					asked[at] = 2 // it was cut, so nobody could know
				}
				if diff := cmp.Diff(asked, o.asked); diff != "" {
					t.Errorf("asked for (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// playThrough asks for a workspace and returns the reply. When the process dies
// it begins another, on what the first one has written.
func playThrough(t *testing.T, o *outside) string {
	t.Helper()
	first := memstore.New()
	reopened := make(chan *memstore.Store, 1)
	// From here on the first process can write nothing.
	o.die = func() { reopened <- first.Reopen() }
	rt := process(t, o, first)
	receipt, err := rt.Instance("provisioning-assistant", "a").Dispatch(t.Context(), flue.User("Set up customer cus_7"))
	if err != nil {
		t.Fatal(err)
	}
	if o.at != "" {
		next := <-reopened
		killed, cancel := context.WithCancel(t.Context())
		cancel()
		if err := rt.Close(killed); err != nil {
			t.Fatal(err)
		}
		rt = process(t, o, next)
	}
	defer rt.Close(t.Context())
	reply, err := rt.Instance("provisioning-assistant", "a").Read(t.Context(), receipt.Submission)
	if err != nil {
		t.Fatal(err)
	}
	return reply.Text
}

// The same at every write of the process, those before the first step and after
// the last one, too: what was recorded is not asked for again.
func TestCrashAtEveryWrite(t *testing.T) {
	for _, mode := range []faultstore.Mode{faultstore.Before, faultstore.After} {
		crashes := 0
		for n := 2; crashAtWrite(t, n, mode); n++ { // the first accepts the message
			crashes++
		}
		if crashes < len(defaultProjects)+1 {
			t.Errorf("%s: there were %d crashes, fewer than steps", mode, crashes)
		}
	}
}

// crashAtWrite has the process die at its n-th write, and reports false if there
// are not so many.
func crashAtWrite(t *testing.T, n int, mode faultstore.Mode) bool {
	t.Helper()
	o := &outside{asked: map[string]int{}, done: map[string]int{}, tenants: map[string]Tenant{}}
	disk, died := memstore.New(), make(chan struct{})
	fault := faultstore.New(disk)
	fault.Crash(n, mode)
	fault.SetHook(func(_ context.Context, p faultstore.Point) error {
		if p.N == n && p.Done == (mode == faultstore.After) {
			close(died)
		}
		return nil
	})
	rt := process(t, o, fault)
	in := rt.Instance("provisioning-assistant", "a")
	receipt, err := in.Dispatch(t.Context(), flue.User("Set up customer cus_7"))
	if err != nil {
		t.Fatal(err)
	}
	whole := make(chan error, 1)
	go func() {
		_, err := in.Read(t.Context(), receipt.Submission)
		whole <- err
	}()
	select {
	case <-died:
	case err := <-whole:
		if fault.Calls().Total() < n {
			if err := errors.Join(err, rt.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			return false
		}
		<-died
	}
	killed, cancel := context.WithCancel(t.Context())
	cancel()
	next := disk.Reopen()
	if err := rt.Close(killed); err != nil {
		t.Fatal(err)
	}
	rt = process(t, o, next)
	defer rt.Close(t.Context())
	if _, err := rt.Instance("provisioning-assistant", "a").Read(t.Context(), receipt.Submission); err != nil {
		t.Fatalf("%s write %d: %v", mode, n, err)
	}
	again := 0
	for step, asked := range o.asked {
		again += asked - 1
		if o.done[step] != 1 {
			t.Errorf("%s write %d: %s was done %d times", mode, n, step, o.done[step])
		}
	}
	if limit := map[faultstore.Mode]int{faultstore.Before: 1}[mode]; len(o.done) != len(defaultProjects)+1 || again > limit {
		t.Errorf("%s write %d: done %v, and %d steps were asked for again, want at most %d", mode, n, o.done, again, limit)
	}
	return true
}

func process(t *testing.T, p Platform, st store.Store) *flue.Runtime {
	t.Helper()
	rt, err := flue.Open(t.Context(), flue.Config{
		Agents: []*flue.Agent{assistant(p)}, Providers: map[string]model.Provider{"anthropic": newDemo()}, Store: st,
	})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func TestRunWithoutKey(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	path := filepath.Join(t.TempDir(), "p", "platform.json")
	for _, tt := range []struct{ customer, tenant string }{{"cus_7", "ten_1"}, {"cus_8", "ten_2"}} {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), app(), []string{"run", "--db", ":memory:", "--platform", path, "-m", "Set up " + tt.customer}, strings.NewReader(""), &stdout, &stderr)
		if want := "The workspace is ready: tenant " + tt.tenant + " with 3 projects." + scriptedNote + "\n"; code != 0 || stdout.String() != want {
			t.Errorf("exit code %d and %q, want %q\n%s", code, stdout.String(), want, stderr.String())
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got platformData
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"ten_1": defaultProjects, "ten_2": defaultProjects}, got.Projects); diff != "" {
		t.Errorf("projects (-want +got):\n%s", diff)
	}
}
