package sqlite

import "sync"

// name is the queue and kind of a row of tusk_kind.
type name struct{ queue, kind string }

// kinds caches the rows of tusk_kind, which never change. Rows that a transaction has added are cached only after its
// commit.
type kinds struct {
	mu     sync.RWMutex
	ledger int64 // the random number of the ledger they belong to
	ids    map[name]int64
	names  map[int64]name
}

func newKinds() *kinds {
	return &kinds{ids: map[name]int64{}, names: map[int64]name{}}
}

// belong clears the cache if the schema was dropped and created again.
func (k *kinds) belong(ledger int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ledger != ledger {
		k.ledger = ledger
		clear(k.ids)
		clear(k.names)
	}
}

func (k *kinds) id(n name) (int64, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	id, ok := k.ids[n]
	return id, ok
}

func (k *kinds) name(id int64) (name, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n, ok := k.names[id]
	return n, ok
}

func (k *kinds) add(fresh map[name]int64) {
	if len(fresh) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for n, id := range fresh {
		k.ids[n], k.names[id] = id, n
	}
}
