package tusktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/tusktest"
)

type mail struct{ To string }

func (mail) Kind() string { return "mail" }

type report struct{ Day int }

func (report) Kind() string { return "report" }

var ctx = context.Background()

// kits runs a test in memory and on a database of its own.
func kits(t *testing.T, test func(t *testing.T, k *tusktest.Kit)) {
	t.Run("memory", func(t *testing.T) { test(t, tusktest.Memory(t)) })
	t.Run("sqlite", func(t *testing.T) { test(t, tusktest.New(t, enginetest.SQL["sqlite"](t), nil)) })
	t.Run("postgres", func(t *testing.T) {
		_, engine := database(t)
		test(t, tusktest.New(t, engine, nil))
	})
}

// database creates a PostgreSQL database for the test.
func database(t *testing.T) (*pgxpool.Pool, *postgres.Store) {
	t.Helper()
	pool, err := pgxpool.New(ctx, enginetest.PostgresDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	engine, err := postgres.New(ctx, pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return pool, engine
}

func TestMain(m *testing.M) { enginetest.Main(m) }

func enqueue(t *testing.T, k *tusktest.Kit, args tusk.Args, o *tusk.Options) tusk.ID {
	t.Helper()
	r, err := k.Client.Enqueue(ctx, args, o)
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func TestWhatWasEnqueuedIsRecorded(t *testing.T) {
	k := tusktest.Memory(t)
	enqueue(t, k, mail{"ada"}, &tusk.Options{Queue: "mails", Key: "ada", Tags: []string{"a", "b"}, Delay: time.Hour})
	enqueue(t, k, mail{"bob"}, &tusk.Options{Tenant: "acme"})
	enqueue(t, k, report{1}, nil)
	found := tusktest.RequireEnqueued[mail](k, &tusktest.Want{Queue: "mails", Key: "ada", Tags: []string{"b"},
		Delay: time.Hour, Count: 1})
	if found[0].Args.To != "ada" {
		t.Errorf("found %+v", found[0].Args)
	}
	if all := tusktest.RequireEnqueued[mail](k, nil); len(all) != 2 || all[1].Tenant != "acme" {
		t.Errorf("found %+v", all)
	}
	tusktest.RequireEnqueued[mail](k, &tusktest.Want{Args: mail{"bob"}, Count: 1})
	tusktest.RequireNotEnqueued[mail](k, &tusktest.Want{Args: mail{"eve"}})
	k.Reset()
	tusktest.RequireNotEnqueued[report](k, nil)
}

// spy is a testing.TB that notes a failure instead of failing.
type spy struct {
	testing.TB
	text string
}

func (s *spy) Helper() {}
func (s *spy) Fatalf(format string, args ...any) {
	s.text = fmt.Sprintf(format, args...)
	panic(s)
}

func failureOf(t *testing.T, test func(k *tusktest.Kit)) (text string) {
	s := &spy{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(s) {
			panic(r)
		}
		text = s.text
	}()
	test(tusktest.Memory(s))
	return s.text
}

func TestAFailureSaysWhatWasEnqueuedInstead(t *testing.T) {
	for name, test := range map[string]struct {
		of   func(k *tusktest.Kit)
		want []string
	}{
		"missing": {func(k *tusktest.Kit) {
			_, _ = k.Client.Enqueue(ctx, report{7}, nil)
			tusktest.RequireEnqueued[mail](k, &tusktest.Want{Queue: "mails"})
		}, []string{`no task of kind "mail", queue mails was enqueued`, `report {"Day":7} in queue default`}},
		"too many": {func(k *tusktest.Kit) {
			_, _ = k.Client.Enqueue(ctx, mail{"a"}, nil)
			_, _ = k.Client.Enqueue(ctx, mail{"b"}, nil)
			tusktest.RequireEnqueued[mail](k, &tusktest.Want{Count: 1})
		}, []string{`2 tasks of kind "mail" were enqueued, want 1`}},
		"unwanted": {func(k *tusktest.Kit) {
			_, _ = k.Client.Enqueue(ctx, mail{"a"}, nil)
			tusktest.RequireNotEnqueued[mail](k, nil)
		}, []string{`want none; the first: mail {"To":"a"}`}},
		"nothing available": {func(k *tusktest.Kit) {
			mux := tusk.NewMux()
			tusk.HandleFunc(mux, func(context.Context, mail) error { return nil })
			k.Work(mux, nil).Perform(mail{"a"}, &tusk.Options{Delay: time.Hour})
		}, []string{"is not available: does it wait for its time"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := failureOf(t, test.of)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("failed with %q, want %q in it", text, want)
				}
			}
		})
	}
}

func TestStepRunsOneTaskAndDrainTheRest(t *testing.T) {
	kits(t, func(t *testing.T, k *tusktest.Kit) {
		mux := tusk.NewMux()
		var ran []string
		tusk.Handle(mux, func(ctx context.Context, m *tusk.Task[mail]) error {
			ran = append(ran, m.Args.To)
			if m.Args.To == "a" {
				_, err := k.Client.Enqueue(ctx, mail{"child of a"}, nil)
				return err
			}
			return nil
		})
		w := k.Work(mux, nil)
		if step := w.Step(); step != nil {
			t.Fatalf("ran %+v of nothing", step)
		}
		for _, to := range []string{"a", "b", "c"} {
			enqueue(t, k, mail{to}, nil)
		}
		if step := w.Step(); step == nil || step.Kind != tusk.EventCompleted || len(ran) != 1 {
			t.Fatalf("step: %+v, ran %v", step, ran)
		}
		if rest := w.Drain(); len(rest) != 3 || !slices.Equal(ran, []string{"a", "b", "c", "child of a"}) {
			t.Fatalf("drain: %d attempts, ran %v", len(rest), ran)
		}
	})
}

func TestTheClockIsMovedAndWhatBecomesDueRunsInOrder(t *testing.T) {
	kits(t, func(t *testing.T, k *tusktest.Kit) {
		mux := tusk.NewMux()
		var ran []string
		tusk.Handle(mux, func(ctx context.Context, m *tusk.Task[mail]) error {
			ran = append(ran, fmt.Sprintf("%s %d", m.Args.To, m.Attempt))
			switch m.Args.To {
			case "fails":
				return errors.New("no")
			case "soon":
				_, err := k.Client.Enqueue(ctx, mail{"later"}, &tusk.Options{Delay: 20 * time.Minute})
				return err
			}
			return nil
		})
		w := k.Work(mux, nil)
		enqueue(t, k, mail{"in an hour"}, &tusk.Options{Delay: time.Hour})
		enqueue(t, k, mail{"soon"}, &tusk.Options{Delay: 10 * time.Minute})
		enqueue(t, k, mail{"fails"}, &tusk.Options{MaxAttempts: 3, Backoff: tusk.ConstantBackoff(25 * time.Minute)})
		if w.Drain(); !slices.Equal(ran, []string{"fails 1"}) {
			t.Fatalf("before: %v", ran)
		}
		w.Advance(40 * time.Minute)
		if want := []string{"fails 1", "soon 1", "fails 2", "later 1"}; !slices.Equal(ran, want) {
			t.Fatalf("after 40 minutes: %v, want %v", ran, want)
		}
		all := w.DrainAll(10)
		if last := all[len(all)-1]; !slices.Equal(ran[4:], []string{"fails 3", "in an hour 1"}) ||
			last.Kind != tusk.EventCompleted {
			t.Fatalf("at last: %v", ran)
		}
		if discarded := all[0]; discarded.Kind != tusk.EventDiscarded || discarded.Error != "no" {
			t.Errorf("the third failure: %+v", discarded)
		}
	})
}

func TestPerformTestsAHandlerWithARealTask(t *testing.T) {
	kits(t, func(t *testing.T, k *tusktest.Kit) {
		mux := tusk.NewMux()
		tusk.Handle(mux, func(ctx context.Context, r *tusk.Task[report]) error {
			r.SetProgress(50, "half")
			r.Logger().Info("written", "day", r.Args.Day)
			if r.Args.Day == 13 {
				panic("unlucky")
			}
			return r.RecordOutput(map[string]int{"rows": r.Args.Day})
		})
		w := k.Work(mux, nil)
		ran, task := w.Perform(report{3}, nil)
		if ran.Kind != tusk.EventCompleted || task.State != tusk.StateCompleted || len(task.Detail.Logs) != 1 {
			t.Errorf("ran %+v; the task is %+v", ran, task)
		}
		if out := tusktest.OutputOf[map[string]int](k, task); out["rows"] != 3 {
			t.Errorf("output %v", out)
		}
		if ran, task = w.Perform(report{13}, nil); ran.Kind != tusk.EventFailed || task.State != tusk.StateRetryable {
			t.Errorf("a panic: %+v; the task is %v", ran, task.State)
		}
	})
}

func TestInlineRunsTasksBeforeEnqueueReturns(t *testing.T) {
	kits(t, func(t *testing.T, k *tusktest.Kit) {
		mux := tusk.NewMux()
		var ran []string
		tusk.Handle(mux, func(ctx context.Context, m *tusk.Task[mail]) error {
			ran = append(ran, m.Args.To)
			if m.Args.To == "a" {
				_, err := k.Client.Enqueue(ctx, mail{"b"}, nil)
				return err
			}
			return nil
		})
		k.Inline(mux, nil)
		enqueue(t, k, mail{"a"}, nil)
		if !slices.Equal(ran, []string{"a", "b"}) {
			t.Fatalf("ran %v before Enqueue returned", ran)
		}
	})
}

func TestWorkflowsAndLimitsDrain(t *testing.T) {
	kits(t, func(t *testing.T, k *tusktest.Kit) {
		if err := k.Client.SetLimits(ctx, "limited", tusk.Limits{Concurrency: 1}); err != nil {
			t.Fatal(err)
		}
		mux := tusk.NewMux()
		tusk.HandleFunc(mux, func(_ context.Context, m mail) error {
			if m.To == "bad" {
				return tusk.Discard(errors.New("bad"))
			}
			return nil
		})
		w := k.Work(mux, &tusk.WorkerConfig{Queues: []string{"default", "limited"}})
		for range 3 {
			enqueue(t, k, mail{"a"}, &tusk.Options{Queue: "limited"})
		}
		flow := tusk.NewWorkflow()
		first := flow.Task("first", mail{"bad"}, nil)
		flow.Task("second", mail{"b"}, nil).After(first)
		run, err := k.Client.EnqueueWorkflow(ctx, flow)
		if err != nil {
			t.Fatal(err)
		}
		if all := w.Drain(); len(all) != 4 {
			t.Errorf("%d attempts, want 4", len(all))
		}
		info, err := k.Client.Workflow(ctx, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range info.Tasks {
			if want := map[string]tusk.State{"first": tusk.StateDiscarded,
				"second": tusk.StateCancelled}[task.Node]; task.State != want {
				t.Errorf("%s is %v, want %v", task.Node, task.State, want)
			}
		}
	})
}

// lateGrants is an engine whose grants are slow, as on a busy machine.
type lateGrants struct{ store.Store }

func (s lateGrants) Grant(ctx context.Context, term int64, ids []store.ID) (int, error) {
	time.Sleep(time.Second) // longer than the time between two rounds of Admit
	return s.Store.Grant(ctx, term, ids)
}

func TestADrainWaitsForGrants(t *testing.T) {
	k := tusktest.New(t, lateGrants{memory.New()}, nil)
	if err := k.Client.SetLimits(ctx, "limited", tusk.Limits{Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, mail) error { return nil })
	w := k.Work(mux, &tusk.WorkerConfig{Queues: []string{"limited"}})
	for range 3 {
		enqueue(t, k, mail{"a"}, &tusk.Options{Queue: "limited"})
	}
	if all := w.Drain(); len(all) != 3 {
		t.Errorf("%d attempts, want 3", len(all))
	}
}

func TestWhatATransactionEnqueuedIsKnownThoughItIsRolledBack(t *testing.T) {
	pool, engine := database(t)
	k := tusktest.New(t, engine, nil)
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Client.EnqueueTx(ctx, tx, mail{"ada"}, nil); err != nil {
		t.Fatal(err)
	}
	tusktest.RequireEnqueued[mail](k, &tusktest.Want{Args: mail{"ada"}, Count: 1})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	tusktest.RequireEnqueued[mail](k, &tusktest.Want{Args: mail{"ada"}, Count: 1})
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, mail) error { return nil })
	if ran := k.Work(mux, nil).Drain(); len(ran) != 0 {
		t.Errorf("ran %+v, which was rolled back", ran)
	}
}

func TestAHandlerCompletesInItsTransaction(t *testing.T) {
	pool, engine := database(t)
	k := tusktest.New(t, engine, nil)
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, m *tusk.Task[mail]) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if err := m.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	if ran, task := k.Work(mux, nil).Perform(mail{"ada"}, nil); ran.Kind != tusk.EventCompleted ||
		task.State != tusk.StateCompleted {
		t.Errorf("ran %+v; the task is %v", ran, task.State)
	}
}
