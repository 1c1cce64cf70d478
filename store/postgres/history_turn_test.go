package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// turn makes segments of the log come and go under the load: it uses up transaction ids, makes segments ahead,
// prunes history, and drops spent segments. In a history of minutes, every third turn runs beside an open
// transaction that keeps segments from being dropped.
func (h *history) turn(ctx context.Context, _ *rand.Rand) error {
	// The next segment gets as few transactions as possible.
	const idle = "update tusk.segment set made_at = '2000-01-01'"
	const burn = `do $$ begin for i in 1 .. 10000 loop perform pg_current_xact_id(); commit; end loop; end $$`
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "set synchronous_commit = off")
	if err == nil {
		_, err = conn.Exec(ctx, burn)
	}
	if err == nil {
		_, err = conn.Exec(ctx, idle)
	}
	if err == nil {
		_, err = conn.Exec(ctx, "reset synchronous_commit")
	}
	conn.Release()
	if err != nil {
		return err
	}
	h.turns++
	beside := h.length >= time.Minute && h.turns%3 == 0
	if beside {
		tx, err := h.read(ctx)
		if err != nil {
			return err
		}
		ended := time.AfterFunc(20*time.Second, func() { _ = tx.Rollback(ctx) })
		defer func() {
			if ended.Stop() {
				_ = tx.Rollback(ctx)
			}
		}()
	}
	if _, err := h.s.Prune(ctx, h.term, store.Retention{Completed: 2 * time.Second}, 100000); err != nil {
		return err
	}
	began := time.Now()
	err = h.s.Maintain(ctx, h.term)
	if took := time.Since(began); beside && took > 12*time.Second {
		h.t.Errorf("maintenance takes %v beside an open transaction that has read the log", took)
	}
	return err
}

// read leaves a transaction open that has read every segment of the log.
func (h *history) read(ctx context.Context) (pgx.Tx, error) {
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "select count(*) from tusk.log"); err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return tx, nil
}

// large ends a lease of many tasks, one of them in an open transaction. No one else meets these tasks.
func (h *history) large(ctx context.Context, n int) error {
	tasks := newTasks(n, "large")
	for some := range slices.Chunk(tasks, 5000) {
		if _, err := h.s.Enqueue(ctx, some); err != nil {
			return err
		}
	}
	w := newID()
	_, err := h.s.Extend(ctx, store.Beat{Worker: store.Worker{ID: w}, TTL: time.Hour})
	if err != nil {
		return err
	}
	lease, err := h.s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"large"}, Limit: n,
		Token: store.NewToken()})
	if err != nil || len(lease) != n {
		return fmt.Errorf("claimed %d of %d: %v", len(lease), n, err)
	}
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	u, err := h.s.Tx(tx)
	if err != nil {
		return err
	}
	if lost, err := u.Finish(ctx, completed(lease[:1])); err != nil || len(lost) > 0 {
		return fmt.Errorf("finish of one of %d tasks inside a transaction: lost %d, %v", n, len(lost), err)
	}
	if lost, err := h.s.Finish(ctx, completed(lease[1:])); err != nil || len(lost) > 0 {
		return fmt.Errorf("finish of %d tasks beside an open transaction: lost %d, %v", n-1, len(lost), err)
	}
	return tx.Commit(ctx)
}

// checkPooler looks at each connection that a pooler has to the server.
func (h *history) checkPooler(dsn string, connections int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), historyCall)
	defer cancel()
	h.engine.Reset()
	_, pool := open(h.t, dsn+"&pool_max_conns="+fmt.Sprint(connections), false)
	const ask = `select pg_backend_pid(), current_setting('statement_timeout') || ' ' || current_setting('lock_timeout'),
		(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())`
	looked := map[int]bool{}
	var all []pgx.Tx
	for range connections {
		tx, err := pool.Begin(ctx)
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, tx)
		var pid, locks int
		var timeouts string
		if err := tx.QueryRow(ctx, ask).Scan(&pid, &timeouts, &locks); err != nil {
			h.t.Fatal(err)
		}
		if looked[pid] = true; timeouts != "0 0" || locks > 0 {
			h.t.Errorf("a connection of the pooler keeps the timeouts %s and %d advisory locks", timeouts, locks)
		}
	}
	for _, tx := range all {
		if err := tx.Rollback(ctx); err != nil {
			h.t.Error(err)
		}
	}
	if len(looked) != connections {
		h.t.Errorf("looked at %d connections of %d", len(looked), connections)
	}
}

// segments returns how many segments were made, and how many of them were dropped.
func (h *history) segments() (made, gone int64) {
	made = number(h.t, h.pool, "select max(substr(name, 6)::bigint) + 1 from tusk.segment")
	return made, made - number(h.t, h.pool, "select count(*) from tusk.segment")
}

// A session that claims has a transaction id that its own snapshot does not list. Rows that it put into the log
// would count as claimed, and would be lost.
func TestAClaimPutsNothingIntoTheLog(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	if _, err := s.Enqueue(ctx, newTasks(10, "q")); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool)
	var claimed, own int
	const claim = "select coalesce(sum(cardinality(args)), 0) from tusk_fn.claim($1, gen_random_uuid(), " +
		"array[tusk_fn.lane_of('q', -32768)], 4, 0, false, false)"
	if err := tx.QueryRow(ctx, postgres.InFunctions(claim), [16]byte(w)).Scan(&claimed); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(ctx, postgres.InFunctions("select count(*) from tusk_fn.task where xid = pg_current_xact_id()")).
		Scan(&own); err != nil {
		t.Fatal(err)
	}
	if claimed != 4 || own != 0 {
		t.Fatalf("claimed %d, %d rows of its own", claimed, own)
	}
	if _, err := s.Enqueue(ctx, newTasks(10, "q")); err != nil { // beside that transaction, with a later id
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	rest := 0
	for range 3 {
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 8, Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		rest += len(tasks)
	}
	if rest != 16 {
		t.Errorf("%d were left, want 16", rest)
	}
}
