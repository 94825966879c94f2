package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// movedClock is a library that moves the clock of the program that loads it.
const movedClock = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t skew(void) { const char *s = getenv("PGTEST_SKEW"); return s ? atol(s) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
	static int (*real)(clockid_t, struct timespec *);
	if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
	int failed = real(clock, now);
	if (!failed && clock == CLOCK_REALTIME) now->tv_sec += skew();
	return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
	static int (*real)(struct timeval *, void *);
	if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
	int failed = real(now, zone);
	if (!failed) now->tv_sec += skew();
	return failed;
}
`

// Skew sets the server's clock ahead of that of all others by so many seconds, or
// behind it, and starts the server again. It reports false, and does nothing, where
// there is no C compiler to do that with; with FLUE_REQUIRE_ALL=1 the test fails.
func (s *Server) Skew(t testing.TB, by time.Duration) bool {
	t.Helper()
	source, library := filepath.Join(filepath.Dir(s.dir), "clock.c"), filepath.Join(filepath.Dir(s.dir), "clock.so")
	if err := os.WriteFile(source, []byte(movedClock), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		if os.Getenv("FLUE_REQUIRE_ALL") != "" {
			t.Fatalf("a C compiler is needed to give the database another clock: %v %s", err, out)
		}
		t.Logf("the database has the clock of all others: there is no C compiler to change that: %v", err)
		return false
	}
	s.env = append(os.Environ(), "LD_PRELOAD="+library, fmt.Sprintf("PGTEST_SKEW=%d", int64(by.Seconds())))
	s.Stop(t)
	s.Start(t)
	return true
}
