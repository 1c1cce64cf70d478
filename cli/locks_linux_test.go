package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// To look at a file before it is opened took away the locks of a store that had it open in the same process.
func TestToCheckAFileLeavesTheLocksOfAnOpenStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s, err := sqlitefile.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	before := locksOn(t, path)
	if before == 0 {
		t.Fatal("an open store has no lock on its file, or /proc/locks does not show it")
	}
	if err := checkFile(path, false); err != nil {
		t.Fatal(err)
	}
	if after := locksOn(t, path); after < before {
		t.Errorf("%d locks are left of %d", after, before)
	}
}

// locksOn counts the locks on a file.
func locksOn(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(all), fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino))
}

func TestAFileThatIsNoDatabaseIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	status := Main([]string{"queues", "list", "--db", "sqlite:" + path}, strings.NewReader(""), &out, &errs, nil)
	if status != exitUsage || !strings.Contains(errs.String(), "is not an SQLite database") ||
		!strings.Contains(errs.String(), "name another file") {
		t.Errorf("status %d: %s", status, errs.String())
	}
}
