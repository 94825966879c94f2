// Package lint judges the files that show how to deploy a program of agents: the
// image, the composition and the manifests of the folder above. They are read by
// the parsers of those who run them, without leave for anything unknown, and held
// to rules of our own.
//
// It is a module of its own so that nobody who uses Flue depends on those parsers.
package lint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// findings are what is wrong with a file.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// pinned reports whether an image is named by a version that stays what it is, as
// far as a tag can promise that.
func pinned(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return true
	}
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, ok := strings.Cut(name, ":")
	return ok && tag != "" && tag != "latest"
}

// flag returns the value of a flag among the arguments of a program.
func flag(args []string, name string) (string, bool) {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v, true
		}
		if a == name && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

// How long serve takes to end at most beside what its flags say: the requests that
// are under way, and the work that must be cut and given back.
const ending = 15 * time.Second

// stopping is how long a server may take to end after the signal.
func stopping(args []string) (time.Duration, error) {
	v, ok := flag(args, "--drain")
	if !ok {
		return 0, fmt.Errorf("there is no --drain, which the grace period is to be measured by")
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, err
	}
	if v, ok = flag(args, "--drain-delay"); ok {
		delay, err := time.ParseDuration(v)
		return d + delay + ending, err
	}
	return d + ending, nil
}

// checkMemory compares GOMEMLIMIT with the limit of the container, in bytes: with
// too little room between them the program is killed before it collects, with too
// much the memory is never used.
func (f *findings) checkMemory(of, goLimit string, limit int64) {
	soft, err := resource.ParseQuantity(strings.TrimSuffix(goLimit, "B"))
	switch {
	case goLimit == "" || !strings.HasSuffix(goLimit, "iB") || err != nil:
		f.add("%s: GOMEMLIMIT is %q", of, goLimit)
	case limit == 0:
		f.add("%s: has no limit of memory", of)
	case soft.Value() > limit*95/100 || soft.Value() < limit/2:
		f.add("%s: GOMEMLIMIT %s does not go with a limit of %d bytes", of, goLimit, limit)
	}
}

// checkDatabase looks at the value of FLUE_DB.
func (f *findings) checkDatabase(of, url string) {
	rest, ok := strings.CutPrefix(url, "postgres://")
	if !ok {
		f.add("%s: FLUE_DB is no URL of PostgreSQL", of)
	}
	if user, _, ok := strings.Cut(rest, "@"); ok && strings.Contains(user, ":") {
		f.add("%s: there is a password in FLUE_DB", of)
	}
}

// port returns the port that a server listens on, and whether others can reach it.
func port(args []string) (int, bool) {
	addr, _ := flag(args, "--addr")
	host, p, _ := strings.Cut(addr, ":")
	n, err := strconv.Atoi(p)
	return n, err == nil && (host == "" || host == "0.0.0.0")
}
