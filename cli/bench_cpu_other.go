//go:build !unix

package cli

import "time"

// processCPU is the CPU time that this process has used; 0: it cannot be told.
func processCPU() time.Duration { return 0 }
