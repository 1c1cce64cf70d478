package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// held is a user's transaction that stays open, and the calls made while it does.
type held struct {
	*T
	worker store.ID
	tasks  map[string]*store.Task // running, by key
}

// heldWithin limits every call made while the transaction is open.
const heldWithin = 8 * time.Second

func (h *held) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), heldWithin)
	h.Cleanup(cancel)
	return ctx
}

// holds are what a user's transaction may do before it stays open. Each one touches the running task with the key
// "mine", the available task with the key "free", or both.
var holds = []struct {
	name string
	do   func(h *held, tx store.Tx) error
}{
	{"enqueued", func(h *held, tx store.Tx) error { return enqueued(h, tx, newTask(), newTask(key("new"))) }},
	{"enqueued with the key of a running task", func(h *held, tx store.Tx) error {
		return enqueued(h, tx, newTask(key("mine")))
	}},
	{"enqueued a rerun of a running task", func(h *held, tx store.Tx) error {
		return enqueued(h, tx, newTask(key("mine"), conflict(store.Rerun)))
	}},
	{"replaced an available task", func(h *held, tx store.Tx) error {
		return enqueued(h, tx, newTask(key("free"), conflict(store.Replace)))
	}},
	{"moved an available task to a later time", func(h *held, tx store.Tx) error {
		return enqueued(h, tx, newTask(key("free"), conflict(store.Rerun), delay(time.Hour)))
	}},
	{"enqueued what needs a running task", func(h *held, tx store.Tx) error {
		return enqueued(h, tx, newTask(needs(store.CancelOnFailure, h.tasks["mine"].ID)))
	}},
	{"completed a task", func(h *held, tx store.Tx) error { return completedIn(h, tx) }},
	{"completed a task that brings another", func(h *held, tx store.Tx) error {
		return completedIn(h, tx, newTask(key("free")))
	}},
}

func enqueued(h *held, tx store.Tx, tasks ...store.NewTask) error {
	_, err := tx.Enqueue(h.ctx(), tasks)
	return err
}

func completedIn(h *held, tx store.Tx, then ...store.NewTask) error {
	o := to(store.Completed, h.tasks["mine"])
	o.Then, o.Note = then, &store.Note{Output: []byte(`1`), Logs: []store.LogLine{{Text: "done"}}}
	lost, err := tx.Finish(h.ctx(), []store.Outcome{o})
	if len(lost) > 0 {
		h.Fatal("lost")
	}
	return err
}

// heldClauses say that a user's open transaction does not delay others, whichever of the engine's rows it holds.
var heldClauses = func() (all []clause) {
	for _, of := range holds {
		all = append(all, clause{"held/a user's open transaction that " + of.name + " costs others nothing", func(t *T) {
			h := newHeld(t)
			tx, commit, _ := t.begin()
			err := of.do(h, tx)
			if err != nil {
				t.Fatal(err)
			}
			h.beats()
			h.claims()
			h.finishes()
			h.chores()
			h.edits()
			commit()
			h.goesOn()
		}})
	}
	return append(all, heldTick,
		clause{"held/a user's open transaction that enqueued a key holds up the outcome that brings it, and no other",
			func(t *T) {
				h := newHeld(t)
				outcomes := h.bringers(100)
				brings := &outcomes[70]
				brings.Then[0] = newTask(key("new"))
				tx, commit, _ := t.begin()
				if err := enqueued(h, tx, newTask(key("new"))); err != nil {
					t.Fatal(err)
				}
				if t.engine.Spread { // a task that goes to another place is written later, and that write is waited for
					h.soon(outcomes)
					commit()
					return
				}
				h.allBut(brings, outcomes)
				commit()
				if _, err := finish(t.ctx(), t.Store, []store.Outcome{*brings}); err != nil {
					t.Fatal(err)
				}
				h.is(brings.Task.ID, store.Completed)
			}})
}()

