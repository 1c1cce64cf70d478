package postgres_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// The owner of the tables can store values that no check lets in. They hold up no other tasks.

// spoil stores a task and changes its row in the log.
func spoil(t *testing.T, s store.Store, pool *pgxpool.Pool, set string, args ...any) store.ID {
	t.Helper()
	task := newTasks(1, "default")
	if _, err := s.Enqueue(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(context.Background(), "update tusk.log set "+set+" where id = '"+task[0].ID.String()+"'",
		args...); err != nil {
		t.Fatal(err)
	}
	return task[0].ID
}

// incompressible text is too long for an index.
func incompressible() string {
	b := make([]byte, 4000)
	rand.Read(b)
	return hex.EncodeToString(b)
}

type job struct{ N int }

func (job) Kind() string { return "job" }

func TestWorkersGoOnPastDamagedTasks(t *testing.T) {
	s, pool := fresh(t)
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	square := []store.ID{spoil(t, s, pool, "tags = array[['a','b'],['c','d']]"),
		spoil(t, s, pool, "tags = array[['a','b'],['c','d']], kind = 'job'")}
	spoil(t, s, pool, "kind = $1", incompressible())
	spoil(t, s, pool, "tags = array[$1]", incompressible())
	spoil(t, s, pool, "kind = 'job', run_at = '-infinity', expires_at = 'infinity'")
	if _, err := pool.Exec(t.Context(), postgres.InFunctions(
		`insert into tusk.waiting (id, state, lane, run_at, enqueued_at, attempt, crashes, kind, args, line)
		select tusk_fn.new_id(), 1, tusk_fn.lane_of('default', 0), x.at, x.at, 0, 0, 'job', '{}', null
		from unnest('{infinity,294275-01-01,-infinity}'::timestamptz[]) x(at)`)); err != nil {
		t.Fatal(err)
	}
	var done, again atomic.Int32
	mux := tusk.NewMux()
	tusk.Handle(mux, func(_ context.Context, task *tusk.Task[job]) error {
		if task.Args.N%10 == 1 && task.Attempt == 1 {
			return tusk.RetryAfter(time.Millisecond, context.DeadlineExceeded)
		}
		if task.Attempt == 2 {
			again.Add(1)
		}
		done.Add(1)
		return nil
	})
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Logger: slog.New(slog.DiscardHandler),
		Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { stop(); <-ended }()
	for i := range 100 {
		if _, err := client.Enqueue(t.Context(), job{i}, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all tasks beside the damaged ones run", func() bool { return done.Load() >= 100 && again.Load() == 10 })
	for _, id := range square {
		var task *tusk.TaskInfo
		eventually(t, "a damaged task is put aside",
			func() bool { task, err = client.Get(t.Context(), id); return err == nil && task.State.Finished() })
		if task.State != store.Discarded || !strings.HasPrefix(task.Reason, "damaged in the database: its tags ") {
			t.Errorf("%v %q", task.State, task.Reason)
		}
	}
	list, err := client.List(t.Context(), tusk.Filter{})
	if err != nil || len(list) < 100 {
		t.Fatal(len(list), err)
	}
	for i := range list {
		for _, at := range []time.Time{list[i].RunAt, list[i].EnqueuedAt, list[i].ExpiresAt} {
			if _, err := at.MarshalJSON(); err != nil {
				t.Errorf("task %v cannot be shown: %v", list[i].ID, err)
			}
		}
	}
}

// An exchange that knows the lane reads the row itself. Any other exchange leaves that to a claim.
func TestAnExchangeTellsDamagedTags(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w := startWorker(t, s)
	for _, knows := range []bool{true, false} {
		if _, err := s.Enqueue(ctx, newTasks(1, "default")); err != nil {
			t.Fatal(err)
		}
		request := func() store.ClaimRequest {
			return store.ClaimRequest{Worker: w, Queues: []string{"default"}, Limit: 1, Token: store.NewToken()}
		}
		tasks, err := s.Claim(ctx, request())
		if err != nil || len(tasks) != 1 {
			t.Fatal(len(tasks), err)
		}
		by := s
		if !knows {
			if by, err = postgres.New(ctx, pool, postgres.Options{}); err != nil {
				t.Fatal(err)
			}
			defer by.Close()
		}
		id := spoil(t, s, pool, "tags = array[['a','b'],['c','d']]")
		x := by.Exchange(ctx, completed(tasks)[0], request())
		if x.ClaimErr != nil || x.FinishErr != nil || x.Lost || len(x.Tasks) != 1 || x.Tasks[0].ID != id {
			t.Fatalf("knows the lane %v: %+v", knows, x)
		}
		if !strings.HasPrefix(x.Tasks[0].Damage, "its tags ") {
			t.Errorf("knows the lane %v: tags %q, damage %q", knows, x.Tasks[0].Tags, x.Tasks[0].Damage)
		}
		if lost, err := s.Finish(ctx, completed(x.Tasks)); err != nil || len(lost) > 0 {
			t.Error(lost, err)
		}
	}
}

func TestTasksWithWhatNoIndexHoldsAreWrittenBack(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	for _, set := range []string{"kind = $1", "tags = array['a', $1]"} {
		spoil(t, s, pool, set, incompressible())
		spoil(t, s, pool, set, incompressible())
		spoil(t, s, pool, set, incompressible())
	}
	w := startWorker(t, s)
	tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"default"}, Limit: 10,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 6 {
		t.Fatal(len(tasks), err)
	}
	states := []store.State{store.Retryable, store.Discarded, store.Completed}
	var outcomes []store.Outcome
	for i := range tasks {
		outcomes = append(outcomes, store.Outcome{Task: &tasks[i], State: states[i%3], Attempt: 1, Error: "failed",
			Fingerprint: "f"})
		if states[i%3] == store.Completed {
			outcomes[i].Error, outcomes[i].Fingerprint = "", ""
		}
	}
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Error(lost, err)
	}
	if n := number(t, pool, "select count(*) from tusk.waiting") +
		number(t, pool, "select count(*) from tusk.dead"); n != 4 {
		t.Errorf("%d of 4 were written back", n)
	}
}

func TestMaintenanceTakesEveryStepThoughAnotherFails(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	term, w := lead(t, s), startWorker(t, s)
	goRound(t, s, w, 10)
	shrink(t, pool)
	for _, set := range []string{"kind = $1", "tags = array['a', null, $1]", "tags = array[['a'],[$1]]"} {
		spoil(t, s, pool, set, incompressible())
	}
	// Statistics that cannot be read, and a catalogue that cannot be written.
	for _, text := range []string{
		"insert into tusk.stat (at, minutes, stats) values (now(), 0, 'not JSON'), (date_trunc('minute', now()), 1, " +
			"'nor this')",
		"alter table tusk.catalogue add constraint full_up check (tasks < 0) not valid",
	} {
		if _, err := pool.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Enqueue(ctx, newTasks(6000, "q")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond}, 1000); err != nil {
		t.Fatal(err)
	}
	err := s.Maintain(ctx, term)
	if err == nil || !strings.Contains(err.Error(), "fold statistics: ") ||
		!strings.Contains(err.Error(), "write the catalogue: ") {
		t.Errorf("maintain: %v", err)
	}
	if err := s.Maintain(ctx, term); err == nil {
		t.Error("the catalogue was written")
	}
	if n := number(t, pool, "select max(substr(name, 6)::int) from tusk.segment"); n < 2 {
		t.Error("no segment was made")
	}
	if _, err := pool.Exec(ctx, "alter table tusk.catalogue drop constraint full_up"); err != nil {
		t.Fatal(err)
	}
	if err := s.Maintain(ctx, term); err != nil {
		t.Errorf("what could not be read is told of again, or the catalogue cannot be written: %v", err)
	}
	if n := number(t, pool, "select count(*) from tusk.catalogue"); n == 0 {
		t.Error("nothing is in the catalogue")
	}
	if list, err := s.List(ctx, store.Filter{Kinds: []string{"mail"}, Limit: 10}); err != nil || len(list) != 10 {
		t.Error(len(list), err)
	}
}

func TestGroupsOfErrorsGoWithTheStatistics(t *testing.T) {
	s, _ := fresh(t)
	tasks, term := running(t, s, newTasks(2, "q")), lead(t, s)
	out := []store.Outcome{{Task: &tasks[0], State: store.Discarded, Error: "a", Fingerprint: "a"},
		{Task: &tasks[1], State: store.Retryable, Error: "b", Fingerprint: "b", Delay: time.Hour}}
	if lost, err := s.Finish(t.Context(), out); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	keep := store.Retention{Discarded: time.Hour, Stats: time.Microsecond}
	for want := 2; want > 0; want-- {
		if _, err := s.Prune(t.Context(), term, keep, 100); err != nil {
			t.Fatal(err)
		}
		groups, err := s.Errors(t.Context(), store.ErrorFilter{})
		if err != nil || len(groups) != want {
			t.Errorf("%+v %v: want %d", groups, err, want)
		}
		keep.Discarded = time.Microsecond
	}
}
