package postgres_test

import (
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

func TestATaskThatSomebodyElseRestoresMeanwhileExists(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	tasks := make([]store.Task, 2)
	for i := range tasks {
		tasks[i] = store.Task{ID: newID(), Queue: "q", Kind: "k", State: store.Cancelled}
	}
	tx := begin(t, pool)
	if _, err := tx.Exec(ctx, `insert into tusk.dead (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args,
		reason, finished_at) values ($1, 7, 0, now(), now(), 0, 0, 'k', '', '', now())`, tasks[0].ID); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		exist []store.ID
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		_, exist, err := s.Restore(ctx, store.Record{Kind: "k", Name: "n", Body: []byte("{}")}, tasks)
		answered <- answer{exist, err}
	}()
	eventually(t, "it waits", func() bool { return number(t, pool, blocked) == 1 })
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.err != nil || !slices.Equal(a.exist, []store.ID{tasks[0].ID}) {
		t.Errorf("%v exist, %v", a.exist, a.err)
	}
}
