package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// line is what turns are grouped by.
type line struct{ queue, tenant, partition string }

// Turns implements store.Keeper.
func (s *Store) Turns(ctx context.Context, term int64, groups, heads int) (all []store.Turns, err error) {
	if !s.lines.any() {
		if ahead, err := s.peek(ctx, term); err != nil || !ahead.turns {
			return nil, wrap("turns", err)
		}
	}
	if term != 0 {
		s.stepping(ctx)
	}
	err = s.write(ctx, func(w *work) error {
		if err := w.leads(term); term != 0 && err != nil {
			return err
		}
		all, err = w.turns(groups, heads, term != 0)
		return err
	})
	if err != nil {
		return nil, wrap("turns", err)
	}
	return all, nil
}

// quickHeads is how many waiting tasks of a group are read together with the group. More of them cost an extra
// statement for each group that has so many.
const quickHeads = 4

func (w *work) turns(groups, heads int, sumUp bool) (all []store.Turns, err error) {
	held, err := w.holders(sumUp)
	if err != nil {
		return nil, err
	}
	if all, err = w.waiting(max(groups, 0), max(heads, 0)); err != nil {
		return nil, err
	}
	for i := range all {
		of := lineOf(all[i])
		all[i].Held = held[of]
		delete(held, of)
	}
	var others []store.Turns
	for of, n := range held {
		others = append(others, store.Turns{Queue: of.queue, Tenant: of.tenant, Partition: of.partition, Held: n})
	}
	slices.SortFunc(others, func(a, b store.Turns) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Partition, b.Partition))
	})
	return append(all, others...), nil
}

// waiting reads the waiting tasks by group: one by one if they are few compared with the number of groups last time,
// and otherwise in steps from group to group.
func (w *work) waiting(groups, heads int) (all []store.Turns, err error) {
	seen, err := w.fewWaiting(w.store.lines.few())
	many := len(seen) == 0
	if err == nil && many {
		all, seen, err = w.manyWaiting(groups, heads)
	} else if err == nil {
		all = groupsOf(seen, heads)
	}
	w.store.lines.learn(len(all), many && len(all) > 0, seen)
	return all[:min(groups, len(all))], err
}

// stands is what a process remembers from its last read of the tasks that wait for turns. It saves lookups and
// decides nothing: the lap of a task decides.
type stands struct {
	mu     sync.Mutex
	groups int
	// More tasks waited than are read one by one.
	many  bool
	tasks map[store.ID]*row // the waiting tasks that were read one by one

	// When it was last checked how the server finds groups, and when its statistics were last updated.
	planned, learned time.Time
}

func (s *stands) learn(groups int, many bool, seen []*row) {
	tasks := make(map[store.ID]*row, len(seen))
	for _, r := range seen {
		tasks[r.ID] = r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups, s.many, s.tasks = groups, many, tasks
}

// any reports whether any task waited.
func (s *stands) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups > 0
}

// few returns the maximum number of waiting tasks that count as few: a step to another group, and to each of its
// first tasks, takes as long as reading some rows.
func (s *stands) few() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 4*s.groups + 200
}

// find returns where a task stood, or nil if that is unknown.
func (s *stands) find(id store.ID) *row {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.tasks[id]; r != nil {
		own := *r // each transaction changes its own
		return &own
	}
	return nil
}

// fewWaiting reads all waiting tasks, if they are no more than most.
func (w *work) fewWaiting(most int) (few []*row, err error) {
	err = w.ask(func(rows *sql.Rows) error {
		r, err := readStand(rows)
		few = append(few, r)
		return err
	}, q("turn.few"), most)
	return few, err
}

// readStand reads a row of tusk_line.
func readStand(rows *sql.Rows) (*row, error) {
	r := &row{}
	var id, queue, tenant, partition sql.RawBytes
	err := rows.Scan(&r.place, &r.n, &r.lap, &id, &queue, &tenant, &partition, &r.Priority, &r.since)
	copy(r.ID[:], id)
	r.Queue, r.Tenant, r.Partition = string(queue), string(tenant), string(partition)
	return r, err
}

// groupsOf sorts waiting tasks into their lines. The group with the task that has waited longest comes first.
func groupsOf(few []*row, heads int) (all []store.Turns) {
	slices.SortFunc(few, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.since, b.since), byPlace(a.ref, b.ref))
	})
	at, since := map[line]int{}, []int64{}
	for _, r := range few {
		of := line{r.Queue, r.Tenant, r.Partition}
		i, known := at[of]
		if !known {
			i = len(all)
			at[of] = i
			all = append(all, store.Turns{Queue: r.Queue, Tenant: r.Tenant, Partition: r.Partition})
			since = append(since, r.since)
		}
		since[i] = min(since[i], r.since)
		if len(all[i].Waiting) < heads {
			all[i].Waiting = append(all[i].Waiting, r.ID)
		}
	}
	slices.SortStableFunc(all, func(a, b store.Turns) int {
		return cmp.Compare(since[at[lineOf(a)]], since[at[lineOf(b)]])
	})
	return all
}

func lineOf(t store.Turns) line { return line{t.Queue, t.Tenant, t.Partition} }

