package archive

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// Variables that make the test binary a process that works on the archive of a folder until it is killed.
const (
	archiveEnv = "TUSK_TEST_ARCHIVE_CHILD" // archives what has ended
	changeEnv  = "TUSK_TEST_ARCHIVE_ERASE" // erases and restores what was requested, and prunes
)

// TestMain lets the test binary be such a process.
func TestMain(m *testing.M) {
	for env, work := range map[string]func(*Runner, context.Context) error{
		archiveEnv: func(r *Runner, ctx context.Context) error { _, err := r.Step(ctx); return err },
		changeEnv:  (*Runner).tend,
	} {
		if dir := os.Getenv(env); dir != "" {
			fmt.Println(workForever(dir, work))
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func workForever(dir string, work func(*Runner, context.Context) error) error {
	s, err := sqlitefile.Open(context.Background(), filepath.Join(dir, "tusk.db"))
	if err != nil {
		return err
	}
	b, err := fileblob.OpenBucket(filepath.Join(dir, "archive"), folder)
	if err != nil {
		return err
	}
	r, err := NewRunner(optionsFor(s, b, filepath.Join(dir, "spool")))
	for err == nil {
		err = work(r, context.Background())
	}
	return err
}

// onDisk makes a folder with a database and an archive, on which other processes can work.
func onDisk(t *testing.T) (dir string, s store.Store, b *blob.Bucket) {
	t.Helper()
	dir = t.TempDir()
	for _, sub := range []string{"archive", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := sqlitefile.Open(t.Context(), filepath.Join(dir, "tusk.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	if m, ok := store.As[store.Migrator](opened); ok {
		if _, err := m.Migrate(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
	}
	if b, err = fileblob.OpenBucket(filepath.Join(dir, "archive"), folder); err != nil {
		t.Fatal(err)
	}
	return dir, opened, b
}

// startOn starts a process that works on a folder, and returns what kills it.
func startOn(t *testing.T, dir, env string) (kill func()) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), env+"="+dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
}
