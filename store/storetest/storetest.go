// Package storetest is the contract of package store as a suite of tests: one
// clause for each promise, named by the promise.
//
// It may touch engines through store.Store alone. An engine's own test calls Run
// and Compare; what they do not test is not promised.
package storetest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Engine makes databases of one engine.
type Engine struct {
	// New makes an empty, migrated database for one test and returns a function
	// that opens one more independent handle onto it, with connections of its own,
	// as another process would have. Handles are closed by t.Cleanup.
	New func(t testing.TB) (open func() store.Store)
	// Begin opens a user's own transaction on the handle's database: what
	// Transactor.Tx takes, and its end. Nil: the engine is no Transactor.
	Begin func(t testing.TB, s store.Store) (tx any, commit, rollback func() error)
	// Crowded opens a handle on a database of its own through a small pool that users have
	// given; crowd begins transactions until they hold every connection of it, and ends them
	// with the test. Nil: users give the engine no pool.
	Crowded func(t testing.TB) (s store.Store, crowd func())
	// TakenBack reports whether an error of a user's own transaction means that the
	// database took it back because of others, so that its user begins anew, as is
	// usual with that database. Nil: it never does.
	TakenBack func(err error) bool
	// OneWriter says that a user's transaction that wrote holds up every other writer until
	// it ends.
	OneWriter bool
	// Shared says that handles are independent. False: all are the same one.
	Shared bool
	// Spread says that the tasks of a queue lie in different places, between which order is
	// approximate. The engine's own tests say within which bounds.
	Spread bool
}

// Run tests every clause of the contract.
func Run(t *testing.T, e Engine) {
	for _, c := range clauses() {
		t.Run(c.name, func(t *testing.T) { c.check(newT(t, e)) })
	}
}

// clause is one promise and its test.
type clause struct {
	name  string
	check func(t *T)
}

func clauses() []clause {
	return slices.Concat(enqueueClauses, keyClauses, tenantClauses, claimClauses, extendClauses, finishClauses,
		exchangeClauses, needClauses, turnClauses, leadClauses, admitClauses, rescueClauses, witnessClauses, pruneClauses,
		readClauses, editClauses, changedClauses, recordClauses, txClauses, heldClauses, raceClauses, needRaceClauses,
		raceCommitClauses, endClauses, namedClauses, archiveClauses, restoreClauses, crowdClauses,
		ringClauses)
}

// T is a test of one clause on a database of its own.
type T struct {
	testing.TB
	store.Store // the first handle
	engine      Engine
	open        func() store.Store
	term        int64
	leader      store.ID
}

func newT(tb testing.TB, e Engine) *T {
	tb.Helper()
	open := e.New(tb)
	return &T{TB: tb, Store: open(), engine: e, open: open}
}

// another opens one more handle.
func (t *T) another() store.Store {
	if t.engine.Shared {
		return t.open()
	}
	return t.Store
}

// ctx bounds every call of a test, so that a hanging engine fails.
func (t *T) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// NewID mints a UUID, version 7, whose order is that of the calls.
func NewID() store.ID {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if id, n := &ids.block, ids.n; n%256 == 0 {
		rand.Read(id[:])
		var ms [8]byte
		binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
		copy(id[:6], ms[2:])
		n /= 256
		id[6], id[7] = 0x70|byte(n>>20)&0xf, byte(n>>12)
		id[8], id[9] = 0x80|byte(n>>6)&0x3f, byte(n<<2)
	}
	id := ids.block
	id[15] = byte(ids.n)
	ids.n++
	return id
}

// ids follow one another, 256 at a time, as those of a client's call do.
var ids struct {
	mu    sync.Mutex
	block store.ID
	n     uint32
}

