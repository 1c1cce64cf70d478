package archive

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
)

// A folder on a full disk keeps nothing of an object that does not fit.
func TestAFullDiskKeepsNoPartOfAnObject(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("NOT TESTED: a small disk takes the right to mount one: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	for _, prefix := range []string{"", "below/"} {
		bucket, err := fileblob.OpenBucket(dir, folder)
		if err != nil {
			t.Fatal(err)
		}
		if prefix != "" {
			bucket = blob.PrefixedBucket(bucket, prefix)
		}
		defer bucket.Close()
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 40<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		body := []byte(strings.Repeat("x", 30<<10))
		if err := put(t.Context(), bucket, "a/b/object", "text/plain", body); err == nil {
			t.Error("30 KiB fit into 24")
		}
		if there, err := bucket.Exists(t.Context(), "a/b/object"); there || err != nil {
			t.Errorf("a part of the object is there: %v, %v", there, err)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := put(t.Context(), bucket, "a/b/object", "text/plain", body); err != nil {
			t.Errorf("with space again: %v", err)
		}
		if got, err := bucket.ReadAll(t.Context(), "a/b/object"); string(got) != string(body) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := bucket.Delete(t.Context(), "a/b/object"); err != nil {
			t.Fatal(err)
		}
	}
}
