package server_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// withPool are engines, each with a pool of the program's own on the same database.
var withPool = map[string]func(t *testing.T) (store.Store, *sql.DB, error){
	"sqlite": func(t *testing.T) (store.Store, *sql.DB, error) {
		path := filepath.Join(t.TempDir(), "tusk.db")
		s, err := sqlitefile.Open(t.Context(), path)
		if err != nil {
			return nil, nil, err
		}
		t.Cleanup(func() { s.Close() })
		db, err := sqlitefile.Pool(path + "?_txlock=immediate")
		return s, db, err
	},
	"postgres": func(t *testing.T) (store.Store, *sql.DB, error) {
		dsn := enginetest.PostgresDSN(t)
		db, err := sql.Open("pgx", dsn)
		return enginetest.Postgres(t, dsn), db, err
	},
}

// ends are the ways in which a run can end other than by an outcome that its worker reports.
var ends = map[string]func(r *runs, parse tusk.TaskInfo) error{
	"cancel": func(r *runs, parse tusk.TaskInfo) error {
		_, err := r.client.Cancel(r.t.Context(), parse.ID, "enough")
		return err
	},
	"delete": func(r *runs, parse tusk.TaskInfo) error { return r.client.Delete(r.t.Context(), parse.ID) },
	"operation": func(r *runs, parse tusk.TaskInfo) error {
		f := tusk.Filter{Queues: []string{parse.Queue}, Key: parse.Key}
		o, err := r.client.StartOperation(r.t.Context(), f, tusk.Change{Op: tusk.OpCancel}, nil)
		if err == nil {
			_, err = r.client.CarryOperation(r.t.Context(), o.ID, nil)
		}
		return err
	},
	"tx": func(r *runs, parse tusk.TaskInfo) error {
		mux := tusk.NewMux()
		tusk.HandleKind(mux, parse.Kind, func(ctx context.Context, t *tusk.Task[int]) error {
			tx, err := r.db.BeginTx(ctx, nil)
			if err == nil {
				err = t.CompleteTx(ctx, tx)
			}
			if err != nil {
				return err
			}
			return tx.Commit()
		})
		r.work(mux, parse.Queue)
		return nil
	},
}

// runs is a pipeline for each of the ends, of which only the first stages have workers.
type runs struct {
	t      *testing.T
	store  store.Store
	db     *sql.DB
	client *tusk.Client

	mu    sync.Mutex
	begun map[string]bool // by pipeline and version
}

// work runs a worker until the end of the test.
func (r *runs) work(mux *tusk.Mux, queues ...string) {
	w, err := tusk.NewWorker(r.client, mux, &tusk.WorkerConfig{Queues: queues})
	if err != nil {
		r.t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *runs) hasBegun(pipeline string, version int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun[fmt.Sprint(pipeline, version)]
}

// await waits for a task of a queue for which the condition holds.
func (r *runs) await(queue string, holds func(tusk.TaskInfo) bool) tusk.TaskInfo {
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(20 * time.Millisecond) {
		tasks, err := r.client.List(r.t.Context(), tusk.Filter{Queues: []string{queue}})
		if err != nil {
			r.t.Error(err)
			break
		}
		for _, task := range tasks {
			if holds(task) {
				return task
			}
		}
	}
	r.t.Errorf("there is no such task in the queue %s", queue)
	return tusk.TaskInfo{}
}

// A run waited for up to a minute after another had ended in another way than by its worker's report, and its looks
// used up the rate of its first stage.
func TestARunThatWaitsBeginsHoweverTheOtherEnds(t *testing.T) {
	for name, open := range withPool {
		t.Run(name, func(t *testing.T) {
			s, db, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			r := &runs{t: t, store: migrated(t, s), db: db, client: newClient(t, s), begun: map[string]bool{}}
			var all sync.WaitGroup
			for end, does := range ends {
				all.Go(func() { r.check("p-"+end, does) })
			}
			all.Wait()
		})
	}
}

func (r *runs) check(pipeline string, end func(r *runs, parse tusk.TaskInfo) error) {
	p := tusk.NewPipeline(pipeline).Stage("fetch", nil).Stage("parse", nil)
	fetch, parse := pipeline+".fetch", pipeline+".parse"
	mux := tusk.NewMux()
	tusk.HandleStage(mux, p, "fetch", func(_ context.Context, t *tusk.Task[int]) (int, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.begun[fmt.Sprint(pipeline, t.Args)] = true
		return t.Args, nil
	})
	rate := tusk.Limits{Rate: &tusk.Rate{Allowed: 2, Period: 24 * time.Hour}} // one start for each run
	if err := r.client.SetLimits(r.t.Context(), fetch, rate); err != nil {
		r.t.Error(err)
	}
	r.work(mux, fetch)
	var member tusk.TaskInfo
	for version := 1; version <= 2; version++ {
		_, err := r.client.Enqueue(r.t.Context(), p.Start(version), &tusk.Options{Key: "k", OnConflict: tusk.Rerun})
		if err != nil {
			r.t.Error(err)
		}
		if version == 1 {
			member = r.await(parse, func(t tusk.TaskInfo) bool { return t.State == tusk.StateAvailable })
		}
	}
	waits := r.await(fetch, func(t tusk.TaskInfo) bool {
		return t.State == tusk.StateScheduled && time.Until(t.RunAt) > 6*time.Second
	})
	if err := end(r, member); err != nil {
		r.t.Error(pipeline, err)
	}
	for !r.hasBegun(pipeline, 2) && time.Now().Before(waits.RunAt) {
		time.Sleep(10 * time.Millisecond)
	}
	if !r.hasBegun(pipeline, 2) {
		r.t.Errorf("%s: the second run waits until %v", pipeline, waits.RunAt)
	}
}
