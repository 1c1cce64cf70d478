package sqlite

import (
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// seen is what the leader remembers from its last read of the tasks that wait for turns. The queue, tenant and
// partition of a row of tusk_turn do not change until the row is pruned, which the leader also does: only one process
// has a given term. Where tasks stand does not decide anything, because a grant finds them only while they stand
// there.
type seen struct {
	mu     sync.Mutex
	ledger int64
	pruned int64 // how often rows may have been deleted
	memory
}

// memory is what a read can use, or has found.
type memory struct {
	term, pruned int64
	names        map[int64]turn
	groups       int                // the number of groups in which tasks waited
	lined        map[store.ID]lined // the tasks that waited, if they were read one by one
}

// lined is a task that waits for its turn.
type lined struct{ num, turn, priority, place int64 }

// begin returns what a read can use. Without a term that is nothing.
func (s *seen) begin(term int64) memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term == 0 || s.memory.term != term || s.memory.pruned != s.pruned || s.names == nil {
		return memory{term: term, pruned: s.pruned, groups: s.groups, names: map[int64]turn{}}
	}
	return s.memory
}

// learn remembers what a read has found.
func (s *seen) learn(l *look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = l.seen
}

// belong forgets everything if the schema was dropped and created again.
func (s *seen) belong(ledger int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger != ledger {
		s.ledger = ledger
		s.pruned++
	}
}

// prune must be called before and after rows of tusk_turn are deleted.
func (s *seen) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruned++
}

// find returns where a task stood, and in which line.
func (s *seen) find(id store.ID, term int64) (at lined, of turn, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory.term != term || s.memory.pruned != s.pruned {
		return at, of, false
	}
	at = s.lined[id]
	of, known = s.names[at.turn]
	return at, of, known
}
