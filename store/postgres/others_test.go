package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Sessions that work count among the others. Sessions that wait for a lock or sleep do not.
func TestOthersAreSeenWhileTheyWork(t *testing.T) {
	s, pool := fresh(t)
	until := func(what string, want func(n int) bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			n, err := store.Neighbour(s).Others(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want(n) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d others are seen", what, n)
			}
		}
	}
	none, some := func(n int) bool { return n == 0 }, func(n int) bool { return n > 0 }
	run := func(sql string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = pool.Exec(ctx, sql)
		}()
		return func() {
			cancel()
			<-ended
		}
	}
	until("nobody else is there", none)
	stop := run("select count(*) from generate_series(1, 1000000000)")
	until("one counts", some)
	stop()
	until("nobody counts any more", none)
	held := acquire(t, pool)
	defer held.Release()
	if _, err := held.Exec(t.Context(), "select pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	for _, waits := range []string{"select pg_sleep(60)", "select pg_advisory_lock(1)"} {
		stop := run(waits)
		until(waits, func(int) bool {
			return number(t, pool, "select count(*) from pg_stat_activity where state = 'active' and query = '"+waits+"'") > 0
		})
		until(waits, none)
		stop()
	}
}
