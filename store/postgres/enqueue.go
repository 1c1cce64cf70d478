package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// Enqueue implements store.Enqueuer.
func (s *Store) Enqueue(ctx context.Context, tasks []store.NewTask) (results []store.Enqueued, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	have := surveyOf(tasks)
	news := s.herald(tasks, have, stored)
	done, err := s.enqueueTogether(ctx, tasks, have)
	if done {
		results = added(tasks)
	} else {
		err = s.repeat(ctx, func() error {
			results, err = s.commit(ctx, tasks, have)
			return s.noted(err)
		})
	}
	if err != nil {
		news.drop()
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	news.tell(results)
	s.settle(ctx, have.doubts)
	return results, nil
}

// survey is what has to be known of the tasks of a call, found in one look: a long list
// is too large for the processor's caches, so that each look costs as much as writing it.
type survey struct {
	lanes  []int64 // as they come, mostly one
	queues []string
	plain  bool          // all go straight into the log, and say nothing rare
	ready  bool          // all may run as soon as they are stored
	lined  bool          // all go straight into line for their turn, and say nothing else that is rare
	now    bool          // some may be there to be claimed
	turn   bool          // some do, and nothing else keeps them
	due    time.Duration // the first will be due then
	more   bool          // some say more than they have to
	doubts uuids         // those that need others than those of the call
}

func surveyOf(tasks []store.NewTask) *survey {
	s, needs := &survey{plain: true, ready: true, lined: true, due: store.Soon}, false
	for i := range tasks {
		t := &tasks[i]
		if i == 0 || t.Queue != tasks[i-1].Queue || t.Priority != tasks[i-1].Priority {
			s.lanes, s.queues = append(s.lanes, laneOf(t.Queue, t.Priority)), append(s.queues, t.Queue)
		}
		needs = needs || len(t.Needs) > 0
		ready := t.Key == "" && t.RunAt.IsZero() && t.Delay <= 0 && t.ExpiresIn <= 0 && !needs
		s.plain = s.plain && ready && !isRare(t)
		s.lined = s.lined && ready && t.Turn && t.Workflow.IsZero()
		waits := t.Delay > 0 || !t.RunAt.IsZero()
		s.ready = s.ready && !waits && !needs && !t.Turn
		s.now = s.now || !t.Turn && (!waits || t.Delay <= 0 && dueIn(t) < store.Promptly) // clocks differ
		s.turn = s.turn || t.Turn && !waits
		if waits {
			s.due = min(s.due, dueIn(t))
		}
		s.more = s.more || t.Tenant != "" || len(t.Tags) > 0 || len(t.Settings) > 0 || !t.ExpiresAt.IsZero()
	}
	if needs {
		s.doubts = inDoubt(tasks)
	}
	return s
}

// ringFor tells listeners of tasks.
func (s *Store) ringFor(have *survey) { s.ring(have.rings()...) }

// rings are what to ring for: the queues of tasks, and whoever leads. A grant rings for those that wait for their turn.
func (v *survey) rings() (names []string) {
	if v.now {
		names = slices.Compact(slices.Clone(v.queues))
	}
	if v.turn {
		names = append(names, bell.Turns)
	}
	if name := bell.DueIn(v.due); name != "" {
		names = append(names, name)
	}
	return names
}

// dueIn is how long a task that is not to run at once waits, by this process's clock.
func dueIn(t *store.NewTask) time.Duration {
	if t.RunAt.IsZero() {
		return t.Delay
	}
	return max(t.Delay, time.Until(t.RunAt))
}

// commit stores tasks in a transaction of their own, and finds out what became
// of one that was not answered.
func (s *Store) commit(ctx context.Context, tasks []store.NewTask, have *survey) ([]store.Enqueued, error) {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, translate(err))
	}
	defer c.Release()
	s.known.meet(c.Conn())
	if err := s.atHome(ctx, c); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	if err := s.nameLanes(ctx, driverSession{c}, have, true); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	var results []store.Enqueued
	if len(tasks) >= s.copyFrom && (have.plain || have.lined) {
		err = s.copy(ctx, c, tasks, have)
		results = added(tasks)
	} else {
		results, err = s.enqueue(ctx, driverSession{c}, tasks, have)
	}
	switch {
	case err == nil:
		return results, nil
	case neverStored(err):
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	backend := c.Conn().PgConn().PID()
	abandon(c.Conn())
	c.Release() // the pool may have no other
	return s.inquire(ctx, backend, tasks, &Unanswered{backend, err})
}

