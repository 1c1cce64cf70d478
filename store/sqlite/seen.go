package sqlite

import (
	"sync"

	"github.com/tuskqueue/tusk/store"
)

// seen is what the leader remembers of its last look at who waits for turns. What rows of tusk_turn stand for is
// true until they are pruned, which is what the leader does, too: a term is of one process. Where tasks stand
// decides nothing: a grant finds them only while they stand there.
type seen struct {
	mu     sync.Mutex
	ledger int64
	pruned int64 // how often rows may have gone
	memory
}

// memory is what one look has to go by, or has found.
type memory struct {
	term, pruned int64
	names        map[int64]turn
	groups       int                // in which somebody waited
	lined        map[store.ID]lined // who did, if they were read one by one
}

// lined is a task in line.
type lined struct{ num, turn, priority, place int64 }

// begin returns what a look may go by; without a term nothing.
func (s *seen) begin(term int64) memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term == 0 || s.memory.term != term || s.memory.pruned != s.pruned || s.names == nil {
		return memory{term: term, pruned: s.pruned, groups: s.groups, names: map[int64]turn{}}
	}
	return s.memory
}

// learn remembers what a look has found.
func (s *seen) learn(l *look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = l.seen
}

// belong forgets everything when the schema was taken down and up again.
func (s *seen) belong(ledger int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger != ledger {
		s.ledger = ledger
		s.pruned++
	}
}

// prune is said before rows of tusk_turn go, and after.
func (s *seen) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruned++
}

// find returns where a task stood, and in whose line.
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
