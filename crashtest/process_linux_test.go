package crashtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/flue-go/flue/internal/faultnet"
)

// A replica is a place in a fleet: a link to the database, and one process after
// another behind it.
type replica struct {
	f     *fleet
	place int
	link  *faultnet.Link
	busy  sync.Mutex // held by who troubles it, or by who begins a process
	lives int
	proc  *process // nil between two
}

// A process is one server of a fleet.
type process struct {
	node  string
	log   string // files
	holds string
	cmd   *exec.Cmd
	began time.Time
	stdin io.Closer
	up    chan string   // gets its URL
	ended chan struct{} // closed when it has ended
	asked bool          // it was made to end
	err   error         // how it ended; once ended is closed
}

// node is the name of the next process of the replica.
func (r *replica) node() string { return fmt.Sprintf("r%d-%d", r.place, r.lives) }

// start begins a process and puts it behind the balancer once it is ready. A
// process that cannot reach the database may give up, and is begun again as an
// orchestrator would.
func (r *replica) start(ctx context.Context, node string) {
	for ctx.Err() == nil {
		p, err := r.launch(node)
		if err != nil {
			r.f.complain("beginning %s: %v", node, err)
			return
		}
		select {
		case at := <-p.up:
			r.proc = p
			if err := r.f.balancer.Set(r.place, at); err != nil {
				r.f.complain("%s listens at %q: %v", node, at, err)
			}
			return
		case <-p.ended:
			if !r.f.troubled(p.began) {
				r.f.complain("%s ended before it was ready: %v; see %s", node, p.err, p.log)
				return
			}
			pause(ctx, 100*time.Millisecond)
		case <-time.After(patience):
			p.kill()
			if !r.f.troubled(p.began) {
				r.f.complain("%s was not ready in %v; see %s", node, patience, p.log)
				return
			}
		case <-ctx.Done():
			p.kill()
		}
	}
}

// ahead is how far the clock of the replica's processes is ahead: that of the last one
// by an hour, or behind by as much.
func (r *replica) ahead() time.Duration {
	switch {
	case r.place < r.f.drill.replicas-1:
		return 0
	case r.f.seed%2 == 0:
		return -time.Hour
	}
	return time.Hour
}

// launch begins a process.
func (r *replica) launch(node string) (*process, error) {
	r.lives++
	name := fmt.Sprintf("%s.%d", node, r.lives)
	p := &process{
		node: node, log: filepath.Join(r.f.dir, name+".log"), holds: filepath.Join(r.f.dir, name+".holds"),
		cmd: exec.Command(os.Args[0]), up: make(chan string, 1), ended: make(chan struct{}),
	}
	config, err := json.Marshal(replicaConfig{
		Node: node, Database: r.database(), World: r.f.world.http.URL, Holds: p.holds, LeaseMS: r.f.lease.Milliseconds(), MaxAttempts: r.f.maxAttempts, Pace: r.f.pace,
		AheadMS: r.ahead().Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has it
	p.cmd.Env = append(os.Environ(), replicaVar+"="+string(config))
	p.cmd.Stderr = log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	r.f.keep(p)
	go p.attend(out)
	return p, nil
}

// database is the URL of the database over the replica's link.
func (r *replica) database() string {
	u, err := url.Parse(r.f.database)
	if err != nil {
		r.f.complain("the URL of the database: %v", err)
		return ""
	}
	u.Host = r.link.Addr()
	return u.String()
}

// attend follows what the process says, until it has ended.
func (p *process) attend(out io.Reader) {
	defer close(p.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			p.up <- at
		}
	}
	p.err = p.cmd.Wait()
	_ = p.stdin.Close()
}

// kill ends the process as a loss of power would.
func (p *process) kill() {
	p.asked = true
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// signal sends the process a signal.
func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// terminate asks the process to end and waits until it has.
func (p *process) terminate() error {
	p.asked = true
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return p.err
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("it had not ended after %v", patience)
	}
}

// forbidden are words that no server may log, whatever is done to it: the journal
// of an instance is broken, or the program.
var forbidden = []string{"cannot be continued", "panic", "DATA RACE", "no progress in phase", "staging for"}

// inspect looks for what a log must not have.
func (p *process) inspect(c *complaints) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		c.complain("%v", err)
		return
	}
	for line := range strings.Lines(string(data)) {
		for _, word := range forbidden {
			if strings.Contains(line, word) {
				c.complain("%s logged: %s", p.node, line)
				return
			}
		}
	}
}
