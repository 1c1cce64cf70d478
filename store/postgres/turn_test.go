package postgres_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// The leader is told about tasks in a user's transaction once it has probably been committed.
func TestAUsersTransactionRingsForWhoeverLeads(t *testing.T) {
	s, pool := fresh(t)
	tx := begin(t, pool)
	inside := txOf(t, s, tx)
	tasks := newTasks(2, "limited")
	tasks[0].Turn, tasks[1].Delay = true, time.Second
	if _, err := inside.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	eventually(t, "leaders are told", func() bool { return s.Rung(bell.Turns) && s.Rung(bell.Soon) })
}

// Many tasks that only wait for their turn get in line by one COPY, in the given order. No worker is told before
// they are granted, and a flush gives back their turns by one statement.
func TestManyTasksGetInLineAndGiveTheirTurnsBackTogether(t *testing.T) {
	ctx := t.Context()
	s, pool := fresh(t)
	term := lead(t, s)
	tasks := newTasks(100, "limited")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Tenant, tasks[i].Partition = true, "acme", "p"
		tasks[i].Tags, tasks[i].Settings, tasks[i].ExpiresAt = []string{"a", "b"}, []byte(`{"x":1}`), time.Unix(4e9, 0).UTC()
	}
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	if s.Rung("limited") {
		t.Error("told of tasks that cannot run yet")
	}
	if !s.Rung(bell.Turns) || s.Rung(bell.Due) || s.Rung(bell.Soon) {
		t.Error("whoever leads is not told that tasks wait for their turn, or that they are due")
	}
	if n := number(t, pool, `
		select count(*) from tusk.line_1 w
		where w.state = 2 and w.turn and w.tenant = 'acme' and w.partition = 'p' and w.tags = '{a,b}'
			and w.settings = '{"x":1}' and w.expires_at = to_timestamp(4e9) and w.attempt = 0 and w.crashes = 0
			and w.line = w.run_at and w.line = w.enqueued_at`); n != 100 {
		t.Errorf("%d of 100 stand in line as they are", n)
	}
	turns, err := s.Turns(ctx, term, 10, 1000)
	if err != nil || len(turns) != 1 {
		t.Fatal(turns, err)
	}
	for i, id := range turns[0].Waiting {
		if id != tasks[i].ID {
			t.Fatalf("task %d is not the one given", i)
		}
	}
	if n, err := s.Grant(ctx, term, turns[0].Waiting); err != nil || n != 100 {
		t.Fatal(n, err)
	}
	if !s.Rung("limited") {
		t.Error("not told of tasks that may run")
	}
	w := store.Beat{Worker: store.Worker{ID: newID()}, TTL: time.Hour}
	if _, err := s.Extend(ctx, w); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: w.Worker.ID, Queues: []string{"limited"}, Limit: 1000,
		Token: store.NewToken()})
	if err != nil || len(claimed) != 100 {
		t.Fatal(len(claimed), err)
	}
	outcomes := make([]store.Outcome, len(claimed))
	for i := range claimed {
		outcomes[i] = store.Outcome{Task: &claimed[i], State: store.Completed, Attempt: claimed[i].Attempt}
	}
	before := s.Trips()
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if n := s.Trips() - before; n != 1 {
		t.Errorf("%d round trips, want 1", n)
	}
	if n := number(t, pool, "select count(*) from tusk.turn"); n != 0 {
		t.Errorf("%d turns are held by nobody", n)
	}
}

// A short line is read as a whole, a long one group by group. Both ways find the same groups and tasks first.
func TestAShortLineIsReadAsALongOne(t *testing.T) {
	ctx := t.Context()
	s, _ := fresh(t)
	term := lead(t, s)
	tasks := newTasks(30, "limited")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Tenant, tasks[i].Priority = true, []string{"b", "a", "c"}[i%3], int16(-(i / 15))
		if _, err := s.Enqueue(ctx, tasks[i:i+1]); err != nil { // one by one, so that they stand one behind the other
			t.Fatal(err)
		}
	}
	look := func(groups, heads int) []store.Turns {
		t.Helper()
		turns, err := s.Turns(ctx, term, groups, heads)
		if err != nil {
			t.Fatal(err)
		}
		return turns
	}
	short := look(2, 6)
	if len(short) != 2 || short[0].Tenant != "b" || short[1].Tenant != "a" {
		t.Fatalf("a short line begins with %+v", short)
	}
	for g, of := range short {
		want := []store.ID{tasks[15+g].ID, tasks[18+g].ID, tasks[21+g].ID, tasks[24+g].ID, tasks[27+g].ID, tasks[g].ID}
		if !slices.Equal(of.Waiting, want) {
			t.Errorf("of %s wait %v, want %v", of.Tenant, of.Waiting, want)
		}
	}
	behind := newTasks(200, "limited")
	for i := range behind {
		behind[i].Turn, behind[i].Tenant = true, "d"
	}
	if _, err := s.Enqueue(ctx, behind); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first look finds that the line is long
		if long := look(2, 6); !reflect.DeepEqual(long, short) {
			t.Errorf("a long line begins with %+v, a short one with %+v", long, short)
		}
	}
	if n, err := s.Grant(ctx, term+1, []store.ID{tasks[0].ID}); !errors.Is(err, store.ErrNotLeader) || n != 0 {
		t.Errorf("who does not lead has granted %d turns: %v", n, err)
	}
	if _, err := s.Turns(ctx, term+1, 2, 6); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("who does not lead has looked: %v", err)
	}
}
