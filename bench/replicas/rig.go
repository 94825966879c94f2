package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flue-go/flue/conformance/modelserver"
)

// A rig is what all measurements share.
type rig struct {
	dir        string // for the program and for files of SQLite
	program    string
	models     *httptest.Server
	client     *http.Client
	postgres   string // URL of the server; may be empty
	postmaster int    // process id, 0 if it is not on this machine
	profiles   string // directory; may be empty
}

func newRig(ctx context.Context, postgres string) (_ *rig, err error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 4096, 1024
	r := &rig{client: &http.Client{Transport: t}, postgres: postgres}
	if r.dir, err = os.MkdirTemp("", "replicas"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.models = httptest.NewServer(new(modelserver.Server))
	r.program = filepath.Join(r.dir, "server")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", r.program, "github.com/flue-go/flue/bench/server").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the server: %w\n%s", err, out)
	}
	if postgres != "" {
		r.postmaster, err = postmaster(ctx, postgres)
	}
	return r, err
}

func (r *rig) close() {
	if r.models != nil {
		r.models.Close()
	}
	_ = os.RemoveAll(r.dir)
}

// postmaster returns the process id of the server's first process, or 0.
func postmaster(ctx context.Context, db string) (int, error) {
	c, err := pgx.Connect(ctx, db)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	var pid int
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return 0, err
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !strings.HasPrefix(string(name), "postgres") {
		return 0, nil
	}
	s, err := status(pid)
	return s.parent, err
}

// A fleet is the servers of one measurement.
type fleet struct {
	processes []*process
	urls      []string
	drop      func() error // the database
}

// A process is one server.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// start starts replicas on a database of their own, or one server on SQLite.
func (r *rig) start(ctx context.Context, replicas int) (_ *fleet, err error) {
	name := "flue_bench_" + strings.ToLower(rand.Text()[:8])
	f := &fleet{drop: func() error { return nil }}
	db := filepath.Join(r.dir, name)
	if replicas > 0 {
		if db, err = r.create(ctx, name); err != nil {
			return nil, err
		}
		f.drop = func() error { return r.exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)") }
	}
	for range max(1, replicas) {
		if err := f.launch(r, db); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	for _, u := range f.urls {
		if err := await(ctx, r.client, u); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	return f, nil
}

func (r *rig) create(ctx context.Context, name string) (string, error) {
	u, err := url.Parse(r.postgres)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), r.exec(ctx, "CREATE DATABASE "+name+" ENCODING 'UTF8' TEMPLATE template0")
}

func (r *rig) exec(ctx context.Context, statement string) error {
	c, err := pgx.Connect(ctx, r.postgres)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, statement)
	return err
}

func (f *fleet) launch(r *rig, db string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	p := &process{cmd: exec.Command(r.program, "-db", db, "-addr", addr, "-model", r.models.URL+"/v1")}
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	f.processes = append(f.processes, p)
	f.urls = append(f.urls, "http://"+addr)
	return nil
}

// await waits until a server answers.
func await(ctx context.Context, c *http.Client, server string) error {
	for late := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := fetch(ctx, c, server+"/health")
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(late) {
			return fmt.Errorf("the server is not ready: %w", err)
		}
	}
}

func fetch(ctx context.Context, c *http.Client, target string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(b), err
}

// commits is how many the servers have made.
func (f *fleet) commits(ctx context.Context, c *http.Client) (sum int64, err error) {
	for _, u := range f.urls {
		answer, err := fetch(ctx, c, u+"/commits")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(answer), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// stop ends the servers and drops their database. It fails if one of them has
// logged anything: then what was measured is not what was meant.
func (f *fleet) stop() (err error) {
	for _, p := range f.processes {
		err = errors.Join(err, p.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range f.processes {
		late := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
		err = errors.Join(err, p.cmd.Wait())
		late.Stop()
		if p.stderr.Len() > 0 {
			err = errors.Join(err, fmt.Errorf("a server logged:\n%s", p.stderr.String()))
		}
	}
	return errors.Join(err, f.drop())
}
