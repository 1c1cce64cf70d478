package mysql_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/storetest"
)

var (
	bars    = flag.Bool("bars", false, "measure the engine beside the article's table: takes minutes")
	seconds = flag.Int("bars.seconds", 8, "how long each contender runs")
	rounds  = flag.Int("bars.rounds", 2, "how often, in turns")
	history = flag.Int("bars.history", 0, "finished tasks to begin with")
)

const (
	barWorkers = 16
	barBatch   = 20
	barArgs    = `{"user":12345,"text":"abcdefghijklmnopqrstuvwxyz","list":[1,2,3,4,5,6,7,8]}`
)

// article is the table of "A queue table in MySQL", with its statements: claim by
// one update, read what was claimed, mark it as done.
type article struct {
	db     *sql.DB
	single bool // marks tasks as done one by one
}

const articleTable = `create table queue (
	id      bigint not null auto_increment primary key,
	status  int not null default 0,
	owner   bigint not null default 0,
	ts      timestamp not null default current_timestamp,
	payload text not null,
	key (owner, status, ts)
) engine = innodb`

func (a *article) fill(n int) error {
	for ; n > 0; n -= 500 {
		rows := strings.TrimSuffix(strings.Repeat("('"+barArgs+"'),", min(n, 500)), ",")
		if _, err := a.db.Exec("insert into queue (payload) values " + rows); err != nil {
			return err
		}
	}
	return nil
}

// worker returns what claims and finishes a batch on a connection of its own.
func (a *article) worker(ctx context.Context) (func() (int, error), error) {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return func() (int, error) {
		r, err := conn.ExecContext(ctx, "update queue set owner = connection_id(), ts = now() where owner = 0 and status = 0 order by ts limit "+strconv.Itoa(barBatch))
		if err != nil {
			return 0, err
		}
		if n, _ := r.RowsAffected(); n == 0 {
			return 0, nil
		}
		rows, err := conn.QueryContext(ctx, "select id, payload from queue where owner = connection_id() and status = 0")
		if err != nil {
			return 0, err
		}
		var ids []string
		for rows.Next() {
			var id, payload string
			if err := rows.Scan(&id, &payload); err != nil {
				return 0, err
			}
			ids = append(ids, id)
		}
		if err := rows.Close(); err != nil {
			return 0, err
		}
		groups := []string{strings.Join(ids, ",")}
		if a.single {
			groups = ids
		}
		for _, group := range groups {
			if _, err := conn.ExecContext(ctx, "update queue set status = 1, owner = 0, ts = now() where id in ("+group+")"); err != nil {
				return 0, err
			}
		}
		return len(ids), nil
	}, nil
}

// tusk runs tasks through the engine.
type tusk struct{ stores []*mysql.Store }

func (k *tusk) fill(n int) error {
	for ; n > 0; n -= 500 {
		tasks := make([]store.NewTask, min(n, 500))
		for i := range tasks {
			tasks[i] = store.NewTask{ID: storetest.NewID(), Kind: "mail", Queue: "default", Args: []byte(barArgs)}
		}
		if _, err := k.stores[0].Enqueue(context.Background(), tasks); err != nil {
			return err
		}
	}
	return nil
}

func (k *tusk) worker(ctx context.Context, i int) (func() (int, error), error) {
	s, id := k.stores[i%len(k.stores)], storetest.NewID()
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id}, TTL: time.Hour}); err != nil {
		return nil, err
	}
	return func() (int, error) {
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: id, Queues: []string{"default"}, Limit: barBatch, Token: store.NewToken()})
		if err != nil || len(tasks) == 0 {
			return 0, err
		}
		outcomes := make([]store.Outcome, len(tasks))
		for i := range tasks {
			outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt, Ran: time.Millisecond}
		}
		lost, err := s.Finish(ctx, outcomes)
		if len(lost) > 0 {
			return 0, fmt.Errorf("%d outcomes were lost", len(lost))
		}
		return len(tasks), err
	}, nil
}

