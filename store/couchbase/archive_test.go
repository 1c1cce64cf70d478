package couchbase

import (
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// walk walks over everything that is due. It returns how often it got each task, and the size of the largest page.
func (r *rig) walk(limit int) (seen map[store.ID]int, largest int) {
	r.Helper()
	seen = map[store.ID]int{}
	for from := ""; ; {
		due, err := r.b.Due(r.ctx(), store.Retention{Completed: time.Microsecond}, from, limit)
		r.must("due", err)
		for i := range due.Tasks {
			seen[due.Tasks[i].ID]++
		}
		largest = max(largest, len(due.Tasks))
		if from = due.Next; from == "" {
			return seen, largest
		}
	}
}

// A row of the index may be a sheet with more tasks than fit on a page. The next page begins with the rest.
func TestAWalkOfTheArchiverHandsOverAllTasksOfSheets(t *testing.T) {
	const sheets, size = 100, 64
	r := newRig(t, 1)
	for range sheets {
		r.add(r.alike(size)...)
		r.must("claim", r.lend(r.ctx(), size))
		var names []string
		for i := range size {
			names = append(names, fmt.Sprintf("s%d", i))
		}
		r.must("finish", r.finish(r.ctx(), r.plainly(names...)...))
	}
	time.Sleep(2 * time.Millisecond)
	for _, limit := range []int{100, store.MaxPage} {
		seen, largest := r.walk(limit)
		if len(seen) != sheets*size || largest >= limit+size {
			t.Errorf("limit %d: %d of %d tasks are handed over, up to %d in a page", limit, len(seen), sheets*size, largest)
		}
		for id, n := range seen {
			if n > 1 {
				t.Fatalf("limit %d: %v comes %d times", limit, id, n)
			}
		}
	}
}

// More tasks may have ended at one instant than a page holds. They come in one page.
func TestAnInstantIsHandedOverWhole(t *testing.T) {
	const many = store.MaxPage + 100
	r := newRig(t, 1)
	at := r.b.now(r.ctx())
	r.must("create", each(many, func(int) error {
		id := storetest.NewID().String()
		ended := &task{ID: id, Queue: "q", Kind: "k", State: "c", Finished: at, N: 1, Since: at, Written: at,
			Past: []past{{Number: 1, Ended: at, State: "c"}}}
		_, err := r.b.write(r.ctx(), &doc{ref: ref{inTask, id}, body: ended})
		return err
	}))
	time.Sleep(2 * time.Millisecond)
	if seen, largest := r.walk(10); len(seen) != many || largest != many {
		t.Errorf("%d of %d tasks are handed over, up to %d in a page", len(seen), many, largest)
	}
}
