package sqlite

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestAListByTimeFindsWhatStandsBesideARestoredTask has a restored task, which is older than tasks that were enqueued
// before it was restored, in the middle of others.
func TestAListByTimeFindsWhatStandsBesideARestoredTask(t *testing.T) {
	s := openTest(t)
	turn, start := set(s), time.Now()
	old := store.Task{ID: store.ID{1}, Kind: "k", Queue: "q", State: store.Completed, Attempt: 1,
		EnqueuedAt: start.Add(-time.Hour), RunAt: start.Add(-time.Hour)}
	for i := range 6 {
		turn(time.Duration(i) * time.Hour)
		mustEnqueue(t, s, store.NewTask{ID: store.ID{2, byte(i)}, Kind: "k", Queue: "q"})
		if i == 2 {
			if _, _, err := s.Restore(t.Context(), store.Record{Kind: "note", Name: "n", Body: []byte("{}")},
				[]store.Task{old}); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := func(hours float64) time.Time { return start.Add(time.Duration(hours * float64(time.Hour))) }
	for _, c := range []struct {
		from, until time.Time
		want        int
	}{
		{at(0.5), time.Time{}, 5}, {at(1.5), at(3.5), 2}, {time.Time{}, at(2.5), 4}, {at(-2), at(-0.5), 1},
		{at(3.5), at(9), 2},
	} {
		tasks, err := s.List(t.Context(), store.Filter{From: c.from, Until: c.until})
		if err != nil || len(tasks) != c.want {
			t.Errorf("from %v until %v: %d tasks, want %d, %v", c.from, c.until, len(tasks), c.want, err)
		}
	}
}

func TestAListReadsNoArgsOfTasksBeyondItsPage(t *testing.T) {
	s := openTest(t)
	const tasks, size = 200, 256 << 10
	mustEnqueue(t, s, tasksOf(tasks, func(i int, n *store.NewTask) {
		n.ID, n.Args = store.ID{byte(i)}, make([]byte, size)
	})...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	page, err := s.List(t.Context(), store.Filter{States: []store.State{store.Available}, Limit: 2})
	runtime.ReadMemStats(&after)
	if err != nil || len(page) != 2 || page[0].ID != (store.ID{tasks - 1}) || len(page[0].Args) != size {
		t.Fatal(len(page), err)
	}
	if read := after.TotalAlloc - before.TotalAlloc; read > tasks*size/4 {
		t.Errorf("a page of 2 tasks took %d KiB, all have %d", read>>10, tasks*size>>10)
	}
}

func TestListsLeaveRoomForClaims(t *testing.T) {
	s := openTest(t)
	worker := store.ID{1}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	mustEnqueue(t, s, store.NewTask{ID: store.ID{2}, Kind: "k", Queue: "q"})
	ends := make(chan error, readers)
	inside, release := make(chan struct{}, readers), make(chan struct{})
	for range readers {
		go func() {
			ends <- s.readLong(t.Context(), func(context.Context, session) error {
				inside <- struct{}{}
				<-release
				return nil
			})
		}()
	}
	for range readers - 1 {
		<-inside
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	request := store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	tasks, err := s.Claim(ctx, request)
	if err != nil || len(tasks) != 1 {
		t.Errorf("beside %d lists: %d tasks, %v", readers, len(tasks), err)
	}
	close(release)
	for range readers {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// TestAListEndsWithItsContextBehindItsFirstTask searches many tasks, of which only the newest matches.
func TestAListEndsWithItsContextBehindItsFirstTask(t *testing.T) {
	s := openTest(t)
	newest := store.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}
	mustEnqueue(t, s, store.NewTask{ID: newest, Kind: "k", Queue: "q", Tenant: "t"})
	if _, err := s.db.Exec(`insert into tusk_task (id, tenant, kind, priority, state, enqueued_at, run_at)
		with recursive n(x) as (select 1 union all select x + 1 from n where x < 50000)
		select randomblob(16), 'other', kind, 0, 6, enqueued_at, 0 from n cross join tusk_task`); err != nil {
		t.Fatal(err)
	}
	f := store.Filter{Queues: []string{"q"}, Tenants: []string{"t", ""}} // tasks without a tenant are in no index
	began := time.Now()
	if tasks, err := s.List(t.Context(), f); err != nil || len(tasks) != 1 {
		t.Fatal(len(tasks), err)
	}
	whole := time.Since(began)
	ctx, cancel := context.WithTimeout(t.Context(), whole/10)
	defer cancel()
	began = time.Now()
	if _, err := s.List(ctx, f); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(began); took > whole/2 {
		t.Errorf("a list with %v took %v, the whole takes %v", whole/10, took, whole)
	}
}