// enqueue stores tasks whose lanes have names.
func (s *Store) enqueue(ctx context.Context, c session, tasks []store.NewTask, have *survey) ([]store.Enqueued, error) {
	var err error
	switch {
	case have.plain:
		s.trips.Add(1)
		err = s.add(ctx, c, tasks)
	case have.lined && len(tasks) == 1:
		s.trips.Add(1)
		err = s.addLined(ctx, c, &tasks[0])
	default:
		done, err := s.addOdd(ctx, c, tasks)
		if err != nil || done {
			return added(tasks), translate(err)
		}
		s.trips.Add(1)
		results, err := s.put(ctx, c, tasks)
		return results, translate(err)
	}
	if err != nil {
		return nil, translate(err)
	}
	return added(tasks), nil
}

func added(tasks []store.NewTask) []store.Enqueued {
	results := make([]store.Enqueued, len(tasks))
	for i := range tasks {
		results[i] = store.Enqueued{ID: tasks[i].ID, Result: store.Added}
	}
	return results
}

// nameLanes makes sure that the lanes of tasks have names in the database. It
// remembers what it named, unless that may yet be rolled back.
func (s *Store) nameLanes(ctx context.Context, c session, have *survey, committed bool) error {
	var lanes []int64
	var queues []string
	for i, lane := range have.lanes {
		if !s.known.hasName(lane) {
			lanes, queues = append(lanes, lane), append(queues, have.queues[i])
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	s.trips.Add(1)
	if err := c.exec(ctx, s.sql["name_lanes"], lanes, queues); err != nil {
		return translate(err)
	}
	if !committed {
		s.learnNames(lanes)
		return nil
	}
	for i, lane := range lanes {
		s.known.lanes.Store(lane, queues[i])
	}
	return nil
}

// learnAfter is how long after a user's transaction named lanes it is looked up whether they have names. By then most
// have committed, and the others had names before.
const learnAfter = 100 * time.Millisecond

// learnNames finds out in the background which lanes have names that are committed, so that the next transaction need
// not name them. One such look is under way at a time.
func (s *Store) learnNames(lanes []int64) {
	if !s.known.learns.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(learnAfter, func() {
		defer s.known.learns.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
		defer cancel()
		_ = s.query(ctx, "named_lanes", func(raw [][]byte) error { // an error costs the next one a statement
			s.known.lanes.Store(int64Of(raw[0]), string(raw[1]))
			return nil
		}, lanes)
	})
}

// add inserts plain tasks.
func (s *Store) add(ctx context.Context, c session, tasks []store.NewTask) error {
	if len(tasks) == 1 {
		t := &tasks[0]
		return c.exec(ctx, s.sql["add_one"], laneOf(t.Queue, t.Priority), [16]byte(t.ID), t.Kind, t.Args,
			orNull(t.Tenant), arrayText(t.Tags), t.Settings, timeOrNull(t.ExpiresAt))
	}
	n := len(tasks)
	at, ids := make([]int64, n), make(uuids, n)
	kinds, args := make([]string, n), make([][]byte, n)
	tenants, tags := make([]*string, n), make([]*string, n)
	settings, expiries := make([][]byte, n), make([]*time.Time, n)
	var l lanes
	for i := range tasks {
		t := &tasks[i]
		at[i], ids[i], kinds[i], args[i] = l.of(t.Queue, t.Priority), t.ID, t.Kind, t.Args
		tenants[i], tags[i], settings[i], expiries[i] = orNull(t.Tenant), arrayText(t.Tags), t.Settings,
			timeOrNull(t.ExpiresAt)
	}
	return c.exec(ctx, s.sql["add"], at, ids, kinds, args, tenants, tags, settings, expiries)
}

// addLined inserts a task that does nothing but wait for its turn.
func (s *Store) addLined(ctx context.Context, c session, t *store.NewTask) error {
	return c.exec(ctx, s.sql["add_lined"], laneOf(t.Queue, t.Priority), [16]byte(t.ID), t.Kind, t.Args,
		orNull(t.Tenant), arrayText(t.Tags), t.Settings, timeOrNull(t.ExpiresAt), orNull(t.Partition))
}

// addOdd stores one task that waits for its time, or that has a key which is free, and nothing else that is odd: by one
// statement, for a third of what the function put costs. It reports false when nothing was stored.
func (s *Store) addOdd(ctx context.Context, c session, tasks []store.NewTask) (done bool, err error) {
	t := &tasks[0]
	// Where a run time is near, the clock of the database decides whether it has come.
	waits := t.Delay > 0 || !t.RunAt.IsZero() && dueIn(t) >= store.Soon
	if len(tasks) > 1 || len(t.Needs) > 0 || isRare(t) || waits == (t.Key != "") || !waits && !t.RunAt.IsZero() ||
		t.OnConflict == store.Rerun {
		return false, nil
	}
	name, args := "add_keyed", []any{laneOf(t.Queue, t.Priority), [16]byte(t.ID), t.Kind, t.Args, orNull(t.Tenant),
		arrayText(t.Tags), t.Settings, timeOrNull(t.ExpiresAt), t.ExpiresIn.Microseconds()}
	if waits {
		name, args = "add_waiting", append(args, timeOrNull(t.RunAt), t.Delay.Microseconds())
	} else {
		args = append(args, t.Key, tenantKey(t.Tenant, t.Key), t.OnConflict == store.Once)
	}
	s.trips.Add(1)
	err = c.each(ctx, func(scan func(...any) error) error { return scan(&done) }, s.sql[name], args...)
	return done, err
}

// isRare reports whether a task has what most have not.
func isRare(t *store.NewTask) bool { return !t.Workflow.IsZero() || t.Turn || t.Partition != "" }

// put stores tasks of every sort, through the function of that name, or through
// put_needing if any needs others.
func (s *Store) put(ctx context.Context, c session, tasks []store.NewTask) ([]store.Enqueued, error) {
	name, args := "put", columns(tasks)
	if slices.ContainsFunc(tasks, func(t store.NewTask) bool { return len(t.Needs) > 0 }) {
		name, args = "put_needing", append(args, needColumns(tasks)...)
	}
	results := make([]store.Enqueued, len(tasks))
	err := c.each(ctx, func(scan func(...any) error) error {
		var place, result int
		var text string
		if err := scan(&place, &text, &result); err != nil {
			return err
		}
		id, err := store.ParseID(text)
		results[place-1] = store.Enqueued{ID: id, Result: store.EnqueueResult(result)}
		return err
	}, s.sql[name], args...)
	return results, err
}

// columns are the parameters of the function put.
func columns(tasks []store.NewTask) []any {
	n := len(tasks)
	at, ids := make([]int64, n), make(uuids, n)
	kinds, args := make([]string, n), make([][]byte, n)
	tenants, tags, keys := make([]*string, n), make([]*string, n), make([]*string, n)
	settings := make([][]byte, n)
	runAt, expiresAt, sources := make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	delays, expiresIn, conflicts := make([]int64, n), make([]int64, n), make([]int16, n)
	workflows := make(pgtype.FlatArray[pgtype.UUID], n)
	turns, partitions := make([]*bool, n), make([]*string, n)
	var l lanes
	for i := range tasks {
		t := &tasks[i]
		at[i], ids[i], kinds[i], args[i] = l.of(t.Queue, t.Priority), t.ID, t.Kind, t.Args
		tenants[i], tags[i], settings[i], keys[i] = orNull(t.Tenant), arrayText(t.Tags), t.Settings, orNull(t.Key)
		runAt[i], delays[i] = timeOrNull(t.RunAt), t.Delay.Microseconds()
		expiresAt[i], expiresIn[i] = timeOrNull(t.ExpiresAt), t.ExpiresIn.Microseconds()
		conflicts[i], sources[i] = int16(t.OnConflict), timeOrNull(t.SourceTime)
		workflows[i] = pgtype.UUID{Bytes: t.Workflow, Valid: !t.Workflow.IsZero()}
		turns[i], partitions[i] = orNull(t.Turn), orNull(t.Partition)
	}
	return []any{at, ids, kinds, args, tenants, tags, settings, runAt, delays, expiresAt, expiresIn, keys,
		conflicts, sources, workflows, turns, partitions}
}
