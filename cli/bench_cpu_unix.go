//go:build unix

package cli

import (
	"syscall"
	"time"
)

// processCPU returns the CPU time that this process has used, or 0 if it is unknown.
func processCPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
