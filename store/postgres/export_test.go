package postgres

import (
	"time"

	"github.com/tuskqueue/tusk/store"
)

// PingEvery lets a listener ask sooner whether it still hears.
func (s *Store) PingEvery(silence, within time.Duration) { s.pingEvery, s.pingWithin = silence, within }

// PackAll makes packs wherever there may be one.
func (s *Store) PackAll() { s.copyFrom, s.packLeast = 2, 2 }

// LookTime is after how long a search goes no further.
const LookTime = lookTime

// PackedCopy returns the data of a COPY of tasks, and its statement.
func (s *Store) PackedCopy(tasks []store.NewTask) (data []byte, text string) {
	data, name := appendCopy(nil, tasks, s.packLeast)
	return data, s.sql[name]
}
