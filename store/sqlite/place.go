package sqlite

import (
	"fmt"
	"os"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// inPlace fails if the path does not lead to the file that was opened. SQLite goes on writing to a file that has been
// deleted or renamed, and whoever opens the path then begins another database.
func (s *Store) inPlace() error {
	now, err := os.Stat(s.path)
	if err == nil && os.SameFile(now, s.file) {
		return nil
	}
	return fmt.Errorf("%w: the file %s was moved, deleted or replaced while in use: stop every process, put the file "+
		"back, start again", store.ErrUnavailable, s.path)
}

// placeEvery is how often the writer looks whether the file is in its place.
const placeEvery = time.Second

// inPlace is the store's inPlace, if a look is due.
func (w *writer) inPlace() error {
	if time.Since(w.looked) < placeEvery {
		return nil
	}
	err := w.store.inPlace()
	if err == nil {
		w.looked = time.Now()
	}
	return err
}
