package ledgers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A task lives in the ledger that
//
//   - its key names, whatever its queue is, so that the key is in one place and the task may
//     be moved to another queue; the tasks of schedules live at home, with their schedule;
//   - its workflow names, so that what it needs is beside it;
//   - the first task that it needs lives in;
//   - its queue names, if that is pinned;
//   - its id names, if none of these counts.
//
// Tasks of one call that could live anywhere live together. What an outcome brings lives
// beside the task that ended. So an id says where its task is likely to be; whoever does
// not find it there asks all ledgers.

// byID is the ledger that an id names. All ids of a block of 256 name the same one.
func byID(id store.ID, of int) int {
	return int(binary.BigEndian.Uint64(id[8:]) >> 8 % uint64(of))
}

// byText is the ledger that some text names. It never changes for a number of ledgers.
func byText(of int, parts ...string) int {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	sum := h.Sum64()
	return int((sum ^ sum>>32) % uint64(of))
}

// fixed is the ledger in which a task has to live; false: it may live anywhere.
func (s *Store) fixed(n *store.NewTask, of int) (int, bool) {
	switch {
	case strings.HasPrefix(n.Key, store.ScheduleKeys):
		return 0, true
	case n.Key != "":
		return byText(of, n.Tenant, n.Key), true
	case !n.Workflow.IsZero():
		return byText(of, string(n.Workflow[:])), true
	case s.pinned(n.Queue) && len(n.Needs) == 0:
		return byText(of, n.Queue), true
	}
	return 0, false
}

// placed are the ledgers of the tasks of a call.
type placed struct {
	at   []int
	free bool // all of them may live elsewhere as well
}

// together reports whether one ledger has all of them.
func (p *placed) together() bool {
	return !slices.ContainsFunc(p.at, func(i int) bool { return i != p.at[0] })
}

// errSpread refuses a task that needs others of another ledger.
var errSpread = fmt.Errorf("%w: a task and those that it needs have to live in one ledger: "+
	"give them one workflow, and no keys", store.ErrUnsupported)

// placesOf says where the tasks of a call live.
func (s *Store) placesOf(ctx context.Context, all []*ledger, tasks []store.NewTask) (*placed, error) {
	p := &placed{at: make([]int, len(tasks)), free: true}
	anywhere, needing := byID(tasks[0].ID, len(all)), false
	for i := range tasks {
		at, fixed := s.fixed(&tasks[i], len(all))
		p.at[i] = at
		if needing = needing || len(tasks[i].Needs) > 0; fixed && p.free {
			anywhere, p.free = at, false
		}
		if !fixed {
			p.at[i] = -1
		}
	}
	if needing {
		p.free = false
		if err := s.besideNeeds(ctx, all, tasks, p.at, anywhere); err != nil {
			return nil, err
		}
	}
	for i := range p.at {
		if p.at[i] < 0 {
			p.at[i] = anywhere
		}
	}
	return p, nil
}

// besideNeeds places tasks beside those that they need, and fails where these are apart.
func (s *Store) besideNeeds(ctx context.Context, all []*ledger, tasks []store.NewTask, at []int, anywhere int) error {
	parents, err := s.placesOfNeeds(ctx, all, tasks)
	if err != nil {
		return err
	}
	own := map[store.ID]int{}
	for i := range tasks {
		for _, need := range tasks[i].Needs {
			parent, known := own[need.Task]
			if !known {
				if parent, known = parents[need.Task]; !known {
					continue // it does not exist
				}
			}
			if at[i] < 0 {
				at[i] = parent
			}
			if at[i] != parent {
				return errSpread
			}
		}
		if at[i] < 0 {
			at[i] = anywhere
		}
		own[tasks[i].ID] = at[i]
	}
	return nil
}

// placesOfNeeds says where the tasks are that some need, but for those of the same call.
func (s *Store) placesOfNeeds(ctx context.Context, all []*ledger, tasks []store.NewTask) (map[store.ID]int, error) {
	earlier := map[store.ID]bool{}
	var ids []store.ID
	for i := range tasks {
		for _, n := range tasks[i].Needs {
			if !earlier[n.Task] {
				ids = append(ids, n.Task)
			}
		}
		earlier[tasks[i].ID] = true
	}
	return s.whereAre(ctx, all, ids)
}

// whereAre says in which ledgers tasks are, of those that exist.
func (s *Store) whereAre(ctx context.Context, all []*ledger, ids []store.ID) (map[store.ID]int, error) {
	found := map[store.ID]int{}
	err := inStages(all, ids, func(l *ledger, ids []store.ID) (left []store.ID, err error) {
		tasks, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			return listByID(ctx, e, store.Filter{IDs: ids})
		})
		for i := range tasks {
			found[tasks[i].ID] = l.no
		}
		return slices.DeleteFunc(slices.Clone(ids), func(id store.ID) bool { _, is := found[id]; return is }), err
	})
	return found, err
}

// listByID lists tasks by their ids, however many.
func listByID(ctx context.Context, e *postgres.Store, f store.Filter) (tasks []store.Task, err error) {
	for part := range slices.Chunk(f.IDs, store.MaxPage) {
		page := f
		page.IDs, page.Limit = part, store.MaxPage
		found, err := e.List(ctx, page)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, found...)
	}
	return tasks, nil
}

// inStages asks for each id first the ledger that it names, and for what that does not
// know all others, one after the other. It goes on where a ledger fails.
func inStages(all []*ledger, ids []store.ID, look func(l *ledger, ids []store.ID) (left []store.ID, err error)) error {
	named := make([][]store.ID, len(all))
	for _, id := range ids {
		no := byID(id, len(all))
		named[no] = append(named[no], id)
	}
	var failed error
	left := make([][]store.ID, len(all)) // of those that name a ledger
	for no, part := range named {
		if len(part) == 0 {
			continue
		}
		var err error
		if left[no], err = look(all[no], part); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	for no, l := range all {
		var part []store.ID
		for other := range left {
			if other != no {
				part = append(part, left[other]...)
			}
		}
		if len(part) == 0 {
			continue
		}
		rest, err := look(l, part)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for other := range left {
			if other != no {
				left[other] = slices.DeleteFunc(left[other], func(id store.ID) bool { return !slices.Contains(rest, id) })
			}
		}
	}
	return failed
}
