//go:build unix

package storm

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/tuskqueue/tusk"
)

// These handlers harm their processes. Each says so first, so that such an end can be told from others.

func (h *hands) exit(_ context.Context, t *tusk.Task[load]) error {
	if t.Crashes == 0 {
		die(t)
	}
	return nil
}

func (h *hands) killer(_ context.Context, t *tusk.Task[load]) error {
	die(t)
	return nil
}

func die(t *tusk.Task[load]) {
	fmt.Fprintln(os.Stderr, deadly+t.Kind, t.ID)
	os.Exit(1)
}

func (h *hands) overflow(_ context.Context, t *tusk.Task[load]) error {
	if t.Crashes == 0 {
		fmt.Fprintln(os.Stderr, deadly+t.Kind, t.ID)
		debug.SetMaxStack(1 << 20)
		_ = deeper(0)
	}
	return nil
}

func deeper(n int) int {
	if n < 0 {
		return n
	}
	return deeper(n+1) + 1
}

// starve limits the memory of its process to what it has, and then allocates more.
func (h *hands) starve(_ context.Context, t *tusk.Task[load]) error {
	if t.Crashes > 0 {
		return nil
	}
	fmt.Fprintln(os.Stderr, deadly+t.Kind, t.ID)
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		return err
	}
	var all [][]byte
	for len(all) < 1<<20 {
		all = append(all, make([]byte, 64<<20))
	}
	return fmt.Errorf("there is no end to memory: %d", len(all))
}

// deaf takes longer than its timeout, and ignores its context.
func (h *hands) deaf(_ context.Context, t *tusk.Task[load]) error {
	if t.Attempt == 1 {
		time.Sleep(4 * time.Second)
	}
	return nil
}
