//go:build unix

package storm

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// envLost is how many tasks complete in transactions whose commits lose their answers.
const envLost = "TUSK_TEST_LOST_COMMITS"

// TestCommitsThatLoseTheirAnswersLeaveNoEffectTwice completes each task, with its effect, in a transaction. For every
// second task, the handler does not wait for the answer to the commit, and fails while the commit is in progress.
func TestCommitsThatLoseTheirAnswersLeaveNoEffectTwice(t *testing.T) {
	n := 1500
	if text := os.Getenv(envLost); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", envLost, err)
		}
	}
	for _, name := range []string{"sqlite", "postgres", "pgbouncer", "mysql"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a server")
			}
			n := n
			if name == "sqlite" && os.Getenv(envLost) == "" { // only one transaction at a time
				n /= 5
			}
			newLoser(t, name).run(n)
		})
	}
}

// loser is a worker in this process whose commits lose their answers.
type loser struct {
	t         *testing.T
	part      part
	client    *tusk.Client
	db        *sql.DB
	ran, lost atomic.Int64
}

func newLoser(t *testing.T, name string) *loser {
	t.Helper()
	g := newGround(t, name, t.TempDir(), false)
	l := &loser{t: t, part: part{Engine: g.engine, DSN: g.via}}
	engine, closeStore, err := engines[g.engine].open(t.Context(), g.via)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeStore() })
	dbs, err := l.part.pools()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dbs.Close() })
	l.db = dbs[0]
	if g.engine != "sqlite" {
		l.db.SetMaxOpenConns(10)
	}
	if l.client, err = tusk.NewClient(engine, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *loser) run(n int) {
	mux := tusk.NewMux()
	tusk.HandleKind(mux, doTx, l.handle)
	tusk.HandleKind(mux, doEcho, func(context.Context, *tusk.Task[load]) error { return nil })
	worker, err := tusk.NewWorker(l.client, mux,
		&tusk.WorkerConfig{Queues: []string{queueOpen}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	began := time.Now()
	for at, some, pause := 0, 0, time.Now(); at < n; at += some {
		some = min([]int{10, 500}[rand.IntN(2)], n-at)
		l.enqueue(some, 500-some)
		for l.ran.Load() < int64(at)-1500 {
			if time.Since(pause) > 2*time.Minute {
				l.t.Fatalf("%d tasks were enqueued, and only %d ran", at, l.ran.Load())
			}
			time.Sleep(time.Millisecond)
		}
		pause = time.Now()
	}
	for last, moved := int64(-1), time.Now(); ; time.Sleep(20 * time.Millisecond) {
		left, err := unfinished(l.t.Context(), l.client)
		if err == nil && left == 0 {
			break
		}
		if left != last {
			last, moved = left, time.Now()
		}
		if time.Since(moved) > time.Minute {
			l.t.Fatalf("%d tasks are unfinished: %v", left, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		l.t.Error(err)
	}
	l.check(n)
	l.t.Logf("%d tasks in %v, %d attempts, %d commits without an answer", n, time.Since(began).Round(time.Millisecond),
		l.ran.Load(), l.lost.Load())
}

// enqueue enqueues n tasks that complete in transactions, mixed with plain ones. What transactions hold must not
// delay the plain ones.
func (l *loser) enqueue(n, plain int) {
	tasks := make([]tusk.NewTask, n+plain)
	for i, at := range rand.Perm(len(tasks)) {
		kind := doTx
		if i >= n {
			kind = doEcho
		}
		tasks[at] = tusk.NewTask{Args: kindOf{kind: kind}, Options: &tusk.Options{Queue: queueOpen, MaxAttempts: 100,
			Backoff: tusk.ConstantBackoff(time.Millisecond)}}
	}
	if _, err := l.client.EnqueueMany(l.t.Context(), tasks); err != nil {
		l.t.Fatal(err)
	}
}

func (l *loser) handle(ctx context.Context, t *tusk.Task[load]) error {
	l.ran.Add(1)
	tx, err := l.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, l.part.insert("storm_effect"), t.ID.String(), t.Lease.String()); err != nil {
		tx.Rollback()
		return err
	}
	if err := t.CompleteTx(ctx, tx); err != nil {
		tx.Rollback()
		return err
	}
	if rand.IntN(2) == 0 {
		return tx.Commit()
	}
	answer := make(chan error, 1)
	wait := time.After(rand.N(2 * time.Millisecond))
	go func() {
		time.Sleep(rand.N(10 * time.Millisecond))
		if rand.IntN(8) == 0 { // the request is lost
			answer <- errors.Join(errNoAnswer, tx.Rollback())
		} else {
			answer <- tx.Commit()
		}
	}()
	select {
	case err := <-answer:
		return err
	case <-wait:
		l.lost.Add(1)
		return tusk.RetryAfter(0, errNoAnswer)
	}
}

// check checks that each task has exactly one effect.
func (l *loser) check(n int) {
	l.t.Helper()
	var all, tasks int
	const count = "select count(*), count(distinct id) from storm_effect"
	if err := l.db.QueryRow(count).Scan(&all, &tasks); err != nil {
		l.t.Fatal(err)
	}
	if all != n || tasks != n {
		l.t.Errorf("%d tasks have %d effects, of %d tasks", n, all, tasks)
	}
	if l.lost.Load() < int64(n)/20 {
		l.t.Errorf("only %d commits of %d had no answer", l.lost.Load(), n)
	}
}
