package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// single is a worker with one slot.
type single struct {
	*testing.T
	s      *postgres.Store
	worker store.ID
}

func (w single) add(tasks ...store.NewTask) {
	w.Helper()
	if _, err := w.s.Enqueue(w.Context(), tasks); err != nil {
		w.Fatal(err)
	}
}

// next claims one task. It returns nil if there is none.
func (w single) next() *store.Task {
	w.Helper()
	tasks, err := w.s.Claim(w.Context(), store.ClaimRequest{Worker: w.worker, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if err != nil {
		w.Fatal(err)
	}
	if len(tasks) == 0 {
		return nil
	}
	return &tasks[0]
}

func (w single) wants(what string, ids ...store.ID) {
	w.Helper()
	for _, id := range ids {
		if task := w.next(); task == nil || task.ID != id {
			w.Fatalf("%s: claimed %v, want %v", what, task, id)
		}
	}
}

// A worker with one slot claims by a function of its own, which leaves the cases that it cannot handle to the
// general one.
func TestAClaimOfOneTaskTakesWhatAnyWould(t *testing.T) {
	s, pool := fresh(t)
	w := single{t, s, startWorker(t, s)}
	ctx := t.Context()
	some := newTasks(20, "q")
	w.add(some...)
	w.wants("plain tasks", idsOf(some)...)
	if got := w.next(); got != nil {
		t.Fatalf("claimed %v of an empty queue", got)
	}

	rich := newTasks(3, "q")
	rich[1].Tags, rich[1].Tenant, rich[1].Settings, rich[1].Args = []string{"a", `b"`}, "acme", []byte{1},
		[]byte(`{"n":7}`)
	w.add(rich...)
	w.wants("a plain task", rich[0].ID)
	got := w.next()
	if got == nil || got.ID != rich[1].ID || !slices.Equal(got.Tags, rich[1].Tags) || got.Tenant != "acme" ||
		!bytes.Equal(got.Settings, []byte{1}) ||
		string(got.Args) != `{"n":7}` || got.Attempt != 1 || got.State != store.Running || got.Worker != w.worker ||
		got.Kind != "mail" {
		t.Errorf("claimed %+v", got)
	}
	w.wants("the task after one with tags", rich[2].ID)

	large := newTasks(3, "q")
	large[1].Args = append(append([]byte{'"'}, bytes.Repeat([]byte("x"), 100_000)...), '"')
	w.add(large...)
	w.wants("a small task", large[0].ID)
	if got := w.next(); got == nil || !bytes.Equal(got.Args, large[1].Args) {
		t.Errorf("the args of a large task are another's, or not whole")
	}
	w.wants("the task after a large one", large[2].ID)

	urgent, patient := newTasks(2, "q"), newTasks(2, "q")
	w.add(patient...)
	w.wants("a task in no hurry", patient[0].ID)
	for i := range urgent {
		urgent[i].Priority = -5
	}
	w.add(urgent...)
	w.wants("urgent tasks first", urgent[0].ID, urgent[1].ID, patient[1].ID)

	s.PackAll()
	packs, plain := slices.Concat(newPacks(100, "q"), newPacks(3, "q")), newTasks(2, "q")
	packs[100].Tags = []string{"a"}
	w.add(packs...)
	w.add(plain...)
	for i := range packs {
		if got := w.next(); got == nil || got.ID != packs[i].ID || !bytes.Equal(got.Args, packs[i].Args) ||
			!slices.Equal(got.Tags, packs[i].Tags) {
			t.Fatalf("task %d of packs: claimed %v, want %v", i, got, packs[i])
		}
	}
	w.wants("what follows packs", idsOf(plain)...)

	called := newTasks(3, "q")
	w.add(called...)
	w.wants("a task", called[0].ID)
	if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{called[1].ID},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	w.wants("the one after a cancelled task", called[2].ID)

	late, rolledBack := newTasks(2, "q"), newTasks(2, "q")
	txs := make(chan func(), 2)
	for i, tasks := range [][]store.NewTask{late, rolledBack} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		u := txOf(t, s, tx)
		if _, err := u.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		txs <- func() {
			end := tx.Commit
			if i == 1 {
				end = tx.Rollback
			}
			if err := end(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	}
	early := newTasks(4, "q")
	w.add(early...)
	w.wants("what is committed", early[0].ID, early[1].ID)
	(<-txs)()
	(<-txs)()
	var rest []store.ID
	for got := w.next(); got != nil; got = w.next() {
		rest = append(rest, got.ID)
	}
	want := []store.ID{late[0].ID, late[1].ID, early[2].ID, early[3].ID}
	byID := func(a, b store.ID) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(rest, byID)
	slices.SortFunc(want, byID)
	if !slices.Equal(rest, want) {
		t.Errorf("after late commits it claimed %v, want %v", rest, want)
	}
}

func TestAClaimOfOneTaskIsRepeatedUnderItsToken(t *testing.T) {
	s, _ := fresh(t)
	w := single{t, s, startWorker(t, s)}
	some := newTasks(4, "q")
	w.add(some...)
	w.wants("a task", some[0].ID)
	r := store.ClaimRequest{Worker: w.worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	claim := func(r store.ClaimRequest) (ids []store.ID) {
		tasks, err := s.Claim(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			ids = append(ids, tasks[i].ID)
		}
		return ids
	}
	first := claim(r)
	if !slices.Equal(first, []store.ID{some[1].ID}) {
		t.Fatalf("claimed %v", first)
	}
	w.wants("the one after", some[2].ID)
	if got := claim(r); got != nil {
		t.Errorf("the same token claimed %v once more", got)
	}
	r.Again = true
	if got := claim(r); !slices.Equal(got, first) {
		t.Errorf("claimed again: %v, want %v", got, first)
	}
	w.wants("the last one", some[3].ID)
	w.add(newTasks(2, "q")...)
	if w.next() == nil {
		t.Fatal("nothing claimed")
	}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: w.worker}, TTL: 0}); err != nil {
		t.Fatal(err)
	}
	r = store.ClaimRequest{Worker: w.worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	if tasks, err := s.Claim(t.Context(), r); !errors.Is(err, store.ErrWorkerDead) {
		t.Errorf("the dead claimed %v, %v", tasks, err)
	}
}