// newTask makes a task of the queue "q"; changes alter it.
func newTask(changes ...func(*store.NewTask)) store.NewTask {
	n := store.NewTask{ID: NewID(), Kind: "k", Queue: "q", Args: []byte(`{}`)}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func queue(name string) func(*store.NewTask)     { return func(n *store.NewTask) { n.Queue = name } }
func kind(name string) func(*store.NewTask)      { return func(n *store.NewTask) { n.Kind = name } }
func priority(p int16) func(*store.NewTask)      { return func(n *store.NewTask) { n.Priority = p } }
func delay(d time.Duration) func(*store.NewTask) { return func(n *store.NewTask) { n.Delay = d } }
func key(k string) func(*store.NewTask)          { return func(n *store.NewTask) { n.Key = k } }
func args(json string) func(*store.NewTask)      { return func(n *store.NewTask) { n.Args = []byte(json) } }
func conflict(c store.OnConflict) func(*store.NewTask) {
	return func(n *store.NewTask) { n.OnConflict = c }
}
func source(second int64) func(*store.NewTask) {
	return func(n *store.NewTask) { n.SourceTime = time.Unix(1e9+second, 0).UTC() }
}

// add enqueues tasks.
func (t *T) add(tasks ...store.NewTask) []store.Enqueued {
	t.Helper()
	results, err := t.Enqueue(t.ctx(), tasks)
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	if len(results) != len(tasks) {
		t.Fatalf("%d tasks had %d results", len(tasks), len(results))
	}
	return results
}

// addOne enqueues a task and returns its id.
func (t *T) addOne(changes ...func(*store.NewTask)) store.ID {
	t.Helper()
	return t.add(newTask(changes...))[0].ID
}

// addMany enqueues n like tasks and returns their ids in order.
func (t *T) addMany(n int, changes ...func(*store.NewTask)) []store.ID {
	t.Helper()
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = newTask(changes...)
	}
	return idsOf(t.add(tasks...))
}

func idsOf(results []store.Enqueued) []store.ID {
	ids := make([]store.ID, len(results))
	for i, r := range results {
		ids[i] = r.ID
	}
	return ids
}

// worker registers a worker that lives for a minute.
func (t *T) worker() store.ID {
	t.Helper()
	id := NewID()
	t.beat(id, time.Minute)
	return id
}

func (t *T) beat(id store.ID, ttl time.Duration, notes ...store.Note) []store.Stop {
	t.Helper()
	w := store.Worker{ID: id, Host: "host", PID: 1, Queues: []string{"q"}, Concurrency: 10, Version: "v"}
	stops, err := t.Extend(t.ctx(), store.Beat{Worker: w, TTL: ttl, Notes: notes})
	if err != nil {
		t.Fatalf("extend: %v", err)
	}
	return stops
}

// tell beats as a worker that counts its beats and says what it holds.
func (t *T) tell(id store.ID, seq, seen int64, holds ...store.Token) {
	t.Helper()
	b := store.Beat{Worker: store.Worker{ID: id, Queues: []string{"q"}, Concurrency: 1}, TTL: time.Hour, Seq: seq,
		Seen: seen, Holds: holds}
	if _, err := t.Extend(t.ctx(), b); err != nil {
		t.Fatalf("extend: %v", err)
	}
}

// take claims tasks; without queues, of "q".
func (t *T) take(worker store.ID, limit int, queues ...string) []store.Task {
	t.Helper()
	return t.takeFrom(t.Store, worker, limit, queues...)
}

func (t *T) takeFrom(s store.Store, worker store.ID, limit int, queues ...string) []store.Task {
	t.Helper()
	if len(queues) == 0 {
		queues = []string{"q"}
	}
	tasks, err := s.Claim(t.ctx(), store.ClaimRequest{Worker: worker, Queues: queues, Limit: limit,
		Token: store.NewToken()})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return tasks
}

// takeOne claims a task, of which there must be one.
func (t *T) takeOne(worker store.ID) *store.Task {
	t.Helper()
	tasks := t.take(worker, 1)
	if len(tasks) != 1 {
		t.Fatalf("claimed %d tasks, want 1", len(tasks))
	}
	return &tasks[0]
}

// to makes an outcome that keeps the task's counts.
func to(state store.State, task *store.Task) store.Outcome {
	return store.Outcome{Task: task, State: state, Attempt: task.Attempt, Crashes: task.Crashes, Ran: time.Millisecond}
}

func failed(task *store.Task, state store.State, text string) store.Outcome {
	o := to(state, task)
	o.Error, o.Fingerprint = text, "fp-"+text
	return o
}

// end finishes attempts and returns the lost ones.
func (t *T) end(outcomes ...store.Outcome) []store.ID {
	t.Helper()
	lost, err := finish(t.ctx(), t.Store, outcomes)
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return lost
}

