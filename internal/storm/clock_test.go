//go:build unix

package storm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// instant returns the machine's time in nanoseconds, even in a process whose own clock is wrong.
func instant() int64 {
	var t syscall.Timeval
	if err := syscall.Gettimeofday(&t); err != nil {
		panic(err) // cannot happen
	}
	return t.Nano()
}

// clock is a server's clock, which libfaketime can set wrong.
type clock struct {
	preload string // what the server loads before anything else
	file    string
	mu      sync.Mutex
	ahead   time.Duration
}

func newClock(dir string) (*clock, error) {
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1") // the pattern is valid
	if len(found) == 0 {
		return nil, errors.New("libfaketime is not installed")
	}
	waits := filepath.Join(dir, "epoll.so")
	compile := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", waits, "testdata/epoll.c")
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	c := &clock{preload: waits + " " + found[0], file: filepath.Join(dir, "clock")}
	return c, c.set(0)
}

// environment returns the environment variables that give a server this clock. File times are not faked: for that,
// libfaketime takes a semaphore that all processes of the server share, and if a backend is killed while it holds the
// semaphore, all others wait forever.
func (c *clock) environment() map[string]string {
	return map[string]string{
		"LD_PRELOAD":                   c.preload,
		"FAKETIME_TIMESTAMP_FILE":      c.file,
		"FAKETIME_CACHE_DURATION":      "1",
		"FAKETIME_DONT_FAKE_MONOTONIC": "1",
		"NO_FAKE_STAT":                 "1",
	}
}

// set sets how far the clock is ahead of the machine's. The server notices within a second.
func (c *clock) set(ahead time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
	next := c.file + ".next"
	if err := os.WriteFile(next, []byte(fmt.Sprintf("%+d\n", int64(ahead/time.Second))), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file)
}

func (c *clock) get() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// with runs a function with other values in the environment, for the programs that it starts.
func with(environment map[string]string, do func() error) error {
	for name, value := range environment {
		if before, was := os.LookupEnv(name); was {
			defer os.Setenv(name, before)
		} else {
			defer os.Unsetenv(name)
		}
		os.Setenv(name, value)
	}
	return do()
}

// forgetClocks removes files of libfaketime that killed processes have left.
func forgetClocks() {
	left, _ := filepath.Glob("/dev/shm/faketime_shm_*") // the pattern is valid
	for _, file := range left {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(file), "faketime_shm_"))
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			os.Remove(file)
			os.Remove(filepath.Join(filepath.Dir(file), "sem.faketime_sem_"+strconv.Itoa(pid)))
		}
	}
}
