package storm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// disk is a file system that loses unsynced data when its power is cut: ext4 in a file. Only root can mount it.
type disk struct{ image, dir string }

func newDisk(t *testing.T) (*disk, error) {
	t.Helper()
	home, err := os.MkdirTemp("", "tusk-disk-")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	d := &disk{filepath.Join(home, "image"), filepath.Join(home, "disk")}
	if err := os.Chmod(home, 0o755); err != nil { // servers run as other users
		return nil, err
	}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		return nil, err
	}
	if err := order("truncate", "-s", "6G", d.image); err != nil {
		return nil, err
	}
	if err := order("mkfs.ext4", "-q", "-F", d.image); err != nil {
		return nil, err
	}
	if err := d.mount(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := d.unmount(); err != nil {
			t.Errorf("the disk stays: %v", err)
		}
	})
	return d, nil
}

func order(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (d *disk) mount() error { return order("mount", "-o", "loop", d.image, d.dir) }

// unmount kills the processes that still use the disk, as a power loss would, and waits until no file is open.
func (d *disk) unmount() error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		d.signalUsers(syscall.SIGKILL)
		err := syscall.Unmount(d.dir, 0)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// The ioctl that stops ext4 at once and leaves its journal as it is.
const (
	goDown      = 0x8004587d
	withoutSync = 2
)

// cut prevents all further writes, including data that still waits in memory. It stops the servers first: without
// power none of them could answer.
func (d *disk) cut() error {
	d.signalUsers(syscall.SIGSTOP)
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	how := uint32(withoutSync)
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), goDown, uintptr(unsafe.Pointer(&how))); e != 0 {
		return fmt.Errorf("cut the power of a file system: %w", e)
	}
	return nil
}

// settle syncs what is on the disk, because tests create servers without syncing.
func (d *disk) settle() error { return order("sync", "-f", d.dir) }

// keep syncs the database files that match a pattern.
func (d *disk) keep(pattern string) error {
	files, err := filepath.Glob(filepath.Join(d.dir, "*", "data", "*", pattern))
	if err != nil || len(files) == 0 {
		return err
	}
	return order("sync", files...)
}

// restore remounts the disk with what it kept, after its users have ended.
func (d *disk) restore() error {
	if err := d.unmount(); err != nil {
		return err
	}
	return d.mount()
}

// signalUsers sends a signal to the processes whose working directory is on the disk, as a server's is.
func (d *disk) signalUsers(signal syscall.Signal) {
	folders, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is valid
	for _, folder := range folders {
		at, err := os.Readlink(folder)
		if pid, is := strconv.Atoi(filepath.Base(filepath.Dir(folder))); err == nil && is == nil &&
			strings.HasPrefix(at, d.dir+"/") {
			syscall.Kill(pid, signal) // it may have ended by itself
		}
	}
}

// TestADiskThatLosesItsPowerForgetsWhatWasNotSynced checks the disk itself: a disk that keeps everything would prove
// nothing.
func TestADiskThatLosesItsPowerForgetsWhatWasNotSynced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	d, err := newDisk(t)
	if err != nil {
		t.Skipf("no disk whose power can be cut: %v", err)
	}
	for name, sync := range map[string]bool{"kept": true, "lost": false} {
		f, err := os.Create(filepath.Join(d.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString("text")
		if sync {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
	}
	f, err := os.OpenFile(filepath.Join(d.dir, "kept"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(", and more")
	f.Close()
	if err := d.cut(); err != nil {
		t.Fatal(err)
	}
	if err := d.restore(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(d.dir, "kept")); err != nil || string(text) != "text" {
		t.Errorf("what was synced: %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(d.dir, "lost")); err == nil && len(text) > 0 {
		t.Errorf("what was not synced is there: %q", text)
	}
}
