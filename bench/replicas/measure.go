package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A result is one measurement.
type result struct {
	prompts int
	took    time.Duration
	waits   []time.Duration // from sending a message to its settlement; sorted
	used    usage
	commits int64
}

func (r result) rate() float64 { return float64(r.prompts) / r.took.Seconds() }
func (r result) p50() float64  { return ms(r.waits[len(r.waits)/2]) }
func (r result) p99() float64  { return ms(r.waits[len(r.waits)*99/100]) }

func (r result) perPrompt(d time.Duration) float64 { return ms(d) / float64(r.prompts) }
func (r result) serverCPU() float64                { return r.perPrompt(r.used.servers) }
func (r result) databaseCPU() float64              { return r.perPrompt(r.used.database) }

// databaseShare is in percent of what the servers and the database use.
func (r result) databaseShare() float64 {
	return 100 * r.used.database.Seconds() / (r.used.database + r.used.servers).Seconds()
}

func (r result) commitsPerPrompt() float64 { return float64(r.commits) / float64(r.prompts) }

// foreign is how many cores others have used.
func (r result) foreign() float64 { return r.used.foreign().Seconds() / r.took.Seconds() }

func (r result) String() string {
	return fmt.Sprintf("%.0f prompts/s, p50 %.1f ms, p99 %.1f ms; CPU a prompt: servers %.2f ms, database %.2f ms, load and model %.2f ms; %.2f commits a prompt; others used %.2f cores",
		r.rate(), r.p50(), r.p99(), r.serverCPU(), r.databaseCPU(), r.perPrompt(r.used.self), r.commitsPerPrompt(), r.foreign())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measure starts servers on a fresh database, warms them up and measures n
// messages.
func (r *rig) measure(ctx context.Context, c cell, n, turns int) (res result, err error) {
	f, err := r.start(ctx, c.replicas)
	if err != nil {
		return res, err
	}
	defer func() {
		if e := f.stop(); err == nil {
			err = e
		}
	}()
	l := load{client: r.client, servers: f.urls, path: "/agents/" + agents[c.kind], message: messages[c.kind], turns: turns}
	if _, err := l.run(ctx, c.conversations, max(n/4, 2*c.conversations)); err != nil {
		return res, err
	}
	commits, err := f.commits(ctx, r.client)
	if err != nil {
		return res, err
	}
	before, err := r.meter(f)
	if err != nil {
		return res, err
	}
	profiled := r.profile(ctx, c, f.urls[0])
	began := time.Now()
	waits, err := l.run(ctx, c.conversations, n)
	if err != nil {
		return res, err
	}
	took := time.Since(began)
	after, err := r.meter(f)
	if err != nil {
		return res, err
	}
	total, err := f.commits(ctx, r.client)
	err = errors.Join(err, <-profiled)
	slices.Sort(waits)
	return result{prompts: n, took: took, waits: waits, used: after.since(before), commits: total - commits}, err
}

// profile writes what a server does for three seconds to a file, if that is wanted.
// It sends one error when it has.
func (r *rig) profile(ctx context.Context, c cell, server string) <-chan error {
	done := make(chan error, 1)
	if r.profiles == "" {
		done <- nil
		return done
	}
	go func() {
		profile, err := fetch(ctx, r.client, server+"/debug/pprof/profile?seconds=3")
		if err == nil {
			name := fmt.Sprintf("%s-%d-%d.pprof", c.kind, c.conversations, c.replicas)
			err = os.WriteFile(filepath.Join(r.profiles, name), []byte(profile), 0o600)
		}
		done <- err
	}()
	return done
}
