package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

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

// survey is what the engine has to know about the tasks of a call. It is collected in one pass: a long list does not
// fit into the processor's caches, so each pass costs as much as writing it.
type survey struct {
	lanes  []int64 // in the order of the tasks; mostly one
	queues []string
	plain  bool          // all go straight into the log, and have no rare fields
	ready  bool          // all may run as soon as they are stored
	lined  bool          // all wait only for their turn, and have no other rare fields
	now    bool          // some may be claimed at once, or promptly
	turn   bool          // some wait for their turn, and for no time
	due    time.Duration // until the first of those that wait for a time is due
	more   bool          // some have more than the minimum of columns
	doubts uuids         // tasks that need tasks of other calls
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

// ringFor notifies listeners of tasks.
func (s *Store) ringFor(have *survey) { s.ring(have.rings()...) }

// rings returns the names to ring: the queues of tasks, and bells for the leader. A grant rings the queues of tasks
// that wait for their turn.
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

// dueIn returns how long a task with a delay or a run time waits, by this process's clock.
func dueIn(t *store.NewTask) time.Duration {
	if t.RunAt.IsZero() {
		return t.Delay
	}
	return max(t.Delay, time.Until(t.RunAt))
}

// commit stores tasks in a transaction of their own. If the answer is lost, it finds out whether they are stored.
func (s *Store) commit(ctx context.Context, tasks []store.NewTask, have *survey) ([]store.Enqueued, error) {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, translate(err))
	}
	defer c.Release()
	s.known.meet(c.Conn())
	s.seen(ctx, c)
	if err := s.atHome(ctx, c); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	if err := s.nameLanes(ctx, driverSession{c}, have, true); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	if have.lined && s.asksLine() {
		s.learnLine(ctx, driverSession{c})
	}
	results, err := s.send(ctx, c, tasks, have)
	switch {
	case err == nil:
		return results, nil
	case neverStored(err):
		return nil, fmt.Errorf("%w: %w", store.ErrNotCommitted, err)
	}
	backend := c.Conn().PgConn().PID()
	abandon(c.Conn())
	c.Release() // inquire needs a connection, and the pool may have no other
	return s.inquire(ctx, backend, tasks, &Unanswered{backend, err})
}

// send stores tasks in the way that suits them best.
func (s *Store) send(
	ctx context.Context, c *pgxpool.Conn, tasks []store.NewTask, have *survey,
) ([]store.Enqueued, error) {
	if p := s.parkedFor(tasks, have); p != nil {
		if done, err := s.addLeased(ctx, driverSession{c}, &tasks[0], p); done || err != nil {
			return added(tasks), err
		}
		return s.put(ctx, driverSession{c}, tasks)
	}
	if len(tasks) >= s.copyFrom && (have.plain || have.lined) {
		return added(tasks), s.copy(ctx, c, tasks, have)
	}
	return s.enqueue(ctx, driverSession{c}, tasks, have)
}

// enqueue stores tasks whose lanes have names.
func (s *Store) enqueue(ctx context.Context, c session, tasks []store.NewTask, have *survey) ([]store.Enqueued, error) {
	var err error
	switch {
	case have.plain:
		s.trips.Add(1)
		err = s.add(ctx, c, tasks)
	case have.lined:
		s.trips.Add(1)
		err = s.addLined(ctx, c, tasks)
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
// remembers the lanes that it named, unless that may still be rolled back.
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

// learnAfter is the time between naming lanes in a user's transaction and looking up whether they have names. Most
// such transactions have committed by then.
const learnAfter = 100 * time.Millisecond

// learnNames finds out in the background which lanes have committed names, so that the next transaction need not name
// them. Only one such lookup is in progress at a time.
func (s *Store) learnNames(lanes []int64) {
	if !s.known.learns.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(learnAfter, func() {
		defer s.known.learns.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
		defer cancel()
		_ = s.query(ctx, "named_lanes", func(raw [][]byte) error { // errors are harmless
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
	return c.exec(ctx, s.sql["add"], plainColumns(tasks)...)
}

// plainColumns returns the columns of plain tasks, each as an array.
func plainColumns(tasks []store.NewTask) []any {
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
	return []any{at, ids, kinds, args, tenants, tags, settings, expiries}
}

// addLined inserts tasks that only wait for their turn.
func (s *Store) addLined(ctx context.Context, c session, tasks []store.NewTask) error {
	if len(tasks) == 1 {
		t := &tasks[0]
		return c.exec(ctx, s.lined("add_lined"), laneOf(t.Queue, t.Priority), [16]byte(t.ID), t.Kind, t.Args,
			orNull(t.Tenant), arrayText(t.Tags), t.Settings, timeOrNull(t.ExpiresAt), orNull(t.Partition))
	}
	partitions := make([]*string, len(tasks))
	for i := range tasks {
		partitions[i] = orNull(tasks[i].Partition)
	}
	return c.exec(ctx, s.lined("add_all_lined"), append(plainColumns(tasks), partitions)...)
}

// addOdd stores one task that waits for its time, or that has a free key, and that is otherwise plain. It takes one
// statement, which costs a third of the function put. It reports false if it stored nothing.
func (s *Store) addOdd(ctx context.Context, c session, tasks []store.NewTask) (done bool, err error) {
	t := &tasks[0]
	// If a run time is near, the clock of the database decides whether it has come.
	waits := t.Delay > 0 || !t.RunAt.IsZero() && dueIn(t) >= store.Soon
	if len(tasks) > 1 || len(t.Needs) > 0 || isRare(t) || waits == (t.Key != "") || !waits && !t.RunAt.IsZero() ||
		t.OnConflict == store.Rerun {
		return false, nil
	}
	name, args := "add_keyed", append(takeKey(t), laneOf(t.Queue, t.Priority), [16]byte(t.ID), t.Kind, t.Args,
		orNull(t.Tenant), arrayText(t.Tags), t.Settings, t.Key, timeOrNull(t.ExpiresAt), orNull(t.ExpiresIn.Microseconds()))
	if waits {
		name, args = "add_waiting", []any{laneOf(t.Queue, t.Priority), [16]byte(t.ID), t.Kind, t.Args, orNull(t.Tenant),
			arrayText(t.Tags), t.Settings, timeOrNull(t.ExpiresAt), t.ExpiresIn.Microseconds(), timeOrNull(t.RunAt),
			t.Delay.Microseconds()}
	}
	s.trips.Add(1)
	err = c.each(ctx, func(scan func(...any) error) error { return scan(&done) }, s.sql[name], args...)
	return done, err
}

// takeKey returns the parameters of take_key.
func takeKey(t *store.NewTask) []any {
	return []any{laneOf(t.Queue, t.Priority), tenantKey(t.Tenant, t.Key), [16]byte(t.ID), t.OnConflict == store.Once}
}

// isRare reports whether a task has one of the fields that most tasks do not have.
func isRare(t *store.NewTask) bool { return !t.Workflow.IsZero() || t.Turn || t.Partition != "" }

// put stores tasks of every kind, by the function put, or by put_needing if any
// of them needs others.
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

// columns returns the parameters of the function put.
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
