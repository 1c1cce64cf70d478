package sqlite

import (
	"fmt"
	"os"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// inPlace fails if the path does not lead to the file that was opened. SQLite keeps writing to a file that was
// deleted or renamed, and the next process that opens the path begins another database.
func (s *Store) inPlace() error {
	now, err := os.Stat(s.path)
	if err == nil && os.SameFile(now, s.file) {
		return nil
	}
	return fmt.Errorf("%w: the file %s was moved, deleted or replaced while in use: stop every process, put the file "+
		"back, start again", store.ErrUnavailable, s.path)
}

// placeEvery is how often the writer checks whether the file is in its place, and how often readers do.
const placeEvery = time.Second

// readsInPlace is inPlace for a reader. A reader that opens the path always checks: it would create an empty file, or
// read another database. All others share a check.
func (s *Store) readsInPlace(opens bool) error {
	if !opens && time.Since(time.Unix(0, s.looked.Load())) < placeEvery {
		return nil
	}
	err := s.inPlace()
	if err == nil {
		s.looked.Store(time.Now().UnixNano())
	}
	return err
}

// inPlace is the store's inPlace, if a check is due.
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
