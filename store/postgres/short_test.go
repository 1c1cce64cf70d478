package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

// counted makes new sessions of a pool count their calls of functions. The returned function says how often one was
// called.
func counted(t *testing.T, pool *pgxpool.Pool) func(function string) int64 {
	t.Helper()
	needCounts(t, pool)
	if _, err := pool.Exec(t.Context(),
		"do $$ begin execute 'alter database ' || current_database() || ' set track_functions = pl'; end $$"); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	return func(function string) int64 {
		for _, c := range pool.AcquireAllIdle(t.Context()) {
			_, _ = c.Exec(t.Context(), "select pg_stat_force_next_flush()")
			c.Release()
		}
		return number(t, pool, "select coalesce(sum(calls), 0)::bigint from pg_stat_user_functions where funcname = '"+
			function+"'")
	}
}

// A claim that is likely to find one task asks for one, by the shorter procedure. What others tell of is claimed with
// it.
func TestAClaimAsksForTheOnlyTaskThatIsOffered(t *testing.T) {
	s, pool := fresh(t)
	calls, own, worker := counted(t, pool), hears(t, s), startWorker(t, s)
	other, _ := open(t, pool.Config().ConnString(), false)
	claims := func(want int) {
		t.Helper()
		tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Token: store.NewToken(), Queues: []string{"q"},
			Limit: 10})
		if err != nil || len(tasks) != want {
			t.Fatalf("claimed %d tasks, want %d: %v", len(tasks), want, err)
		}
		if lost, err := s.Finish(t.Context(), completed(tasks)); err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
	}
	enqueue := func(s store.Store) {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
			t.Fatal(err)
		}
		await(t, own, ofQueues)
	}
	enqueue(s)
	claims(1) // from now on it knows the lane
	before := calls("claim")
	taken := false
	for range 100 { // on a busy machine an offer lapses before the claim
		enqueue(s)
		claims(1)
		if taken = calls("claim") == before; taken {
			break
		}
		time.Sleep(time.Second + 100*time.Millisecond)
		before = calls("claim")
	}
	if !taken {
		t.Error("a task that was offered was never claimed by itself")
	}
	for quiet := false; !quiet; { // so that the next hint is about the task of the other process
		select {
		case <-own:
		case <-time.After(200 * time.Millisecond):
			quiet = true
		}
	}
	enqueue(other)
	enqueue(s)
	claims(2)
}
