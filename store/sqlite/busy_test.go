package sqlite

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestAWriteWaitsForAUsersTransactionButNotForEver(t *testing.T) {
	s := openTest(t)
	s.writer.patience = 50 * time.Millisecond
	db := openSame(t, s)
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("begin immediate"); err != nil {
		t.Fatal(err)
	}
	task := []store.NewTask{{ID: store.ID{1}, Kind: "k", Queue: "q"}}
	if _, err := s.Enqueue(t.Context(), task); !errors.Is(err, store.ErrUnavailable) ||
		!errors.Is(err, store.ErrNotCommitted) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Count(ctx); err != nil {
		t.Error("a reader waits for a writer:", err)
	}
	if _, err := db.Exec("commit"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), task); err != nil {
		t.Error(err)
	}
}

func TestACallerDoesNotWaitLongerForAnothersTransactionThanItWill(t *testing.T) {
	s := openTest(t)
	db := openSame(t, s)
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("begin immediate"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.Enqueue(ctx, []store.NewTask{{ID: store.ID{1}, Kind: "k", Queue: "q"}})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrNotCommitted) {
		t.Error(err)
	}
	if took := time.Since(began); took > busyTimeout/2 {
		t.Errorf("a call with 50 ms took %v", took)
	}
	if _, err := db.Exec("commit"); err != nil {
		t.Fatal(err)
	}
	mustEnqueue(t, s, store.NewTask{ID: store.ID{2}, Kind: "k", Queue: "q"})
	if tasks, err := s.List(t.Context(), store.Filter{}); err != nil || len(tasks) != 1 || tasks[0].ID != (store.ID{2}) {
		t.Errorf("%+v, %v", tasks, err)
	}
}

// TestWhoGivesUpKnowsThatNothingIsStored makes callers give up at any moment, while another's transactions come and go.
func TestWhoGivesUpKnowsThatNothingIsStored(t *testing.T) {
	s := openTest(t)
	db := openSame(t, s)
	defer db.Close()
	db.SetMaxOpenConns(1)
	stop := make(chan struct{})
	var other, callers sync.WaitGroup
	other.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := db.Exec("pragma busy_timeout = 1000; begin immediate"); err == nil {
				time.Sleep(2 * time.Millisecond)
				if _, err := db.Exec("rollback"); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	var mu sync.Mutex
	stored := map[store.ID]bool{}
	for c := range 8 {
		callers.Go(func() {
			for i := range 100 {
				id := store.ID{byte(c + 1), byte(i)}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*(c+1)%8)*time.Millisecond)
				_, err := s.Enqueue(ctx, []store.NewTask{{ID: id, Kind: "k", Queue: "q"}})
				cancel()
				if err != nil && !errors.Is(err, store.ErrNotCommitted) {
					t.Error(err)
				}
				mu.Lock()
				stored[id] = err == nil
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	close(stop)
	other.Wait()
	for id, want := range stored {
		if tasks, err := s.List(t.Context(), store.Filter{IDs: []store.ID{id}}); err != nil || (len(tasks) == 1) != want {
			t.Fatalf("task %v: stored %v, its caller was told %v, %v", id, len(tasks) == 1, want, err)
		}
	}
}

// TestAUsersTransactionOutlivesACallThatWasGivenUp gives up during a statement.
func TestAUsersTransactionOutlivesACallThatWasGivenUp(t *testing.T) {
	s := openTest(t)
	db := openSame(t, s)
	defer db.Close()
	for _, text := range []string{"create table mine (a)", `create trigger slow after insert on tusk_task begin
		insert into mine
		with recursive n(x) as (select 1 union all select x + 1 from n where x < 1000000) select max(x) from n;
		end`} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	add := func() {
		t.Helper()
		if _, err := tx.Exec("insert into mine values (0)"); err != nil {
			t.Fatal(err)
		}
	}
	add()
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := in.Enqueue(ctx, []store.NewTask{{ID: store.ID{1}, Kind: "k", Queue: "q"}}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	add()
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	var mine int
	if err := db.QueryRow("select count(*) from mine").Scan(&mine); err != nil || mine != 2 {
		t.Errorf("%d rows, want the 2 from before and after the call: %v", mine, err)
	}
	if tasks, err := s.List(t.Context(), store.Filter{}); err != nil || len(tasks) != 0 {
		t.Errorf("%+v, %v", tasks, err)
	}
}

// TestNothingIsEnqueuedInATransactionThatIsOver makes the user go on after SQLite has rolled the transaction back.
func TestNothingIsEnqueuedInATransactionThatIsOver(t *testing.T) {
	s := openTest(t)
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("create table mine (a primary key on conflict rollback)"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("insert into mine values (1), (1)"); err == nil {
		t.Fatal("stored twice")
	}
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{1}, Kind: "k", Queue: "q"}}); !errors.Is(err,
		store.ErrNotCommitted) {
		t.Error(err)
	}
	if err := tx.Commit(); err == nil {
		t.Error("committed")
	}
	if tasks, err := s.List(t.Context(), store.Filter{}); err != nil || len(tasks) != 0 {
		t.Errorf("stored all the same: %+v, %v", tasks, err)
	}
}

func TestATransactionThatReadTooEarlyIsToldToBeginAnew(t *testing.T) {
	s := openTest(t)
	db := openSame(t, s)
	defer db.Close()
	tx, err := db.Begin() // deferred
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow("select count(*) from tusk_task").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{1}, Kind: "k", Queue: "q"}}); err != nil {
		t.Fatal(err)
	}
	in, err := s.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = in.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{2}, Kind: "k", Queue: "q"}})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "immediate") {
		t.Error(err)
	}
}

