package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// onSmallDisk makes a store on a disk of 3 MiB.
func onSmallDisk(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("NOT TESTED: a small disk takes the right to mount one: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "tusk.db"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), db, Options{CloseDB: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAFullDiskIsToldAndTakesUpAgainWhenThereIsSpace(t *testing.T) {
	s := onSmallDisk(t)
	ballast := filepath.Join(filepath.Dir(s.path), "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	stored := 0
	add := func() error {
		_, err := s.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{1, byte(stored >> 8), byte(stored)}, Kind: "k",
			Queue: "q", Args: make([]byte, 10_000)}})
		if err == nil {
			stored++
		}
		return err
	}
	err := add()
	for ; err == nil; err = add() {
	}
	if !errors.Is(err, store.ErrFull) || !errors.Is(err, store.ErrNotCommitted) {
		t.Fatal(err)
	}
	for range 3 {
		if err := add(); !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := add(); err != nil {
		t.Fatal("with space again:", err)
	}
	counts, err := s.Count(t.Context())
	if err != nil || len(counts) != 1 || counts[0].Tasks != int64(stored) {
		t.Errorf("stored %d, counted %+v, %v", stored, counts, err)
	}
}

// TestAUsersTransactionThatAFullDiskEndedTakesNothingMore fills the disk within the transaction.
func TestAUsersTransactionThatAFullDiskEndedTakesNothingMore(t *testing.T) {
	s := onSmallDisk(t)
	if _, err := s.db.Exec("create table mine (a)"); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil; i++ {
		_, err = in.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{1, byte(i)}, Kind: "k", Queue: "q",
			Args: make([]byte, 100_000)}})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if _, err := tx.Exec("insert into mine values (0)"); !errors.Is(err, sql.ErrTxDone) {
		t.Error("a statement after that:", err)
	}
	var mine int
	if err := s.db.QueryRow("select count(*) from mine").Scan(&mine); err != nil || mine != 0 {
		t.Errorf("%d rows were committed by themselves, %v", mine, err)
	}
}

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	for magic, name := range map[int64]string{0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", fuse: "FUSE",
		0x19830326: "BeeGFS", 0x786f4256: "VirtualBox", 0xbacbacbc: "VMware", 0x7c7c6673: "Parallels"} {
		if err := localType("/x/tusk.db", magic); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// ext4, XFS, Btrfs, tmpfs, ZFS, overlay
	for _, magic := range []int64{0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x2fc12fc1, 0x794c7630} {
		if err := localType("/x/tusk.db", magic); err != nil {
			t.Error(err)
		}
	}
	if onBlockDevice("/") {
		t.Error("the root of this computer is no FUSE")
	}
}
