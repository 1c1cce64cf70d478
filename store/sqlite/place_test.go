package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

func TestAFileThatIsNotInItsPlaceTakesNoTasks(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"deleted": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tusk.db")
			s := open(t, path)
			if _, err := s.Migrate(t.Context(), -1); err != nil {
				t.Fatal(err)
			}
			lead, err := s.Lead(t.Context(), store.Candidate{ID: newID(), TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			db, err := sqlitefile.Pool(path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			in, err := s.Tx(tx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.Enqueue(t.Context(), newTasks(1)); err != nil {
				t.Fatal(err)
			}
			enqueue := func() error {
				_, err := s.Enqueue(t.Context(), []store.NewTask{{ID: newID(), Kind: "k", Queue: "default"}})
				return err
			}
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			refused := func(err error) bool {
				return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "put the file back")
			}
			if err := s.Maintain(t.Context(), lead.Term); !refused(err) {
				t.Errorf("maintain: %v", err)
			}
			if _, err := in.Enqueue(t.Context(), newTasks(1)); !refused(err) || !errors.Is(err, store.ErrNotCommitted) {
				t.Errorf("enqueue in a transaction that began before: %v", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				if _, err = s.Workers(t.Context()); err != nil || time.Now().After(end) {
					break
				}
			}
			if !refused(err) {
				t.Errorf("read: %v", err)
			}
			if _, err := os.Stat(path); name != "replaced" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a read has created another file: %v", err)
			}
			err = enqueue()
			for end := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(end); err = enqueue() {
				time.Sleep(50 * time.Millisecond)
			}
			if !refused(err) || !errors.Is(err, store.ErrNotCommitted) {
				t.Errorf("enqueue: %v", err)
			}
			if name == "moved" {
				if err := os.Rename(path+".old", path); err != nil {
					t.Fatal(err)
				}
				if err := enqueue(); err != nil {
					t.Errorf("with the file in its place again: %v", err)
				}
			}
		})
	}
}