// bringers returns n completions, each of which enqueues another task.
func (h *held) bringers(n int) (outcomes []store.Outcome) {
	h.Helper()
	h.addMany(n, queue("brings"))
	for _, task := range h.take(h.worker, n, "brings") {
		o := to(store.Completed, &task)
		o.Then = []store.NewTask{newTask(queue("brought"))}
		outcomes = append(outcomes, o)
	}
	if len(outcomes) != n {
		h.Fatalf("claimed %d of %d", len(outcomes), n)
	}
	return outcomes
}

// allBut fails unless all outcomes of a batch but one are written. The one is held, and finishing it alone takes no
// longer than waiting for a lock that others hold while they commit.
func (h *held) allBut(one *store.Outcome, outcomes []store.Outcome) {
	h.Helper()
	h.Logf("the batch took %v", h.heldOne(one, outcomes))
	for _, o := range outcomes {
		if o.Task.ID != one.Task.ID {
			h.is(o.Task.ID, store.Completed)
		}
	}
	alone := time.Hour
	for range 5 { // a busy machine may delay some of them
		alone = min(alone, h.heldOne(one, []store.Outcome{*one}))
	}
	if alone > 200*time.Millisecond {
		h.Errorf("alone it took %v", alone)
	}
}

// soon fails unless a batch returns in time, although one of its outcomes may be held.
func (h *held) soon(outcomes []store.Outcome) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.ctx(), 5*time.Second)
	defer cancel()
	said := new(store.HeldError)
	if lost, err := h.Finish(ctx, outcomes); len(lost) > 0 || err != nil && !errors.As(err, &said) || ctx.Err() != nil {
		h.Fatalf("lost %v, %v, %v", lost, err, ctx.Err())
	}
}

// heldOne finishes a batch of which one outcome is held, and returns how long that took.
func (h *held) heldOne(one *store.Outcome, outcomes []store.Outcome) time.Duration {
	h.Helper()
	begun := time.Now()
	lost, err := h.Finish(h.ctx(), outcomes)
	took := time.Since(begun)
	said := new(store.HeldError)
	if len(lost) > 0 || !errors.As(err, &said) || !slices.Equal(said.Tasks, []store.ID{one.Task.ID}) {
		h.Fatalf("lost %v, %v", lost, err)
	}
	return took
}

func newHeld(t *T) *held {
	t.Helper()
	t.transactor()
	if t.engine.OneWriter {
		t.Skip("the engine has one writer: an open transaction that wrote holds up all others")
	}
	h := &held{T: t, worker: t.worker(), tasks: map[string]*store.Task{}}
	keys := []string{"mine", "second", "third"}
	for _, k := range keys {
		t.addOne(key(k))
	}
	for _, task := range t.take(h.worker, len(keys)) {
		h.tasks[task.Key] = &task
	}
	t.addOne(key("free"))
	return h
}

func (h *held) beats() {
	h.Helper()
	var notes []store.Note
	for _, task := range h.tasks {
		notes = append(notes, store.Note{ID: task.ID, Lease: task.Lease, Progress: &store.Progress{Percent: 50}})
	}
	_, err := h.Extend(h.ctx(), store.Beat{Worker: store.Worker{ID: h.worker}, TTL: time.Minute, Notes: notes})
	h.onlyMine("beat", err)
	if got := h.get(h.tasks["second"].ID); got.Detail.Progress == nil {
		h.Error("the progress of another task was not stored")
	}
}

// onlyMine fails unless err is nil or names exactly the task that the transaction touches as held. It reports whether
// err names it.
func (h *held) onlyMine(what string, err error) bool {
	h.Helper()
	said := new(store.HeldError)
	if err != nil && (!errors.As(err, &said) || !slices.Equal(said.Tasks, []store.ID{h.tasks["mine"].ID})) {
		h.Fatalf("%s: %v", what, err)
	}
	return err != nil
}

func (h *held) claims() {
	h.Helper()
	other := h.addOne(queue("other"))
	for _, queues := range [][]string{{"q"}, {"q", "other"}} {
		tasks, err := h.Claim(h.ctx(), store.ClaimRequest{Worker: h.worker, Queues: queues, Limit: 10,
			Token: store.NewToken()})
		if err != nil {
			h.Fatalf("claim from %v: %v", queues, err)
		}
		for i := range tasks {
			h.tasks[tasks[i].ID.String()] = &tasks[i]
		}
	}
	if h.tasks[other.String()] == nil {
		h.Fatal("the task of another queue was not claimed")
	}
}

