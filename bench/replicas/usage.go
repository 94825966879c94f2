package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A usage is what of the processors was used, since some time in the past.
type usage struct {
	servers, database, self time.Duration
	all                     time.Duration // by everybody on the machine
}

func (u usage) since(v usage) usage {
	return usage{u.servers - v.servers, u.database - v.database, u.self - v.self, u.all - v.all}
}

func (u usage) foreign() time.Duration {
	return max(0, u.all-u.servers-u.database-u.self)
}

// meter reads the usage of everything now.
func (r *rig) meter(f *fleet) (u usage, err error) {
	for _, p := range f.processes {
		s, err := status(p.cmd.Process.Pid)
		if err != nil {
			return u, err
		}
		u.servers += s.used
	}
	self, err := status(os.Getpid())
	if err != nil {
		return u, err
	}
	u.self = self.used
	if u.database, err = r.database(); err != nil {
		return u, err
	}
	u.all, err = machine()
	return u, err
}

// database is what the processes of PostgreSQL have used: the first one, its
// children, and those that have ended. It is 0 if they are not on this machine.
func (r *rig) database() (time.Duration, error) {
	if r.postmaster == 0 {
		return 0, nil
	}
	first, err := status(r.postmaster)
	if err != nil {
		return 0, err
	}
	used := first.used + first.ended
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if s, err := status(pid); err == nil && s.parent == r.postmaster { // others may end meanwhile
			used += s.used + s.ended
		}
	}
	return used, nil
}

// A procStatus is what the system knows of a process.
type procStatus struct {
	parent      int
	used, ended time.Duration // by itself, by its children that have ended
}

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

func status(pid int) (s procStatus, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 15 {
		return s, fmt.Errorf("/proc/%d/stat cannot be understood", pid)
	}
	n := make([]time.Duration, 15)
	for i := 1; i < len(n); i++ {
		v, _ := strconv.ParseInt(f[i], 10, 64)
		n[i] = time.Duration(v)
	}
	return procStatus{parent: int(n[1]), used: (n[11] + n[12]) * tick, ended: (n[13] + n[14]) * tick}, nil
}

// machine is what everybody has used.
func machine() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	var sum int64
	for i, field := range f {
		if i == 0 || i == 4 || i == 5 || i > 8 { // its name, idle, waiting for a disk, counted twice
			continue
		}
		n, _ := strconv.ParseInt(field, 10, 64)
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
