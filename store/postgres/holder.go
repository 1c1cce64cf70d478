package postgres

import (
	"cmp"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// holdersFor is how long holders are remembered. After a failover, the database may lack the last turns that this
// process has read.
const holdersFor = 10 * time.Second

// holders are the tasks that have their turn, as of a snapshot. The next round reads only what was added since.
type holders struct {
	mu    sync.Mutex
	began time.Time
	sum   int64   // the row of the latest sum
	seen  *string // the snapshot; nil if none
	tasks map[store.ID]holder
	held  map[turnGroup]int64
	last  int64 // the highest row that was read
	rows  int   // the number of rows that were read in addition to the sum
	many  bool  // many tasks were waiting in the last round, so only the first of each group are read
}

// holder is a task that has its turn, and the row of the table that gave it. For tasks of a sum the row is 0.
type holder struct {
	row int64
	of  turnGroup
}

type turnGroup struct{ queue, tenant, partition string }

func (g turnGroup) compare(other turnGroup) int {
	return cmp.Or(cmp.Compare(g.queue, other.queue), cmp.Compare(g.tenant, other.tenant),
		cmp.Compare(g.partition, other.partition))
}

// since returns the step that reads what was added since the last round. The caller holds the lock. After an error it
// must call forget, because the database may have been unavailable.
func (h *holders) since(s *Store) step {
	if h.seen == nil || time.Since(h.began) > s.holdersFor {
		h.forget()
	}
	first := true
	return s.do("turns_since", h.sum, h.seen).into(func(raw [][]byte) error {
		if anew := raw[1][0] != 0; anew && first {
			h.forget()
			h.sum = int64Of(raw[0])
		}
		now := string(raw[2])
		h.seen, first = &now, false
		h.take(raw[3:])
		return nil
	})
}

func (h *holders) forget() {
	h.began, h.sum, h.seen, h.last, h.rows = time.Now(), 0, nil, 0, 0
	h.tasks, h.held = map[store.ID]holder{}, map[turnGroup]int64{}
}

// take processes a row of turns that were given or given back. Rows come in order, except for those that commit late.
// A late row may give back a turn that has been given again since.
func (h *holders) take(raw [][]byte) {
	row, ids := int64Of(raw[0]), idsOf(raw[3])
	if len(ids) == 0 {
		return
	}
	if row > h.last {
		h.last = row
		h.rows++
	}
	if back := raw[1][0] != 0; back {
		for _, id := range ids {
			if had, has := h.tasks[id]; has && had.row < row {
				h.drop(id, had)
			}
		}
		return
	}
	tenants, partitions := textsOf(raw[4]), textsOf(raw[5])
	for i, id := range ids {
		if had, has := h.tasks[id]; has {
			h.drop(id, had)
		}
		of := turnGroup{string(raw[2]), tenants[i], partitions[i]}
		h.tasks[id] = holder{row, of}
		h.held[of]++
	}
}

func (h *holders) drop(id store.ID, had holder) {
	delete(h.tasks, id)
	if h.held[had.of]--; h.held[had.of] == 0 {
		delete(h.held, had.of)
	}
}
