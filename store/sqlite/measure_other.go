//go:build !unix

package sqlite

import "time"

// processorTime returns -1, because this system does not report it.
func processorTime() time.Duration { return -1 }
