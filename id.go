package tusk

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// ID names a task: a UUID, version 7.
type ID = store.ID

// NewID mints an id. Ids of one process grow from one to the next.
func NewID() ID { return ids.mint(time.Now()) }

// ParseID reads an id. No task has the id of zeros: in a filter it stands for all.
func ParseID(text string) (ID, error) {
	id, err := store.ParseID(text)
	if err == nil && id.IsZero() {
		err = errors.New("the id of no task")
	}
	if err != nil {
		return id, invalid("id", "invalid_id", "%q is %v", cutText(text), err)
	}
	return id, nil
}

// block gives the tasks of one call ids that follow one another, 256 at a time, so that
// an engine can keep them together.
type block struct {
	first ID
	given int
}

func (b *block) next() ID {
	if b.given%256 == 0 {
		b.first = NewID()
	}
	id := b.first
	id[len(id)-1] = byte(b.given)
	b.given++
	return id
}

var ids minter

// minter mints ids: 48 bits of milliseconds, 12 bits of their fraction, and 62 random
// bits, which are fetched for many ids at once.
type minter struct {
	mu      sync.Mutex
	last    int64 // milliseconds and fraction
	entropy [2048]byte
	left    int // bytes of it that were not used
}

func (m *minter) mint(at time.Time) (id ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ns := at.UnixNano()
	m.last = max(m.last+1, ns/1e6<<12|ns%1e6>>8)
	if m.left == 0 {
		rand.Read(m.entropy[:]) // never fails, as its documentation promises
		m.left = len(m.entropy)
	}
	random := binary.BigEndian.Uint64(m.entropy[m.left-8:])
	m.left -= 8
	binary.BigEndian.PutUint64(id[:], uint64(m.last>>12)<<16|7<<12|uint64(m.last&0xfff))
	binary.BigEndian.PutUint64(id[8:], 2<<62|random>>2)
	return id
}