func (h *held) finishes() {
	h.Helper()
	outcomes := []store.Outcome{to(store.Completed, h.tasks["mine"]), failed(h.tasks["second"], store.Retryable, "x")}
	for name, task := range h.tasks {
		if name != "mine" && name != "second" && name != "third" && task.Key != "free" {
			outcomes = append(outcomes, to(store.Completed, task))
		}
	}
	outcomes[0].Note = &store.Note{Output: []byte(`2`)}
	lost, err := h.Finish(h.ctx(), outcomes)
	if len(lost) > 0 {
		h.Fatalf("lost %v", lost)
	}
	if h.onlyMine("finish", err) { // alone, it must return at once too
		lost, err = h.Finish(h.ctx(), outcomes[:1])
		if !h.onlyMine("finish alone", err) || len(lost) > 0 {
			h.Errorf("alone it was not held: %v", lost)
		}
	} else {
		delete(h.tasks, "mine")
	}
	h.is(outcomes[1].Task.ID, store.Retryable)
	for _, o := range outcomes[2:] {
		h.is(o.Task.ID, store.Completed)
	}
}

func (h *held) chores() {
	h.Helper()
	dead := NewID()
	h.beat(dead, time.Minute)
	lent := h.addOne(queue("dead"))
	h.take(dead, 1, "dead")
	h.beat(dead, 0)
	due := h.addOne(queue("later"), delay(time.Millisecond))
	for !h.listed(lent, store.Available) {
		tasks, err := h.Rescue(h.ctx(), h.lead(), 100)
		if err != nil {
			h.Fatalf("rescue: %v", err)
		}
		for i := range tasks {
			if _, err := h.Finish(h.ctx(), []store.Outcome{to(store.Available, &tasks[i])}); err != nil {
				h.Fatalf("finish what was rescued: %v", err)
			}
		}
	}
	for !h.listed(due, store.Available) {
		if _, err := h.Admit(h.ctx(), h.lead(), 100); err != nil {
			h.Fatalf("admit: %v", err)
		}
	}
	if _, err := h.Prune(h.ctx(), h.lead(), store.Retention{Completed: time.Nanosecond, Cancelled: time.Nanosecond,
		Discarded: time.Nanosecond}, 100); err != nil {
		h.Fatalf("prune: %v", err)
	}
	if _, err := h.Turns(h.ctx(), h.lead(), 10, 10); err != nil {
		h.Fatalf("turns: %v", err)
	}
	if _, err := h.Grant(h.ctx(), h.lead(), []store.ID{lent}); err != nil {
		h.Fatalf("grant: %v", err)
	}
	h.maintain()
}

func (h *held) listed(id store.ID, state store.State) bool {
	return len(h.list(store.Filter{IDs: []store.ID{id}, States: []store.State{state}})) > 0
}

func (h *held) edits() {
	h.Helper()
	other := h.addOne(queue("edited"))
	ids := []store.ID{other}
	if mine := h.tasks["mine"]; mine != nil {
		ids = append(ids, mine.ID)
	}
	edited, err := h.Edit(h.ctx(), store.Edit{IDs: ids, Change: store.Change{Op: store.Cancel}})
	if h.tasks["mine"] == nil && err != nil || err != nil && !h.onlyMine("edit", err) {
		h.Fatalf("edit: %v", err)
	}
	if len(edited) == 0 || edited[0].Result != store.Changed {
		h.Errorf("edited %+v", edited)
	}
}

// goesOn ends the task that was held, unless its transaction has ended it.
func (h *held) goesOn() {
	h.Helper()
	if mine := h.tasks["mine"]; mine != nil {
		if _, err := finish(h.T.ctx(), h.Store, []store.Outcome{to(store.Completed, mine)}); err != nil {
			h.Fatalf("finish after the commit: %v", err)
		}
		h.is(mine.ID, store.Completed)
	}
}