// finish is Finish by a caller who tries again what others hold for a moment.
func finish(ctx context.Context, s store.Leaser, outcomes []store.Outcome) (lost []store.ID, err error) {
	for {
		late, err := s.Finish(ctx, outcomes)
		lost = append(lost, late...)
		held := new(store.HeldError)
		if !errors.As(err, &held) || ctx.Err() != nil {
			return lost, err
		}
		outcomes = slices.DeleteFunc(slices.Clone(outcomes), func(o store.Outcome) bool {
			return !slices.Contains(held.Tasks, o.Task.ID)
		})
	}
}

// mustEnd finishes attempts, all of which must be accepted.
func (t *T) mustEnd(outcomes ...store.Outcome) {
	t.Helper()
	if lost := t.end(outcomes...); len(lost) > 0 {
		t.Fatalf("finish: %d of %d were lost", len(lost), len(outcomes))
	}
}

// get reads a task in full; it must exist.
func (t *T) get(id store.ID) store.Task {
	t.Helper()
	tasks := t.list(store.Filter{IDs: []store.ID{id}, Detail: true})
	if len(tasks) != 1 {
		t.Fatalf("task %v: found %d times", id, len(tasks))
	}
	return tasks[0]
}

func (t *T) list(f store.Filter) []store.Task {
	t.Helper()
	tasks, err := t.List(t.ctx(), f)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return tasks
}

// is fails unless the task is in the state.
func (t *T) is(id store.ID, want store.State) store.Task {
	t.Helper()
	task := t.get(id)
	if task.State != want {
		t.Fatalf("task is %v, want %v", task.State, want)
	}
	return task
}

// gone fails if there is a task of that id.
func (t *T) gone(id store.ID) {
	t.Helper()
	if found := t.list(store.Filter{IDs: []store.ID{id}}); len(found) != 0 {
		t.Fatalf("task is still there: %v", found[0].State)
	}
}

// lead returns the term of a leader that this test keeps.
func (t *T) lead() int64 {
	t.Helper()
	if t.leader.IsZero() {
		t.leader = NewID()
	}
	l, err := t.Lead(t.ctx(), store.Candidate{ID: t.leader, Term: t.term, TTL: time.Minute})
	if err != nil || l.Term == 0 {
		t.Fatalf("lead: %+v, %v", l, err)
	}
	t.term = l.Term
	return t.term
}

func (t *T) admit(limit int) store.Admitted {
	t.Helper()
	did, err := t.Admit(t.ctx(), t.lead(), limit)
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	return did
}

func (t *T) rescue(limit int) []store.Task {
	t.Helper()
	tasks, err := t.Rescue(t.ctx(), t.lead(), limit)
	if err != nil {
		t.Fatalf("rescue: %v", err)
	}
	return tasks
}

func (t *T) edit(change store.Change, ids ...store.ID) []store.Edited {
	t.Helper()
	edited, err := t.Edit(t.ctx(), store.Edit{IDs: ids, Change: change})
	if err != nil {
		t.Fatalf("edit: %v", err)
	}
	if len(edited) != len(ids) {
		t.Fatalf("%d ids had %d results", len(ids), len(edited))
	}
	return edited
}

// eventually waits for a condition that time brings about.
func (t *T) eventually(what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// near fails unless two instants are the same but for rounding to milliseconds.
func (t *T) near(what string, got, want time.Time) {
	t.Helper()
	if d := got.Sub(want); d < -2*time.Millisecond || d > 2*time.Millisecond {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func idsOfTasks(tasks []store.Task) []store.ID {
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	return ids
}

func (t *T) sameIDs(what string, got, want []store.ID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %d ids %v, want %d %v", what, len(got), short(got), len(want), short(want))
	}
}

// inOrder is sameIDs, but for the order where that is approximate.
func (t *T) inOrder(what string, got, want []store.ID) {
	t.Helper()
	if t.engine.Spread {
		got, want = slices.Clone(got), slices.Clone(want)
		sortIDs(got)
		sortIDs(want)
	}
	t.sameIDs(what, got, want)
}

func short(ids []store.ID) []store.ID { return ids[:min(len(ids), 10)] }
