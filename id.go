package tusk

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// ID identifies a task. It is a UUID, version 7.
type ID = store.ID

// NewID generates an id. The ids of one process are strictly increasing.
func NewID() ID { return ids.mint(time.Now()) }

// ParseID parses an id. It rejects the zero id, which no task has and which means all tasks in a filter.
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

// block gives the tasks of one call consecutive ids, 256 at a time, so that an engine can store them together.
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

// minter generates ids: 48 bits of milliseconds, 12 bits of their fraction, and 62 random bits, which are read for
// many ids at once.
type minter struct {
	mu      sync.Mutex
	last    int64 // milliseconds and fraction
	entropy [2048]byte
	left    int // unused bytes of it
}

func (m *minter) mint(at time.Time) (id ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ns := at.UnixNano()
	m.last = max(m.last+1, ns/1e6<<12|ns%1e6>>8)
	if m.left == 0 {
		rand.Read(m.entropy[:]) // never fails, according to its documentation
		m.left = len(m.entropy)
	}
	random := binary.BigEndian.Uint64(m.entropy[m.left-8:])
	m.left -= 8
	binary.BigEndian.PutUint64(id[:], uint64(m.last>>12)<<16|7<<12|uint64(m.last&0xfff))
	binary.BigEndian.PutUint64(id[8:], 2<<62|random>>2)
	return id
}
