// Package storetest is the conformance suite of package store: one clause for each promise of the contract, named
// after it.
//
// It may use engines only through store.Store. An engine's own test calls Run, Compare and Reruns. What they do not
// test is not promised.
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

// Engine creates databases of one engine.
type Engine struct {
	// New creates an empty, migrated database for one test. It returns a function that opens another independent
	// handle on it, with connections of its own, as another process would have. t.Cleanup closes the handles.
	New func(t testing.TB) (open func() store.Store)
	// Begin opens a user's transaction on the handle's database. It returns the argument of Transactor.Tx, and
	// functions that end the transaction. Nil means that the engine is not a Transactor.
	Begin func(t testing.TB, s store.Store) (tx any, commit, rollback func() error)
	// Crowded opens a handle on a database of its own, through a small pool provided by a user. Its crowd function
	// begins transactions until they hold every connection of the pool; they end with the test. Nil means that the
	// engine does not accept a pool.
	Crowded func(t testing.TB) (s store.Store, crowd func())
	// TakenBack reports whether an error of a user's transaction means that the database rolled it back because of
	// other transactions, so that the user has to retry, as is usual with that database. Nil means that this never
	// happens.
	TakenBack func(err error) bool
	// OneWriter says that a user's transaction that has written blocks every other writer until it ends.
	OneWriter bool
	// Shared says that handles are independent, as in several processes. If it is false, all of them are the same.
	Shared bool
	// Spread says that the tasks of a queue are stored in different places, and that the order across them is only
	// approximate. The engine's own tests state the bounds.
	Spread bool
}

// Run tests every clause of the contract.
func Run(t *testing.T, e Engine) {
	for _, c := range clauses() {
		t.Run(c.name, func(t *testing.T) { c.check(newT(t, e)) })
	}
}

// clause is a promise with its test.
type clause struct {
	name  string
	check func(t *T)
}

func clauses() []clause {
	return slices.Concat(enqueueClauses, keyClauses, repeatClauses, tenantClauses, claimClauses, extendClauses,
		finishClauses, exchangeClauses, parkClauses, needClauses, turnClauses, leadClauses, admitClauses, rescueClauses,
		witnessClauses, pruneClauses, readClauses, editClauses, changedClauses, recordClauses, txClauses, heldClauses,
		raceClauses, needRaceClauses, raceCommitClauses, endClauses, namedClauses, archiveClauses, restoreClauses,
		crowdClauses,
		ringClauses)
}

// T is a test of one clause on its own database.
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
	ids.nextBlock() // several ledgers keep the tasks of a block in one, and their order
	return &T{TB: tb, Store: open(), engine: e, open: open}
}

// another opens another handle.
func (t *T) another() store.Store {
	if t.engine.Shared {
		return t.open()
	}
	return t.Store
}

// ctx returns a context with a timeout for a call, so that a hanging engine fails.
func (t *T) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// NewID returns a UUID, version 7. Ids sort in the order of the calls.
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

// ids are consecutive, in blocks of 256, like those of one call of a client.
var ids idBlocks

type idBlocks struct {
	mu    sync.Mutex
	block store.ID
	n     uint32
}

func (b *idBlocks) nextBlock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n = (b.n + 255) / 256 * 256
}

// newTask returns a task of the queue "q", with the changes applied.
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

// addMany enqueues n similar tasks and returns their ids in order.
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

// worker registers a worker whose leases last a minute.
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

// tell sends a numbered beat that lists what the worker holds.
func (t *T) tell(id store.ID, seq, seen int64, holds ...store.Token) {
	t.Helper()
	b := store.Beat{Worker: store.Worker{ID: id, Queues: []string{"q"}, Concurrency: 1}, TTL: time.Hour, Seq: seq,
		Seen: seen, Holds: holds}
	if _, err := t.Extend(t.ctx(), b); err != nil {
		t.Fatalf("extend: %v", err)
	}
}

// take claims tasks, from "q" if no queues are given.
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

// takeOne claims a task, and fails if there is none.
func (t *T) takeOne(worker store.ID) *store.Task {
	t.Helper()
	tasks := t.take(worker, 1)
	if len(tasks) != 1 {
		t.Fatalf("claimed %d tasks, want 1", len(tasks))
	}
	return &tasks[0]
}

// to returns an outcome that keeps the task's counts.
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

// finish calls Finish, and retries tasks that are held for a moment.
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

// mustEnd finishes attempts, and fails unless all are accepted.
func (t *T) mustEnd(outcomes ...store.Outcome) {
	t.Helper()
	if lost := t.end(outcomes...); len(lost) > 0 {
		t.Fatalf("finish: %d of %d were lost", len(lost), len(outcomes))
	}
}

// get reads a task in full, and fails if it does not exist.
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

// gone fails if the task exists.
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

// eventually waits until a condition holds.
func (t *T) eventually(what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// near fails unless two times are equal up to rounding to milliseconds.
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

// inOrder is sameIDs, but ignores the order if the engine's order is approximate.
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