func TestCallsThatComeDuringATransactionShareTheNext(t *testing.T) {
	s := openTest(t)
	const callers = 100
	results := make(chan error, callers)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	before := s.counts.roundTrips.Load()
	go func() {
		results <- s.write(t.Context(), true, func(*work) error { entered <- struct{}{}; <-release; return nil })
	}()
	<-entered
	for i := range callers {
		go func() {
			_, err := s.Enqueue(context.Background(), []store.NewTask{{ID: store.ID{byte(i + 1)}, Kind: "k", Queue: "q"}})
			results <- err
		}()
	}
	for len(s.writer.calls) < callers {
		time.Sleep(time.Millisecond)
	}
	close(release)
	for range callers + 1 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := s.counts.roundTrips.Load() - before; n != 2 {
		t.Errorf("%d calls took %d transactions", callers+1, n)
	}
	if counts, err := s.Count(t.Context()); err != nil || len(counts) != 1 || counts[0].Tasks != callers {
		t.Error(counts, err)
	}
}

func TestACallThatFailsDoesNotTouchThoseThatShareItsTransaction(t *testing.T) {
	s := openTest(t)
	broken := errors.New("broken")
	results := make(chan error, 4)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	go func() { // keeps the writer busy, so that the others come together
		results <- s.write(t.Context(), true, func(*work) error {
			entered <- struct{}{}
			<-release
			return nil
		})
	}()
	<-entered
	for i := range 3 {
		go func() {
			results <- s.write(t.Context(), true, func(w *work) error {
				if _, err := w.enqueue([]store.NewTask{{ID: store.ID{byte(i + 1)}, Kind: "kind of " + string(rune('a'+i)),
					Queue: "q"}}); err != nil {
					return err
				}
				if i == 1 {
					return broken
				}
				return nil
			})
		}()
	}
	for len(s.writer.calls) < 3 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	failed := 0
	for range 4 {
		if err := <-results; errors.Is(err, broken) {
			failed++
		} else if err != nil {
			t.Error(err)
		}
	}
	tasks, err := s.List(t.Context(), store.Filter{})
	if err != nil || failed != 1 || len(tasks) != 2 || tasks[0].ID != (store.ID{3}) || tasks[1].ID != (store.ID{1}) {
		t.Errorf("%d failed, stored %v, %v", failed, tasks, err)
	}
	counts, err := s.Count(t.Context())
	if err != nil || len(counts) != 1 || counts[0].Tasks != 2 {
		t.Error(counts, err)
	}
}