// race runs workers for a while and returns tasks per second and how many
// deadlocks there were.
func race(t *testing.T, worker func(i int) (func() (int, error), error)) (perSecond float64, deadlocks int64) {
	t.Helper()
	var done, dead atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	end := start.Add(time.Duration(*seconds) * time.Second)
	for i := range barWorkers {
		run, err := worker(i)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for empty := 0; time.Now().Before(end) && empty < 20; {
				n, err := run()
				switch {
				case err != nil && strings.Contains(err.Error(), "1213"):
					dead.Add(1)
				case err != nil:
					t.Errorf("%v", err)
					return
				case n == 0:
					empty++
				default:
					empty = 0
					done.Add(int64(n))
				}
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(start).Seconds(), dead.Load()
}

func TestBarsBesideTheArticlesTable(t *testing.T) {
	if !*bars {
		t.Skip("measures for minutes: run it with -bars")
	}
	ctx := context.Background()
	server := mysqltest.Start(t, "--innodb-buffer-pool-size=4G", "--innodb-log-file-size=1G")
	dsn := server.Database(t)
	migrate(t, dsn)
	one := open(t, dsn)
	var many []*mysql.Store
	for range barWorkers {
		many = append(many, open(t, dsn))
	}
	db, _, err := mysql.Pool(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(40)
	lead, err := one.Lead(ctx, store.Candidate{ID: storetest.NewID(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cpu := func() time.Duration {
		m, err := one.Measure(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return m.ServerCPU
	}
	if *history > 0 {
		fillHistory(t, db, *history)
	}
	backlog := 25000 * *seconds
	report := func(name string, perSecond float64, deadlocks int64, spent time.Duration) {
		n := perSecond * float64(*seconds)
		fmt.Fprintf(os.Stderr, "%-44s %8.0f tasks/s, server %4.0f µs a task, %d deadlocks\n", name, perSecond, float64(spent.Microseconds())/n, deadlocks)
	}
	for range *rounds {
		for _, single := range []bool{true, false} {
			if _, err := db.Exec("drop table if exists queue"); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(articleTable); err != nil {
				t.Fatal(err)
			}
			a := &article{db, single}
			if err := a.fill(backlog); err != nil {
				t.Fatal(err)
			}
			was := cpu()
			perSecond, deadlocks := race(t, func(int) (func() (int, error), error) { return a.worker(ctx) })
			report(fmt.Sprintf("article, done one by one: %v", single), perSecond, deadlocks, cpu()-was)
			db.Close()
			if db, _, err = mysql.Pool(dsn); err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(40)
		}
		for _, stores := range [][]*mysql.Store{{one}, many} {
			k := &tusk{stores}
			if err := k.fill(backlog); err != nil {
				t.Fatal(err)
			}
			if err := one.Maintain(ctx, lead.Term); err != nil {
				t.Fatal(err)
			}
			was := cpu()
			perSecond, deadlocks := race(t, func(i int) (func() (int, error), error) { return k.worker(ctx, i) })
			retried := int64(0)
			for _, s := range append(many, one) {
				m, _ := s.Measure(ctx)
				retried += m.Conflicts
			}
			report(fmt.Sprintf("tusk, %d processes (conflicts so far %d)", len(stores), retried), perSecond, deadlocks, cpu()-was)
			for _, table := range []string{"tusk_ready"} {
				if _, err := db.Exec("delete from " + table); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// fillHistory makes finished tasks without running them.
func fillHistory(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for i := 0; i < n; i += 100000 {
		_, err := db.Exec(`insert into tusk_task (place, n, id, queue, kind, priority, state, lap, attempt, crashes, enqueued_at, run_at,
				claimed_at, finished_at, worker, needs, needed, awaits, turn, args)
			select (unix_timestamp() - 1704067200 - 3600) * 1000 * 4194304 + (? + seq) div 1000, (? + seq) % 1000,
				unhex(concat('01', lpad(hex(? + seq), 30, '0'))), 'default', 'mail', 0, 6, 0, 1, 0, 1.7e15, 1.7e15, 1.7e15, 1.7e15,
				'', 0, 0, 0, 0, ?
			from seq_0_to_99999`, i, i, i, barArgs)
		if err != nil {
			t.Fatal(err)
		}
	}
}
