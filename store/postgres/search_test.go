package postgres_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// TestASearchInStepsIsTheList makes tasks of all states, single ones and in packs, and searches for them with
// random filters. Whatever the budget is, the steps of a search add up to the list. Half of the log is in the
// catalogue by then.
func TestASearchInStepsIsTheList(t *testing.T) {
	s, pool := fresh(t)
	s.PackAll()
	ctx, term := t.Context(), lead(t, s)
	worker := store.Worker{ID: newID(), Host: "h"}
	if _, err := s.Extend(ctx, store.Beat{Worker: worker, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	var half time.Time
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // made up, the same each time
	for round := range 12 {
		tasks := newPacks(50, "")
		n := 0
		for i := range tasks {
			if round%2 == 0 || i%7 == 0 { // in odd rounds some are alike
				n = r.IntN(100)
			}
			tasks[i].Kind, tasks[i].Queue, tasks[i].Tags = fmt.Sprintf("k%d", n%3), fmt.Sprintf("q%d", n%2),
				[]string{fmt.Sprintf("t%d", n%4)}
			if round%2 == 1 {
				continue
			}
			if n%3 == 0 {
				tasks[i].Tenant = fmt.Sprintf("tenant%d", n%2)
			}
			if tasks[i].Turn = round == 4 || n%7 == 0; round == 4 { // all get in line at once
				continue
			}
			if n%5 == 0 {
				tasks[i].Key = fmt.Sprintf("key%d-%d", round, n%7)
			}
			if n%11 == 0 {
				tasks[i].Delay = time.Hour
			}
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: worker.ID, Queues: []string{"q0", "q1"}, Limit: 30,
			Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		var outcomes []store.Outcome
		for i := range claimed {
			o := store.Outcome{Task: &claimed[i], Attempt: claimed[i].Attempt, State: store.Completed}
			switch i % 6 {
			case 0:
				continue // it goes on running
			case 1:
				o.State, o.Error, o.Fingerprint, o.Delay = store.Retryable, "x", "f1", time.Hour
			case 2:
				o.State, o.Error, o.Fingerprint, o.Reason = store.Discarded, "x", "f2", "gave up"
			case 3:
				o.State, o.Error, o.Fingerprint = store.Available, "", ""
				o.Attempt--
			}
			outcomes = append(outcomes, o)
		}
		if _, err := s.Finish(ctx, outcomes); err != nil {
			t.Fatal(err)
		}
		e := store.Edit{IDs: []store.ID{tasks[r.IntN(50)].ID, tasks[r.IntN(50)].ID}, Change: store.Change{Op: store.Cancel}}
		if r.IntN(2) == 0 {
			e.Change = store.Change{Op: store.Reprioritize, Priority: 1}
		}
		if _, err := s.Edit(ctx, e); err != nil {
			t.Fatal(err)
		}
		if round == 5 {
			half = time.Now()
		}
		if round%3 == 1 && round < 8 {
			writeCatalogue(t, s, term)
		}
	}
	if n, rows := number(t, pool, packs), number(t, pool,
		"select count(*) from tusk.log where packed is null and n & 255 <> 0"); n < 10 || rows < 10 {
		t.Fatalf("%d packs, and %d tasks that were in one", n, rows)
	}
	if n := number(t, pool, "select count(distinct lo) from tusk.catalogue"); n < 3 {
		t.Fatalf("the catalogue has %d stretches of the log", n)
	}
	one := func(p int, values ...string) []string {
		if r.IntN(100) >= p {
			return nil
		}
		return values[:1+r.IntN(len(values))]
	}
	found := 0
	for range 100 {
		f := store.Filter{Kinds: one(40, "k1", "k2"), Queues: one(30, "q1", "q0"), Tenants: one(30, "tenant0", "tenant1"),
			Tags: one(30, "t2"), Limit: 1 + r.IntN(40)}
		if r.IntN(2) == 0 {
			f.States = []store.State{store.States()[r.IntN(8)], store.States()[r.IntN(8)]}
		}
		if keys := one(10, "key3-0"); keys != nil {
			f.Key = keys[0]
		}
		if failures := one(15, "f1", "f2"); failures != nil {
			f.Fingerprint = failures[0]
		}
		switch r.IntN(6) {
		case 0:
			f.From = time.Now().Add(-time.Hour)
		case 1:
			f.From, f.Until = half, time.Now()
		case 2:
			f.Until = half
		}
		all := f
		all.Limit = store.MaxPage
		want, err := s.ListWhole(ctx, all)
		if err != nil {
			t.Fatal(err)
		}
		var got []store.Task
		budget := 1 + r.IntN(100)
		for steps := 0; ; steps++ {
			page, last, err := s.Search(ctx, f, budget)
			if err != nil || len(page) > f.Limit {
				t.Fatalf("%+v: %d tasks, %v", f, len(page), err)
			}
			got = append(got, page...)
			if f.Before = last; last.IsZero() {
				break
			}
			if steps > 2000 {
				t.Fatalf("%+v: no end", f)
			}
		}
		if same := slices.EqualFunc(want, got, func(a, b store.Task) bool {
			return a.ID == b.ID && a.State == b.State
		}); !same {
			t.Errorf("%+v with a budget of %d: %d tasks, want %d", f, budget, len(got), len(want))
		}
		found += len(want)
	}
	if found < 300 {
		t.Errorf("the filters chose only %d tasks", found)
	}
}

// writeCatalogue lets the leader add everything in the log to the catalogue, in pieces.
func writeCatalogue(t *testing.T, s *postgres.Store, term int64) {
	t.Helper()
	if err := s.Maintain(t.Context(), term); err != nil { // counts
		t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = s.CatalogueNext(t.Context(), term, 1, 40); err != nil {
			t.Fatal(err)
		}
	}
}

func find(t *testing.T, s *postgres.Store, f store.Filter) (ids []store.ID) {
	t.Helper()
	f.Limit = 100
	for {
		began := time.Now()
		tasks, more, err := s.Search(t.Context(), f, 20000)
		slow := time.Since(began) > postgres.LookTime // a busy machine does not get as far
		if err != nil || !more.IsZero() && !slow {
			t.Fatal(more, err)
		}
		for _, one := range tasks {
			ids = append(ids, one.ID)
		}
		if more.IsZero() {
			return ids
		}
		f.Before = more
	}
}

func TestATaskThatIsReplacedIsFoundByWhatItIsNow(t *testing.T) {
	s, _ := fresh(t)
	ctx, term := t.Context(), lead(t, s)
	tasks := newTasks(30, "q")
	tasks[7].Key, tasks[7].Tags, tasks[7].Kind = "k", []string{"red"}, "was"
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	writeCatalogue(t, s, term)
	if was := find(t, s, store.Filter{Kinds: []string{"was"}}); !slices.Equal(was, []store.ID{tasks[7].ID}) {
		t.Fatal(was)
	}
	another := newTasks(1, "q")
	another[0].Key, another[0].Tags, another[0].Kind, another[0].OnConflict = "k", []string{"red", "blue"}, "is",
		store.Replace
	results, err := s.Enqueue(ctx, another)
	if err != nil || results[0].Result != store.Replaced {
		t.Fatal(results, err)
	}
	for _, f := range []store.Filter{{Kinds: []string{"is"}}, {Tags: []string{"blue"}}, {Tags: []string{"red"}},
		{Tags: []string{"red"}, Kinds: []string{"is"}}} {
		if ids := find(t, s, f); !slices.Equal(ids, []store.ID{tasks[7].ID}) {
			t.Errorf("%+v finds %v", f, ids)
		}
	}
	if ids := find(t, s, store.Filter{Kinds: []string{"was"}}); len(ids) > 0 {
		t.Errorf("what it was finds %v", ids)
	}
}

// TestRareTasksAreFoundAmongMany looks for one task in twenty thousand, by each filter alone, within the budget of
// a page.
func TestRareTasksAreFoundAmongMany(t *testing.T) {
	s, pool := fresh(t)
	ctx, term := t.Context(), lead(t, s)
	rare := newTasks(1, "rare")
	rare[0].Kind, rare[0].Tags = "rare", []string{"rare", "other"}
	rareLater := newTasks(1, "rarely")
	rareLater[0].Kind, rareLater[0].Tags, rareLater[0].Delay = "later", []string{"later"}, time.Hour
	if _, err := s.Enqueue(ctx, append(rare, rareLater...)); err != nil {
		t.Fatal(err)
	}
	after := number(t, pool, "select (extract(epoch from clock_timestamp()) * 1e6)::bigint")
	for range 24 {
		many := newTasks(1000, "q")
		for i := range many {
			many[i].Tags = []string{"other"}
			if i%2 == 0 {
				many[i].Delay = 2 * time.Hour
			}
		}
		if _, err := s.Enqueue(ctx, many); err != nil {
			t.Fatal(err)
		}
	}
	writeCatalogue(t, s, term)
	for _, f := range []store.Filter{{Kinds: []string{"rare"}}, {Queues: []string{"rare"}}, {Tags: []string{"rare"}},
		{Tags: []string{"other", "rare"}},
		{Tags: []string{"rare"}, Kinds: []string{"rare"}, Queues: []string{"rare"}, States: []store.State{store.Available}}} {
		if ids := find(t, s, f); !slices.Equal(ids, []store.ID{rare[0].ID}) {
			t.Errorf("%+v finds %v", f, ids)
		}
	}
	for _, f := range []store.Filter{{Kinds: []string{"later"}}, {Queues: []string{"rarely"}}, {Tags: []string{"later"}},
		{Queues: []string{"rarely"}, States: []store.State{store.Scheduled}}} {
		if ids := find(t, s, f); !slices.Equal(ids, []store.ID{rareLater[0].ID}) {
			t.Errorf("%+v finds %v", f, ids)
		}
	}
	if ids := find(t, s, store.Filter{Until: time.UnixMicro(after)}); len(ids) != 2 {
		t.Errorf("before all others: %d", len(ids))
	}
	if ids := find(t, s, store.Filter{States: []store.State{store.Completed}}); len(ids) > 0 {
		t.Errorf("completed: %d", len(ids))
	}
}

// TestWhatIsUnfinishedIsFoundBehindACompletedPast looks for all unfinished tasks of a queue, one of which runs,
// within a third of the tasks that were completed after them.
func TestWhatIsUnfinishedIsFoundBehindACompletedPast(t *testing.T) {
	s, _ := fresh(t)
	ctx, term := t.Context(), lead(t, s)
	worker := store.Worker{ID: newID(), Host: "h"}
	if _, err := s.Extend(ctx, store.Beat{Worker: worker, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	claim := func() []store.Task {
		claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: worker.ID, Queues: []string{"q"}, Limit: 1000,
			Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		return claimed
	}
	runs, later := newTasks(1, "q"), newTasks(1, "q")
	later[0].Delay = time.Hour
	if _, err := s.Enqueue(ctx, append(runs, later...)); err != nil || len(claim()) != 1 {
		t.Fatal(err)
	}
	for range 30 {
		if _, err := s.Enqueue(ctx, newTasks(1000, "q")); err != nil {
			t.Fatal(err)
		}
		var outcomes []store.Outcome
		for _, task := range claim() {
			outcomes = append(outcomes, store.Outcome{Task: &task, Attempt: task.Attempt, State: store.Completed})
		}
		if _, err := s.Finish(ctx, outcomes); err != nil || len(outcomes) != 1000 {
			t.Fatal(len(outcomes), err)
		}
	}
	claim() // it finds nothing, and so records that everything was claimed
	writeCatalogue(t, s, term)
	unfinished := store.Filter{Queues: []string{"q"}, Limit: 10,
		States: []store.State{store.Running, store.Available, store.Scheduled, store.Pending, store.Retryable}}
	tasks, more, err := s.Search(ctx, unfinished, 10_000)
	for tries := 0; !more.IsZero() && err == nil && tries < 10; tries++ { // its time may be over early
		tasks, more, err = s.Search(ctx, unfinished, 10_000)
	}
	states := map[store.ID]store.State{}
	for _, task := range tasks {
		states[task.ID] = task.State
	}
	want := map[store.ID]store.State{runs[0].ID: store.Running, later[0].ID: store.Scheduled}
	if err != nil || !more.IsZero() || !maps.Equal(states, want) {
		t.Errorf("%v, want %v, more below %v, %v", states, want, more, err)
	}
}
