package mysql_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// If one task needs many, their ends read all its needs once, and not once for each end.
func TestTheEndsOfThoseThatOneNeedsReadItsNeedsOnce(t *testing.T) {
	const parents, ended = 2000, 200
	s := fresh(t)
	worker, tasks, child := startWorker(t, s), newTasks(parents, "q"), newTasks(1, "q")
	enqueue(t, s, tasks...)
	for i := range tasks {
		child[0].Needs = append(child[0].Needs, store.Need{Task: tasks[i].ID})
	}
	enqueue(t, s, child...)
	first := claim(t, s, worker, ended)
	before := rowsRead(t, s)
	finish(t, s, first)
	if read := rowsRead(t, s) - before; read > 10*parents {
		t.Errorf("the ends of %d tasks read %d rows", ended, read)
	}
	for of := claim(t, s, worker, parents); len(of) > 0; of = claim(t, s, worker, parents) {
		finish(t, s, of) // the last is the one that needs all others
	}
	found, err := s.List(t.Context(), store.Filter{IDs: []store.ID{child[0].ID}})
	if err != nil || len(found) != 1 || found[0].State != store.Completed {
		t.Errorf("%v: %v", found, err)
	}
}
