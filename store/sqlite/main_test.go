package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or the part of a test that needs a process of its own.
func TestMain(m *testing.M) {
	if part := os.Getenv("TUSK_TEST_PART"); part != "" {
		os.Exit(parts[part](os.Getenv("TUSK_TEST_FILE")))
	}
	goleak.VerifyTestMain(m)
}
