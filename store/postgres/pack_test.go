package postgres_test

import (
	"bytes"
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

const packs = "select count(*) from tusk.log where packed is not null"

// newPacks makes tasks with consecutive ids, 256 at a time, as a client does.
func newPacks(n int, queue string) []store.NewTask {
	tasks := newTasks(n, queue)
	var first store.ID
	for i := range tasks {
		if i%256 == 0 {
			first = newID()
		}
		tasks[i].ID = first
		tasks[i].ID[15] = byte(i)
	}
	return tasks
}

func idsOf(tasks []store.NewTask) []store.ID {
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	return ids
}

// states returns the states of tasks, in their order. The state is 0 if a task is nowhere.
func states(t *testing.T, s *postgres.Store, ids []store.ID) []store.State {
	t.Helper()
	found := map[store.ID]store.State{}
	for part := range slices.Chunk(ids, store.MaxPage) {
		list, err := s.List(t.Context(), store.Filter{IDs: part, Limit: store.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if found[list[i].ID] != 0 {
				t.Fatalf("task %v is listed twice", list[i].ID)
			}
			found[list[i].ID] = list[i].State
		}
	}
	all := make([]store.State, len(ids))
	for i, id := range ids {
		all[i] = found[id]
	}
	return all
}

// TestPacksComeOutAsTheyWentIn enqueues batches of about the sizes at which packs begin and end, of tasks that are
// alike and of others, and claims them in parts that cut packs.
func TestPacksComeOutAsTheyWentIn(t *testing.T) {
	s, pool := fresh(t)
	w := startWorker(t, s)
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // made up, the same each time
	large := bytes.Repeat([]byte("x"), 256<<10)
	for name, change := range map[string]func(i int, n *store.NewTask){
		"alike": func(int, *store.NewTask) {},
		"mixed": func(i int, n *store.NewTask) {
			n.Kind = fmt.Sprint("kind-", i/40%3)
			n.Tags = [][]string{nil, {"a", `b"\{},`}}[i/50%2]
		},
		"tenant": func(i int, n *store.NewTask) { n.Tenant = []string{"", "acme"}[i/30%2] },
		"sizes": func(i int, n *store.NewTask) {
			n.Args = fmt.Appendf(nil, `"%s"`, large[:[]int{0, 1, 30, 180, 220, 400, 500, 2000, 7000, 8190, 9000}[i/20%11]])
			n.Settings, n.Kind = large[:[]int{0, 500, 3000}[i/40%3]], string(large[:255])
		},
		"one large among small": func(i int, n *store.NewTask) {
			if i%20 == 19 {
				n.Args = fmt.Appendf(nil, `"%s"`, large[:250000])
			}
		},
	} {
		for _, size := range []int{63, 64, 65, 255, 256, 257, 700} {
			queue := fmt.Sprint(name, size)
			tasks := newPacks(size, queue)
			for i := range tasks {
				change(i, &tasks[i])
			}
			if _, err := s.Enqueue(t.Context(), tasks); err != nil {
				t.Fatal(queue, err)
			}
			if counts, err := s.Count(t.Context()); err != nil || len(counts) != 1 || counts[0].Tasks != int64(size) {
				t.Fatal(queue, counts, err)
			}
			for at := 0; at < size; {
				limit := 1 + r.IntN(200)
				claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{queue}, Limit: limit,
					Token: store.NewToken()})
				if err != nil || len(claimed) != min(limit, size-at) {
					t.Fatalf("%s: claimed %d of %d from %d on, %v", queue, len(claimed), limit, at, err)
				}
				for i := range claimed {
					is, was := &claimed[i], &tasks[at+i]
					if is.ID != was.ID || is.Kind != was.Kind || !bytes.Equal(is.Args, was.Args) || is.Tenant != was.Tenant ||
						!slices.Equal(is.Tags, was.Tags) || !bytes.Equal(is.Settings, was.Settings) || is.Attempt != 1 ||
						!is.RunAt.Equal(is.EnqueuedAt) {
						t.Fatalf("%s: task %d was %v of kind %.20s with %d bytes, and is %v of kind %.20s with %d", queue, at+i,
							was.ID, was.Kind, len(was.Args), is.ID, is.Kind, len(is.Args))
					}
				}
				if lost, err := s.Finish(t.Context(), completed(claimed)); err != nil || len(lost) > 0 {
					t.Fatal(queue, lost, err)
				}
				at += len(claimed)
			}
			for i, state := range states(t, s, idsOf(tasks)) {
				if state != store.Completed {
					t.Fatalf("%s: task %d is %v", queue, i, state)
				}
			}
		}
	}
	if n := number(t, pool, packs); n < 100 {
		t.Errorf("only %d packs were made", n)
	}
	if n := number(t, pool,
		"select count(*) from tusk.log where packed is not null and pg_column_size(log.*) > 8160"); n > 0 {
		t.Errorf("%d packs are larger than a page has room for", n)
	}
}

