package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestAPanicIsTheErrorOfOneCall(t *testing.T) {
	s := openTest(t)
	blocked := block(t, s)
	var calls sync.WaitGroup
	for i := range 3 {
		calls.Go(func() {
			err := s.write(t.Context(), true, func(w *work) error {
				if i == 1 {
					panic("boom")
				}
				_, err := w.kind("q", string(rune('a'+i)))
				return err
			})
			if (err != nil) != (i == 1) || i == 1 && !strings.Contains(err.Error(), "boom") {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	for len(s.writer.calls) < 3 {
		time.Sleep(time.Millisecond)
	}
	close(blocked)
	calls.Wait()
}

func TestAPanicOfAReaderSpoilsNoConnection(t *testing.T) {
	s := openTest(t)
	for range readers {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the caller was not told")
				}
			}()
			_ = s.read(t.Context(), func(context.Context, session) error { panic("boom") })
		}()
	}
	for range 2 * readers {
		if _, err := s.List(t.Context(), store.Filter{}); err != nil {
			t.Error(err)
		}
	}
}

// block makes the writer busy until the channel is closed.
func block(t *testing.T, s *Store) chan struct{} {
	until, begun := make(chan struct{}), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		var once sync.Once
		if err := s.write(context.Background(), true, func(*work) error {
			once.Do(func() { close(begun) })
			<-until
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(done.Wait)
	<-begun
	return until
}

func TestLargeCallsShareNoTransactionAndDelayNoHeartbeat(t *testing.T) {
	s := openTest(t)
	blocked := block(t, s)
	var mu sync.Mutex
	var order []string
	begun := map[*transaction]int{}
	var calls sync.WaitGroup
	note := func(what string) func(w *work) error {
		return func(w *work) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
			begun[w.transaction]++
			return nil
		}
	}
	for range 8 {
		calls.Go(func() {
			if err := s.writeMany(t.Context(), bulk/2, note("many")); err != nil {
				t.Error(err)
			}
		})
	}
	for len(s.writer.calls) < 8 {
		time.Sleep(time.Millisecond)
	}
	calls.Go(func() {
		if err := s.submit(s.writer.beats, &call{ctx: t.Context(), size: 1, fn: note("beat")}); err != nil {
			t.Error(err)
		}
	})
	for len(s.writer.beats) == 0 {
		time.Sleep(time.Millisecond)
	}
	close(blocked)
	calls.Wait()
	if order[0] != "beat" && order[1] != "beat" {
		t.Errorf("the heartbeat was delayed: %v", order)
	}
	for _, n := range begun {
		if n > 3 {
			t.Errorf("a transaction has %d calls: %v", n, order)
		}
	}
}

// tallying opens connections that count the statements that are prepared and not closed.
type tallying struct {
	driver.Driver
	dsn  string
	open atomic.Int64
}

type (
	fullConn interface {
		driver.Conn
		driver.ConnPrepareContext
		driver.ConnBeginTx
		driver.ExecerContext
		driver.QueryerContext
	}
	fullStmt interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	tallyConn struct {
		fullConn
		of *tallying
	}
	tallyStmt struct {
		fullStmt
		of *tallying
	}
)

func (d *tallying) Connect(context.Context) (driver.Conn, error) {
	conn, err := d.Driver.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return tallyConn{conn.(fullConn), d}, nil
}

func (c tallyConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	c.of.open.Add(1)
	return tallyStmt{stmt.(fullStmt), c.of}, nil
}

func (s tallyStmt) Close() error {
	s.of.open.Add(-1)
	return s.fullStmt.Close()
}

// connector implements driver.Connector.
type connector struct{ *tallying }

func (c connector) Driver() driver.Driver { return c.tallying.Driver }

func TestManyCallsInATransactionLeaveNoStatementsBehind(t *testing.T) {
	s := openTest(t)
	d := &tallying{Driver: s.db.Driver(), dsn: "file:" + s.Path() + "?_txlock=immediate"}
	db := sql.OpenDB(connector{d})
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for i := range 20 {
		in, err := s.Tx(tx)
		if err == nil {
			_, err = in.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{1, byte(i)}, Kind: "k", Queue: "q"},
				{ID: store.ID{2, byte(i)}, Kind: "k", Queue: "q"}, {ID: store.ID{3, byte(i)}, Kind: "k", Queue: "q"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := d.open.Load(); n > 0 {
		t.Errorf("%d statements are open", n)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if tasks, err := s.List(t.Context(), store.Filter{Limit: 100}); err != nil || len(tasks) != 60 {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
}

func TestOldStatisticsAndEndsAreDeletedInSeveralTransactions(t *testing.T) {
	s := openTest(t)
	term := leading(t, s)
	const rows = 2*rowsAtOnce + 1
	for _, fill := range []string{
		"insert into tusk_stat (at, kind, completed, failed, discarded, cancelled, waited, ran) " +
			"select value, 1, 0, 0, 0, 0, x'', x'' from generate_series(1, ?)",
		"insert into tusk_end (task, kind, state, at, rescued) select x'00', 1, 6, 1, 0 from generate_series(1, ?)",
	} {
		fill = strings.Replace(fill, "generate_series(1, ?)",
			"(with recursive n (value) as (select 1 union all select value + 1 from n where value < ?) select value from n)", 1)
		if _, err := s.db.Exec(fill, rows); err != nil {
			t.Fatal(err)
		}
	}
	for what, forget := range map[string]func() error{
		"tusk_stat": func() error { _, err := s.Prune(t.Context(), term, store.Retention{Stats: time.Hour}, 10); return err },
		"tusk_end":  func() error { return s.Forget(t.Context(), "1000000000") },
	} {
		before := s.counts.roundTrips.Load()
		if err := forget(); err != nil {
			t.Fatal(err)
		}
		if n := s.counts.roundTrips.Load() - before; n < 3 {
			t.Errorf("%s: %d round trips", what, n)
		}
		var left int
		if err := s.db.QueryRow("select count(*) from " + what).Scan(&left); err != nil || left > 0 {
			t.Errorf("%s: %d rows are left, %v", what, left, err)
		}
	}
}
