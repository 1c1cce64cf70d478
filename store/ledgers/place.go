package ledgers

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A task is stored in the ledger given by the first of these that applies:
//
//   - its key, whatever its queue, so that the key is in one place and the task can be moved to another queue. Keys
//     stay divided among the first ledgers. Keys of schedules belong to home, where the schedules are;
//   - its workflow, so that the tasks that it needs are in the same ledger;
//   - the first task that it needs;
//   - its queue, if that is pinned;
//   - its id.
//
// Tasks of one call that can be stored anywhere are stored together. A task that comes with an outcome is stored with
// the task that ended, unless it has a key. The tasks that it needs can be in any ledger (far.go). So an id is only a
// hint: if the task is not in the ledger that its id gives, all ledgers are asked.

// byID returns the ledger that an id gives. All ids in a block of 256 give the same one.
func byID(id store.ID, of int) int {
	return int(binary.BigEndian.Uint64(id[8:]) >> 8 % uint64(of))
}

// byText returns the ledger that a text gives. For a given number of ledgers, it never changes.
func byText(of int, parts ...string) int {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	sum := h.Sum64()
	return int((sum ^ sum>>32) % uint64(of))
}

// fixed returns the ledger that a task belongs in, or false if it can be stored anywhere.
func (s *Store) fixed(n *store.NewTask, of int) (int, bool) {
	switch {
	case strings.HasPrefix(n.Key, store.ScheduleKeys):
		return 0, true
	case n.Key != "":
		return byText(s.keys(), n.Tenant, n.Key), true
	case !n.Workflow.IsZero():
		return byText(of, string(n.Workflow[:])), true
	case s.pinned(n.Queue) && len(n.Needs) == 0:
		return byText(s.keys(), n.Queue), true
	}
	return 0, false
}

// placed is the result of placing the tasks of a call.
type placed struct {
	at   []int
	free bool // all of them can be stored anywhere

	// Only set if tasks have needs: what each ledger has to be told about tasks in others first, and the round in which
	// each task is stored, so that needed tasks are stored before those that need them.
	far   [][]postgres.Elsewhere
	round []int
}

// together reports whether all tasks are placed in one ledger.
func (p *placed) together() bool {
	return !slices.ContainsFunc(p.at, func(i int) bool { return i != p.at[0] })
}

// rounds returns the number of rounds in which the tasks are stored.
func (p *placed) rounds() int {
	if len(p.round) == 0 {
		return 1
	}
	return slices.Max(p.round) + 1
}

// part returns the indexes of the tasks that a ledger stores in a round.
func (p *placed) part(no, round int) (index []int) {
	for i, at := range p.at {
		if at == no && (len(p.round) == 0 || p.round[i] == round) {
			index = append(index, i)
		}
	}
	return index
}

// sight finds tasks that others are about to need. The result lacks tasks that do not exist.
type sight func(ctx context.Context, all []*ledger, ids []store.ID) (map[store.ID]spot, error)

// placesOf places the tasks of a call.
func (s *Store) placesOf(ctx context.Context, all []*ledger, tasks []store.NewTask) (*placed, error) {
	return s.placesFrom(ctx, all, tasks, byID(tasks[0].ID, len(all)), nil, s.parentsOf)
}

// placesFrom is placesOf with the ledger for tasks that can be stored anywhere, and the ledgers in which a task may be
// placed because of its needs; nil means all.
func (s *Store) placesFrom(
	ctx context.Context, all []*ledger, tasks []store.NewTask, anywhere int, near []int, parents sight,
) (*placed, error) {
	p, needing := &placed{at: make([]int, len(tasks)), free: true}, false
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
		known, err := parents(ctx, all, needsOf(tasks))
		if err == nil {
			p.besideNeeds(len(all), tasks, known, anywhere, near)
		}
		return p, err
	}
	for i := range p.at {
		if p.at[i] < 0 {
			p.at[i] = anywhere
		}
	}
	return p, nil
}

// besideNeeds places tasks with the first task that they need, unless they are placed already, and records needs across
// ledgers.
func (p *placed) besideNeeds(
	of int, tasks []store.NewTask, parents map[store.ID]spot, anywhere int, near []int,
) {
	p.far, p.round = make([][]postgres.Elsewhere, of), make([]int, len(tasks))
	own, last := map[store.ID]int{}, make([]int, of)
	for i := range tasks {
		for _, need := range tasks[i].Needs {
			parent, known := parents[need.Task]
			if j, is := own[need.Task]; is {
				parent, known = spot{no: p.at[j]}, true
			}
			if known && p.at[i] < 0 && (near == nil || slices.Contains(near, parent.no)) {
				p.at[i] = parent.no
			}
		}
		if p.at[i] < 0 {
			p.at[i] = anywhere
		}
		at := p.at[i]
		for _, need := range tasks[i].Needs {
			if j, is := own[need.Task]; is {
				if p.at[j] != at {
					last[at] = max(last[at], p.round[j]+1)
					p.far[at] = append(p.far[at], postgres.Elsewhere{ID: need.Task, State: store.Pending})
				}
			} else if parent, known := parents[need.Task]; known && parent.no != at {
				p.far[at] = append(p.far[at], postgres.Elsewhere{ID: need.Task, State: parent.state})
			}
		}
		p.round[i] = last[at]
		own[tasks[i].ID] = i
	}
}

// needsOf returns the tasks that others need, except for tasks of the same call.
func needsOf(tasks []store.NewTask) (ids []store.ID) {
	earlier := map[store.ID]bool{}
	for i := range tasks {
		for _, n := range tasks[i].Needs {
			if !earlier[n.Task] {
				ids = append(ids, n.Task)
			}
		}
		earlier[tasks[i].ID] = true
	}
	return ids
}

// spot is a task's ledger and state.
type spot struct {
	no    int
	state store.State
}

// whereAre finds tasks. If it returns no error, the tasks missing from the result do not exist.
func (s *Store) whereAre(ctx context.Context, all []*ledger, ids []store.ID) (map[store.ID]spot, error) {
	found := map[store.ID]spot{}
	slices.SortFunc(ids, compareIDs)
	ids = slices.Compact(ids)
	err := inStages(all, ids, func(l *ledger, ids []store.ID) (left []store.ID, err error) {
		tasks, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			return listByID(ctx, e, store.Filter{IDs: ids, NoArgs: true})
		})
		for i := range tasks {
			found[tasks[i].ID] = spot{l.no, tasks[i].State}
		}
		return notIn(ids, found), err
	})
	if err == nil && len(found) < len(ids) {
		err = s.complete(ctx, all)
	}
	return found, err
}

// listByID lists any number of tasks by their ids.
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

// inStages asks for each id the ledger that it gives, and then, for ids that are left, the other ledgers in turn. It
// continues if a ledger fails.
func inStages(all []*ledger, ids []store.ID, look func(l *ledger, ids []store.ID) (left []store.ID, err error)) error {
	named := make([][]store.ID, len(all))
	for _, id := range ids {
		no := byID(id, len(all))
		named[no] = append(named[no], id)
	}
	var failed error
	left := make([][]store.ID, len(all)) // by the ledger that the ids give
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