// TestPacksThatComeLateAreClaimed claims tasks while other transactions are open, and finds those that come late.
func TestPacksThatComeLateAreClaimed(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	w := startWorker(t, s)
	copied := func(tx pgx.Tx, tasks []store.NewTask) { // does what a slow COPY does
		t.Helper()
		b, text := s.PackedCopy(tasks)
		if _, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(b), text); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Enqueue(ctx, newPacks(100, "q")); err != nil { // so that the lane has a name
		t.Fatal(err)
	}
	begin := func(tasks []store.NewTask) pgx.Tx {
		t.Helper()
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		copied(tx, tasks)
		return tx
	}
	late, never, later := newPacks(100, "q"), newPacks(100, "q"), newPacks(100, "q")
	first, second, third := begin(late), begin(never), begin(later)
	defer third.Rollback(context.Background())
	if _, err := s.Enqueue(ctx, newPacks(100, "q")); err != nil {
		t.Fatal(err)
	}
	claim := func(limit, want int, from []store.NewTask) {
		t.Helper()
		list, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: limit, Token: store.NewToken()})
		if err != nil || len(list) != want {
			t.Fatalf("claimed %d of %d, %v", len(list), want, err)
		}
		for i := range list {
			if from != nil && list[i].ID != from[i].ID {
				t.Fatalf("task %d is not the one that came late", i)
			}
		}
		if _, err := s.Finish(ctx, completed(list)); err != nil {
			t.Fatal(err)
		}
	}
	claim(150, 150, nil)
	if err := first.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	claim(70, 70, nil) // the rest of the window, and the first of the late ones
	claim(30, 30, late[20:])
	if err := second.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := third.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	claim(60, 60, append(slices.Clone(late[50:]), later[:10]...))
	claim(1000, 90, later[10:])
	claim(10, 0, nil)
	if counts, err := s.Count(ctx); err != nil || len(counts) > 0 {
		t.Error(counts, err)
	}
}

// TestASearchFindsWhatHasSeveralRows looks for tasks that the catalogue names more than once: each attempt has left
// a row in the log, and rows that were taken out of packs stand among packs.
func TestASearchFindsWhatHasSeveralRows(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	w, term := startWorker(t, s), lead(t, s)
	tasks := newPacks(300, "q")
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		list := claimSome(t, s, w, 300)
		outcomes := completed(list)
		for i := range outcomes {
			outcomes[i].State, outcomes[i].Attempt = store.Available, 0
		}
		if _, err := s.Finish(ctx, outcomes); err != nil {
			t.Fatal(err)
		}
	}
	more := newPacks(300, "q")
	if _, err := s.Enqueue(ctx, more); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 300; i += 70 {
		if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{more[i].ID},
			Change: store.Change{Op: store.Reprioritize, Priority: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	want := idsOf(append(slices.Clone(tasks), more...))
	slices.SortFunc(want, func(a, b store.ID) int { return bytes.Compare(b[:], a[:]) })
	for _, catalogued := range []bool{false, true} {
		if catalogued {
			writeCatalogue(t, s, term)
		}
		for _, f := range []store.Filter{{}, {Kinds: []string{"mail"}}, {Queues: []string{"q"}},
			{States: []store.State{store.Available}}, {Tenants: []string{""}},
			{Kinds: []string{"mail"}, States: []store.State{store.Available, store.Completed}},
			{From: time.Now().Add(-time.Hour)}} {
			if ids := findAll(t, s, f); !slices.Equal(ids, want) {
				t.Errorf("%+v finds %d tasks, want %d (in the catalogue: %v)", f, len(ids), len(want), catalogued)
			}
		}
	}
}

// findAll goes from page to page.
func findAll(t *testing.T, s *postgres.Store, f store.Filter) (ids []store.ID) {
	t.Helper()
	for f.Limit = 100; ; {
		tasks, last, err := s.Search(t.Context(), f, 20000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			ids = append(ids, tasks[i].ID)
		}
		if f.Before = last; last.IsZero() {
			return ids
		}
	}
}
