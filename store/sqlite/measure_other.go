//go:build !unix

package sqlite

import "time"

// processorTime cannot be told on this system.
func processorTime() time.Duration { return -1 }
