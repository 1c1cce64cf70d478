package storetest

import (
	"errors"

	"github.com/tuskqueue/tusk/store"
)

// transactor returns the engine's Transactor. It skips the clause if the engine is not one, and fails if the engine
// is one but the test cannot open a transaction.
func (t *T) transactor() store.Transactor {
	engine, ok := store.As[store.Transactor](t.Store)
	if !ok {
		t.Skip("the engine is no Transactor")
	}
	if t.engine.Begin == nil {
		t.Fatal("the engine is a Transactor, but its test has no Begin")
	}
	return engine
}

func (t *T) begin() (tx store.Tx, commit, rollback func()) {
	t.Helper()
	engine := t.transactor()
	raw, end, abort := t.engine.Begin(t.TB, t.Store)
	tx, err := engine.Tx(raw)
	if err != nil {
		t.Fatalf("tx: %v", err)
	}
	must := func(f func() error) func() {
		return func() {
			t.Helper()
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tx, must(end), must(abort)
}

var txClauses = []clause{
	{"tx/a task exists when the user's transaction commits, and not before", func(t *T) {
		t.transactor()
		worker := t.worker()
		tx, commit, _ := t.begin()
		n, m := newTask(), newTask(key("a"))
		results, err := tx.Enqueue(t.ctx(), []store.NewTask{n, m})
		if err != nil || results[0].Result != store.Added || results[1].Result != store.Added {
			t.Fatal(results, err)
		}
		t.gone(n.ID)
		if got := t.take(worker, 10); len(got) != 0 {
			t.Errorf("claimed %d before the commit", len(got))
		}
		commit()
		if got := t.take(worker, 10); len(got) != 2 {
			t.Errorf("claimed %d after the commit", len(got))
		}
	}},
	{"tx/a rolled back task never was, and its key is free", func(t *T) {
		t.transactor()
		tx, _, rollback := t.begin()
		n := newTask(key("a"))
		if _, err := tx.Enqueue(t.ctx(), []store.NewTask{n, newTask()}); err != nil {
			t.Fatal(err)
		}
		rollback()
		t.gone(n.ID)
		if r := t.add(newTask(key("a")))[0]; r.Result != store.Added {
			t.Errorf("%+v", r)
		}
		if got := t.take(t.worker(), 10); len(got) != 1 {
			t.Errorf("claimed %d", len(got))
		}
	}},
	{"tx/a finish counts when the user's transaction commits", func(t *T) {
		t.transactor()
		worker := t.worker()
		t.addMany(2)
		tasks := t.take(worker, 2)
		tx, commit, _ := t.begin()
		o := to(store.Completed, &tasks[0])
		o.Note = &store.Note{Output: []byte(`7`)}
		if lost, err := tx.Finish(t.ctx(), []store.Outcome{o}); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		t.is(tasks[0].ID, store.Running)
		commit()
		if got := t.is(tasks[0].ID, store.Completed); string(got.Detail.Output) != `7` || len(got.Detail.Attempts) != 1 {
			t.Errorf("%+v", got.Detail)
		}
		t.sameIDs("lost", t.end(failed(&tasks[0], store.Retryable, "late"), to(store.Completed, &tasks[1])),
			[]store.ID{tasks[0].ID})
		t.is(tasks[0].ID, store.Completed)
	}},
	{"tx/an attempt that a transaction has ended is refused in every company", func(t *T) {
		t.transactor()
		worker := t.worker()
		t.addMany(4)
		tasks := t.take(worker, 4)
		tx, commit, _ := t.begin()
		if lost, err := tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, &tasks[0])}); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		commit()
		outcomes := make([]store.Outcome, len(tasks))
		for i := range tasks {
			outcomes[i] = to(store.Completed, &tasks[i])
		}
		ids := idsOfTasks(tasks)
		t.sameIDs("alone, lost", t.end(outcomes[0]), ids[:1])
		t.sameIDs("with another, lost", t.end(outcomes[0], outcomes[1]), ids[:1])
		t.sameIDs("with all of its claim, lost", t.end(outcomes...), ids[:2])
		t.sameIDs("after the last of its claim, lost", t.end(outcomes...), ids)
		again, _, rollback := t.begin()
		if lost, err := again.Finish(t.ctx(), outcomes[:1]); err != nil || len(lost) != 1 {
			t.Errorf("in another transaction: lost %v, %v", lost, err)
		}
		rollback()
		t.addMany(3)
		tasks = t.take(worker, 3)
		tx, commit, _ = t.begin()
		if lost, err := tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, &tasks[1])}); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		commit()
		whole := []store.Outcome{to(store.Completed, &tasks[0]), to(store.Completed, &tasks[1]),
			to(store.Completed, &tasks[2])}
		t.sameIDs("of all that was claimed, lost", t.end(whole...), idsOfTasks(tasks[1:2]))
		if left := t.counts(); len(left) != 0 {
			t.Errorf("left %v", left)
		}
		if all, err := t.Workers(t.ctx()); err != nil || len(all) != 1 || all[0].Running != 0 {
			t.Errorf("the worker holds tasks that have ended: %+v, %v", all, err)
		}
	}},
	{"tx/a rolled back finish never was", func(t *T) {
		t.transactor()
		worker := t.worker()
		id := t.addOne()
		task := t.takeOne(worker)
		tx, _, rollback := t.begin()
		if lost, err := tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, task)}); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		rollback()
		t.is(id, store.Running)
		t.mustEnd(failed(task, store.Retryable, "x"))
		t.is(id, store.Retryable)
	}},
	{"tx/a finish under a lost lease is refused inside the transaction", func(t *T) {
		t.transactor()
		worker := t.worker()
		id := t.addOne()
		task := t.takeOne(worker)
		t.mustEnd(to(store.Available, task))
		tx, _, rollback := t.begin()
		lost, err := tx.Finish(t.ctx(), []store.Outcome{to(store.Completed, task)})
		if err != nil || len(lost) != 1 || lost[0] != id {
			t.Errorf("%v, %v", lost, err)
		}
		rollback()
		t.is(id, store.Available)
	}},
	{"tx/something that is no transaction is refused by name", func(t *T) {
		for _, wrong := range []any{"tx", 1, struct{}{}} {
			if _, err := t.transactor().Tx(wrong); !errors.Is(err, store.ErrUnsupported) {
				t.Errorf("%T: %v", wrong, err)
			}
		}
	}},
}
