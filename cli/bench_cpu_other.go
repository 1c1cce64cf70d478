//go:build !unix

package cli

import "time"

// processCPU returns 0: this system does not report the CPU time of a process.
func processCPU() time.Duration { return 0 }
