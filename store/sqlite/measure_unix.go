//go:build unix

package sqlite

import (
	"syscall"
	"time"
)

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return -1
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
