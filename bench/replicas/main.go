// Command replicas measures how many messages so many replicas on one PostgreSQL
// database settle, against one process on SQLite, in one run on one machine:
//
//	go run ./bench/replicas -postgres postgres://postgres@127.0.0.1/postgres
//
// Each measurement has a fresh database and fresh server processes. They are
// interleaved and repeated, and medians are printed. The requests of a conversation
// go to the replicas in turn, as behind a load balancer that knows nothing. The
// model is a server in this process, which streams eight words at once.
//
// The user of the URL must be allowed to create databases. If the database's
// processes are on this machine, what they use of its processors is told too.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A plan says what is measured.
type plan struct {
	postgres      string
	replicas      []int // 0 stands for one process on SQLite
	conversations []int
	kinds         []string
	prompts       int // in each measurement, after warm-up
	turns         int // of a conversation before another one takes its place
	rounds        int
	profiles      string // where to write CPU profiles of the first server; may be empty
}

func main() {
	var p plan
	var replicas, conversations, kinds string
	flag.StringVar(&p.postgres, "postgres", "", "URL of a PostgreSQL server on which databases can be created")
	flag.StringVar(&replicas, "replicas", "0,1,2,3", "how many replicas; 0 is one process on SQLite")
	flag.StringVar(&conversations, "c", "1,16,64", "how many conversations at once")
	flag.StringVar(&kinds, "kinds", "text,tool", "what is sent: text, or a message with one tool call")
	flag.IntVar(&p.prompts, "n", 2000, "messages in each measurement; with one conversation a quarter of them")
	flag.IntVar(&p.turns, "turns", 10, "messages of a conversation before another one takes its place")
	flag.IntVar(&p.rounds, "rounds", 3, "how often everything is measured")
	flag.StringVar(&p.profiles, "profiles", "", "directory for CPU profiles of one server of each measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := p.parse(replicas, conversations, kinds)
	if err == nil {
		err = run(ctx, p, os.Stdout)
	}
	if err != nil {
		slog.Error("measuring", "error", err)
		os.Exit(1)
	}
}

func (p *plan) parse(replicas, conversations, kinds string) (err error) {
	if p.replicas, err = numbers(replicas); err != nil {
		return err
	}
	if p.conversations, err = numbers(conversations); err != nil {
		return err
	}
	p.kinds = strings.Split(kinds, ",")
	for _, k := range p.kinds {
		if messages[k] == "" {
			return fmt.Errorf("-kinds: there is no kind %q", k)
		}
	}
	if p.postgres == "" && slices.Max(p.replicas) > 0 {
		return fmt.Errorf("-postgres: want the URL of a server, or -replicas 0")
	}
	return nil
}

func numbers(list string) (ns []int, err error) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not a list of numbers", list)
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// A cell is one kind of measurement.
type cell struct {
	kind          string
	conversations int
	replicas      int
}

func (c cell) String() string {
	if c.replicas == 0 {
		return fmt.Sprintf("%s, %d conversations, SQLite", c.kind, c.conversations)
	}
	return fmt.Sprintf("%s, %d conversations, %d on PostgreSQL", c.kind, c.conversations, c.replicas)
}

// run measures every cell in every round, so that what disturbs the machine for a
// while does not fall on one of them.
func run(ctx context.Context, p plan, out io.Writer) error {
	r, err := newRig(ctx, p.postgres)
	if err != nil {
		return err
	}
	r.profiles = p.profiles
	defer r.close()
	results := make(map[cell][]result)
	for round := range p.rounds {
		for _, c := range p.cells() {
			n := p.prompts
			if c.conversations == 1 {
				n = max(1, n/4)
			}
			res, err := r.measure(ctx, c, n, p.turns)
			if err != nil {
				return fmt.Errorf("%v: %w", c, err)
			}
			fmt.Fprintf(out, "round %d: %v: %v\n", round+1, c, res)
			results[c] = append(results[c], res)
		}
	}
	table(out, p.cells(), results)
	return nil
}

func (p *plan) cells() (cells []cell) {
	for _, kind := range p.kinds {
		for _, c := range p.conversations {
			for _, n := range p.replicas {
				cells = append(cells, cell{kind, c, n})
			}
		}
	}
	return cells
}

// table prints the medians.
func table(out io.Writer, cells []cell, results map[cell][]result) {
	fmt.Fprint(out, "\n| | conversations | store | prompts/s | p50 | p99 | servers' CPU a prompt | database's | its share | commits a prompt | others used |\n")
	fmt.Fprint(out, "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range cells {
		rs := results[c]
		of := func(value func(result) float64) float64 {
			vs := make([]float64, len(rs))
			for i := range rs {
				vs[i] = value(rs[i])
			}
			return median(vs)
		}
		where := "SQLite"
		if c.replicas > 0 {
			where = fmt.Sprintf("PostgreSQL, %d", c.replicas)
		}
		fmt.Fprintf(out, "| %s | %d | %s | %.0f | %.1f ms | %.1f ms | %.2f ms | %.2f ms | %.0f %% | %.2f | %.2f |\n",
			c.kind, c.conversations, where, of(result.rate), of(result.p50), of(result.p99), of(result.serverCPU), of(result.databaseCPU),
			of(result.databaseShare), of(result.commitsPerPrompt), of(result.foreign))
	}
}

func median[T cmp.Ordered](vs []T) T {
	slices.Sort(vs)
	return vs[len(vs)/2]
}
