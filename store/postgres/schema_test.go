package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/storetest"
)

// twoLedgers makes two engines in two schemas of one database, on one pool.
func twoLedgers(t *testing.T) (a, b *postgres.Store, pool *pgxpool.Pool) {
	t.Helper()
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var both [2]*postgres.Store
	for i, schema := range []string{"first", "second"} {
		if both[i], err = postgres.New(ctx, pool, postgres.Options{Schema: schema}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { both[i].Close() })
		if _, err := both[i].Migrate(ctx, -1); err != nil {
			t.Fatal(err)
		}
	}
	return both[0], both[1], pool
}

func TestAWorkerIsAttendedInEachLedgerOfADatabase(t *testing.T) {
	a, b, pool := twoLedgers(t)
	ctx := context.Background()
	beat := store.Beat{Worker: store.Worker{ID: storetest.NewID()}, TTL: time.Minute}
	for _, s := range []*postgres.Store{a, b} {
		if _, err := s.Extend(ctx, beat); err != nil {
			t.Fatal(err)
		}
	}
	for _, schema := range []string{"first", "second"} {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			var attended bool
			if err := pool.QueryRow(ctx, "select attended is not null from "+schema+".worker").Scan(&attended); err != nil {
				t.Fatal(err)
			}
			if attended {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("nobody attends the worker in the schema %s", schema)
			}
		}
	}
}

func TestATermThatWasWonElsewhereFencesThisLedger(t *testing.T) {
	_, s, _ := twoLedgers(t)
	ctx := context.Background()
	old, young := storetest.NewID(), storetest.NewID()
	adopt := func(id store.ID, term int64, ttl time.Duration, held bool, now int64) {
		t.Helper()
		all, err := postgres.AdoptAll(ctx, []*postgres.Store{s}, store.Candidate{ID: id, Term: term, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		if a := all[0]; a.Held != held || a.Term != now || a.Now.IsZero() {
			t.Fatalf("adopted %+v; want held %v, term %d", a, held, now)
		}
	}
	chore := func(term int64, allowed bool) {
		t.Helper()
		if _, err := s.Admit(ctx, term, 1); (err == nil) != allowed {
			t.Fatalf("a chore of term %d: %v", term, err)
		}
	}
	adopt(old, 7, time.Minute, true, 7)
	chore(7, true)
	adopt(young, 7, time.Minute, false, 7) // another candidate
	adopt(young, 8, time.Minute, true, 8)
	chore(7, false)
	chore(8, true)
	adopt(old, 7, time.Minute, false, 8)
	adopt(old, 7, 0, false, 8) // it gives up a term that it no longer has
	chore(8, true)
	adopt(young, 8, 0, true, 8)
	chore(8, false)
	adopt(young, 8, time.Minute, false, 8) // a late renewal of a term that was given up
}

// A grant of the old leader may commit after the new one has looked. Then a tenant would have more turns than allowed.
func TestATermThatWasWonElsewhereWaitsForTheOldLeadersChores(t *testing.T) {
	a, b, pool := twoLedgers(t)
	ctx := context.Background()
	old, young := store.Candidate{ID: storetest.NewID(), Term: 7, TTL: time.Minute},
		store.Candidate{ID: storetest.NewID(), Term: 8, TTL: time.Minute}
	adopt := func(c store.Candidate, all ...*postgres.Store) error {
		adopted, err := postgres.AdoptAll(ctx, all, c)
		for _, one := range adopted {
			if err == nil && !one.Held {
				err = fmt.Errorf("term %d counts", one.Term)
			}
		}
		return err
	}
	if err := adopt(old, a, b); err != nil {
		t.Fatal(err)
	}
	chore := begin(t, pool)
	if _, err := chore.Exec(ctx, "select "+b.FunctionSchema()+".hold_lead(7)"); err != nil {
		t.Fatal(err)
	}
	if err := adopt(old, a, b); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	if err := adopt(young, a, b); !errors.Is(err, postgres.ErrNotTogether) {
		t.Fatalf("two ledgers did not wait briefly for a chore in one: %v", err)
	}
	answer := make(chan error, 1)
	go func() { answer <- adopt(young, b) }()
	eventually(t, "it waits", func() bool { return number(t, pool, blocked) == 1 })
	if err := chore.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if err := adopt(young, a, b); err != nil {
		t.Fatal(err)
	}
}

func TestAKeyWordNamesNoSchema(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, word := range []string{"user", "order", "left", "values"} {
		s, err := postgres.New(t.Context(), pool, postgres.Options{Schema: word})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Migrate(t.Context(), -1); err == nil || !strings.Contains(err.Error(), "such as "+word+"_tasks") {
			t.Errorf("schema %s: %v", word, err)
		}
	}
	s, err := postgres.New(t.Context(), pool, postgres.Options{Schema: "work"}) // is not reserved
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Fatal(err)
	}
}
