package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// lined returns tasks that stand in line for their turn.
func lined(n int, queue, tenant string) []store.NewTask {
	tasks := newTasks(n, queue)
	for i := range tasks {
		tasks[i].Turn, tasks[i].Tenant = true, tenant
	}
	return tasks
}

// searched returns what a search finds within a budget, and how many pages it reads.
func searched(
	t *testing.T, s *postgres.Store, pool *pgxpool.Pool, f store.Filter, budget int,
) (tasks []store.Task, pages int64) {
	t.Helper()
	before := pagesRead(t, pool)
	tasks, _, err := s.Search(t.Context(), f, budget)
	if err != nil {
		t.Fatal(err)
	}
	return tasks, pagesRead(t, pool) - before
}

func TestTasksInLineAreFoundByTheirLineOrTheirID(t *testing.T) {
	s, pool := fresh(t)
	needCounts(t, pool)
	late := newTasks(10_000, "late")
	for i := range late {
		late[i].Delay = time.Hour
	}
	small := lined(3, "limited", "small")
	small[1].Kind = "rare"
	all := slices.Concat(small, lined(6_000, "limited", "large"), lined(2, "alone", ""), late)
	for part := range slices.Chunk(all, 1000) {
		if _, err := s.Enqueue(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	counts, err := s.Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []store.Count{
		{Queue: "late", State: store.Scheduled, Tasks: 10_000}, {Queue: "limited", State: store.Pending, Tasks: 6_003},
		{Queue: "alone", State: store.Pending, Tasks: 2},
	} {
		if !slices.ContainsFunc(counts, func(c store.Count) bool { c.Oldest = want.Oldest; return c == want }) {
			t.Errorf("counted %+v, want %+v among them", counts, want)
		}
	}
	pending := []store.State{store.Pending}
	for name, look := range map[string]struct {
		filter store.Filter
		want   int
		pages  int64 // at most so many are read
	}{
		"a small tenant":         {store.Filter{Tenants: []string{"small"}}, 3, 600},
		"the same of a queue":    {store.Filter{Tenants: []string{"small"}, Queues: []string{"limited"}}, 3, 600},
		"a small queue":          {store.Filter{Queues: []string{"alone"}}, 2, 600},
		"the pending of a queue": {store.Filter{Queues: []string{"alone"}, States: pending}, 2, 600},
		"a large queue":          {store.Filter{Queues: []string{"limited"}, Limit: 10}, 10, 20_000},
		"a large tenant":         {store.Filter{Tenants: []string{"large"}, Limit: 10}, 10, 20_000},
		"all":                    {store.Filter{Limit: 10}, 10, 800},
		"a kind that none has":   {store.Filter{Kinds: []string{"none"}}, 0, 8_000}, // not all 16,000 that wait
		"nothing in line":        {store.Filter{Kinds: []string{"none"}, Queues: []string{"late"}}, 0, 600},
	} {
		budget := 5_000 // for one look
		if look.filter.Limit > 0 {
			budget = 20_000
		}
		tasks, pages := searched(t, s, pool, look.filter, budget)
		if len(tasks) != look.want || pages > look.pages {
			t.Errorf("%s: found %d tasks and read %d pages, want %d and %d at most", name, len(tasks), pages, look.want,
				look.pages)
		}
	}
	rare, err := s.List(t.Context(), store.Filter{Kinds: []string{"rare"}})
	if err != nil || len(rare) != 1 || rare[0].ID != small[1].ID {
		t.Errorf("the only one of its kind: found %d tasks, %v", len(rare), err)
	}
}