// manyWaiting steps from group to group. It also returns the tasks that it has read one by one.
func (w *work) manyWaiting(groups, heads int) (all []store.Turns, seen []*row, err error) {
	quick := min(heads, quickHeads)
	var queue, tenant, partition sql.RawBytes
	ids := make([]sql.RawBytes, quick)
	into := []any{&queue, &tenant, &partition}
	for i := range ids {
		into = append(into, &ids[i])
	}
	err = w.ask(func(rows *sql.Rows) error {
		if err := rows.Scan(into[:3+quick]...); err != nil {
			return err
		}
		t := store.Turns{Queue: string(queue), Tenant: string(tenant), Partition: string(partition)}
		for _, id := range ids {
			wait(&t, id)
		}
		all = append(all, t)
		return nil
	}, firstHeads(quick), groups)
	if err != nil || heads <= quick {
		return all, nil, err
	}
	for i := range all {
		t := &all[i]
		if len(t.Waiting) < quick {
			continue
		}
		w.buf = append(w.buf, stmt{q("turn.more"), []any{[]byte(t.Queue), []byte(t.Tenant), []byte(t.Partition), quick,
			heads - quick}, func(rows *sql.Rows) error {
			r, err := readStand(rows)
			wait(t, r.ID[:])
			seen = append(seen, r)
			return err
		}})
	}
	err = w.flush()
	return all, seen, err
}

// wait adds a waiting task to a group, if there is one.
func wait(t *store.Turns, id []byte) {
	if len(id) == len(store.ID{}) {
		t.Waiting = append(t.Waiting, store.ID(id))
	}
}

// firstHeads returns the statement that reads groups with up to n waiting tasks each.
func firstHeads(n int) string {
	heads := ""
	for i := range n {
		heads += ",\n" + strings.Replace(q("turn.head"), ":nth", strconv.Itoa(i), 1)
	}
	return strings.NewReplacer(":heads", heads, ":groups", q("turn.groups")).Replace(q("turn.waiting"))
}

// Grant implements store.Keeper. It skips tasks that an open transaction holds.
func (s *Store) Grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	err = inParts(ids, maxAdmitted, func(part []store.ID) error {
		_, err := apartIfHeld(part, func(ids []store.ID) error {
			n, err := s.grant(ctx, term, ids)
			if err == nil {
				granted += n
			}
			return err
		})
		return err
	})
	if len(ids) == 0 {
		err = s.write(ctx, func(w *work) error { return w.leads(term) })
	}
	return granted, wrap("grant", err)
}

// grant assumes that only the leader moves tasks on that wait for their turn, and finds out by counting. An edit may
// move them, too.
func (s *Store) grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	how := (*work).grantAll
	for {
		err = s.hurry(ctx, hastyTries, func(w *work) error {
			if err := w.leads(term); err != nil {
				return err
			}
			granted, err = how(w, ids)
			return err
		})
		if !errors.Is(err, errCareful) {
			return granted, err
		}
		how = (*work).grantEach
	}
}

// grantAll gives tasks their turn without locking them first: the procedure finds them only while they still wait, and
// fails if it does not find all.
func (w *work) grantAll(ids []store.ID) (granted int, err error) {
	waiting, err := w.inLine(ids)
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	var refs []ref
	for _, r := range waiting {
		refs = append(refs, r.ref)
		w.sums.count(r.Queue, store.Pending, -1)
		w.sums.count(r.Queue, store.Available, +1)
	}
	if _, err := w.call(nil, "tusk_grant", encodeSpans(spansOf(refs)), len(refs), w.now); err != nil {
		return len(waiting), w.judge(err)
	}
	for _, r := range waiting {
		w.cover(r)
	}
	w.given = append(w.given, waiting...)
	return len(waiting), w.judge(w.flush())
}

// inLine returns those of the tasks, in order, that seem to wait only for their turn. Their places may be remembered
// from the last look.
func (w *work) inLine(ids []store.ID) (waiting []*row, err error) {
	found := map[store.ID]*row{}
	var args []any
	for _, id := range ids {
		if r := w.store.lines.find(id); r != nil {
			found[id] = r
		} else {
			args = append(args, id[:])
		}
	}
	err = inParts(args, 500, func(part []any) error {
		return w.ask(func(rows *sql.Rows) error {
			r := &row{}
			var id, queue, tenant, partition sql.RawBytes
			err := rows.Scan(&r.place, &r.n, &r.lap, &id, &queue, &tenant, &partition, &r.Priority)
			copy(r.ID[:], id)
			r.Queue, r.Tenant, r.Partition = string(queue), string(tenant), string(partition)
			found[r.ID] = r
			return err
		}, list("grant.find", "?", len(part)), part...)
	})
	for _, id := range ids {
		if r := found[id]; r != nil {
			waiting = append(waiting, r)
			delete(found, id)
		}
	}
	return waiting, err
}

// grantEach gives a turn to those of the tasks that wait for it.
func (w *work) grantEach(ids []store.ID) (granted int, err error) {
	return granted, w.decide(func(b *rules.Batch) error {
		granted, err = b.Grant(ids)
		return err
	})
}
