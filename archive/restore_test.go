package archive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/couchbase"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// ask requests a restore.
func ask(t *testing.T, s store.Store, request Restore) store.ID {
	t.Helper()
	request.ID = storetest.NewID()
	made, err := RequestRestore(t.Context(), s, request)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// either fails the test unless each task is either in the database or in the archive, once, and the
// tasks for which back is true are in the database.
func either(t *testing.T, when string, s store.Store, b *blob.Bucket, ids []store.ID, back func(i int) bool) {
	t.Helper()
	times := archived(t, b)
	has := map[store.ID]bool{}
	for page := range slices.Chunk(ids, 500) {
		there, err := s.List(t.Context(), store.Filter{IDs: page, Limit: len(page)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range there {
			has[there[i].ID] = true
		}
	}
	for i, id := range ids {
		want := map[bool]int{true: 0, false: 1}[back(i)]
		if has[id] != back(i) || times[id.String()] != want {
			t.Fatalf("%s: task %d is in the database: %v, and in the archive %d times", when, i, has[id], times[id.String()])
		}
	}
}

func TestRestoredTasksAreInTheDatabaseAndLeaveTheArchive(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	b, _ := place(t)
	ids := append(run(t, s, storetest.NewID(), 300, "mail"), run(t, s, storetest.NewID(), 30, "other")...)
	r := keeper(t, s, b)
	drain(t, r)
	old, err := r.shelf.Find(ctx, ids[7])
	if err != nil {
		t.Fatal(err)
	}
	id := ask(t, s, Restore{Query: Query{Queues: []string{"mail"}, Tenants: []string{"t1"}}, By: "me"})
	got, err := r.Restore(ctx, id, nil)
	if err != nil || got.State != RestoreDone || got.Restored != 100 || got.Skipped != 0 || got.Done.IsZero() {
		t.Fatalf("%+v: %v", got, err)
	}
	wanted := func(i int) bool { return i < 300 && i%3 == 1 }
	either(t, "after a restore", s, b, ids, wanted)
	there, err := s.List(ctx, store.Filter{IDs: ids[7:8], Detail: true})
	if err != nil || len(there) != 1 {
		t.Fatal(len(there), err)
	}
	task := there[0]
	logs := task.Detail.Logs
	if len(logs) != 1 || !strings.Contains(logs[0].Text, old.FinishedAt.Format(time.RFC3339Nano)) ||
		!task.FinishedAt.After(old.FinishedAt) ||
		string(task.Args) != string(old.Args) || task.State != old.State || len(task.Detail.Attempts) != 1 ||
		task.Detail.Attempts[0] != old.Detail.Attempts[0] {
		t.Errorf("restored as %+v %+v, and was %+v %+v", task, task.Detail, old, old.Detail)
	}
	same := ask(t, s, Restore{Query: Query{Queues: []string{"mail"}, Tenants: []string{"t1"}}})
	again, err := r.Restore(ctx, same, nil)
	if err != nil || again.State != RestoreDone || again.Restored+again.Skipped != 0 {
		t.Errorf("once more: %+v: %v", again, err)
	}
	drain(t, r)
	once(t, "archived again", archived(t, b), ids)
}

func TestNamedTasksAreRestoredAndOthersAreNamed(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	b, _ := place(t)
	ids := run(t, s, storetest.NewID(), 30, "q")
	r := keeper(t, s, b)
	drain(t, r)
	if got, err := r.Restore(ctx, ask(t, s, Restore{IDs: ids[:2]}), nil); err != nil || got.Restored != 2 {
		t.Fatalf("%+v: %v", got, err)
	}
	if err := PutHold(ctx, s, Hold{Name: "case", Tenant: "t2"}, time.Second); err != nil {
		t.Fatal(err)
	}
	nobody := storetest.NewID()
	got, err := r.Restore(ctx, ask(t, s, Restore{IDs: []store.ID{ids[0], ids[2], ids[3], ids[3], nobody}}), nil)
	if err != nil || got.State != RestoreDone || got.Restored != 1 || got.Skipped != 3 {
		t.Fatalf("%+v: %v", got, err)
	}
	why := map[store.ID]string{}
	for _, l := range got.Left {
		why[l.ID] = l.Why
	}
	if why[ids[0]] != hasIt || why[ids[2]] != isHeld || why[nobody] != ErrNotFound.Error() {
		t.Errorf("left: %v", why)
	}
	either(t, "after two restores", s, b, ids, func(i int) bool { return i < 2 || i == 3 })
}

// The fake cluster refuses documents of more than 20 MiB.
func TestLargeTasksAreRestoredIntoCouchbase(t *testing.T) {
	fake, err := cbfake.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	s, err := couchbase.Open(t.Context(), fake.URL()+"?sasl=plain")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	b, _ := place(t)
	var tasks []store.Task
	var ids []store.ID
	for i, mib := range []int{5, 17} {
		tasks = append(tasks, oldTask(i, func(t *store.Task) { t.Args = []byte(`"` + strings.Repeat("x", mib<<20) + `"`) }))
		ids = append(ids, tasks[i].ID)
	}
	shelve(t, b, tasks)
	got, err := keeper(t, s, b).Restore(t.Context(), ask(t, s, Restore{IDs: ids}), nil)
	if err != nil || got.State != RestoreDone || got.Restored != 2 {
		t.Fatalf("%+v: %v", got, err)
	}
	either(t, "after a restore", s, b, ids, func(int) bool { return true })
}

func TestARestoreThatIsCancelledStops(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	b, _ := place(t)
	ids := run(t, s, storetest.NewID(), 30, "q")
	r := keeper(t, s, b)
	drain(t, r)
	id := ask(t, s, Restore{})
	if err := CancelRestore(ctx, s, id); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Restore(ctx, id, nil); err != nil || got.State != RestoreCancelled || got.Restored != 0 {
		t.Errorf("%+v: %v", got, err)
	}
	once(t, "cancelled", archived(t, b), ids)
	if err := CancelRestore(ctx, s, storetest.NewID()); !errors.Is(err, ErrNoSuchRestore) {
		t.Errorf("one that is not there: %v", err)
	}
}

// A file that a newer program wrote cannot be rewritten, and keeps the restored tasks.
func TestARestoreEndsWhereAFileCannotBeWrittenAnew(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	b, _ := place(t)
	ids := run(t, s, storetest.NewID(), 30, "q")
	r := keeper(t, s, b)
	drain(t, r)
	known := columns
	columns = map[string]bool{}
	defer func() { columns = known }()
	got, err := r.Restore(ctx, ask(t, s, Restore{}), nil)
	if err != nil || got.State != RestoreDone || got.Restored != 30 {
		t.Errorf("%+v: %v", got, err)
	}
	once(t, "kept", archived(t, b), ids)
	if note, err := r.read(ctx); note != nil || err != nil {
		t.Errorf("the note is left: %+v: %v", note, err)
	}
}

// dying is a database whose process dies at a certain write: before it or after it.
type dying struct {
	store.Store
	writes atomic.Int64 // atomic, because a beat may write at the same time
	at     int64
	after  bool
}

var errDied = errors.New("the process died")

func (d *dying) die(write func() error) error {
	n := d.writes.Add(1)
	if n > d.at {
		return errDied
	}
	if n < d.at {
		return write()
	}
	if d.after {
		if err := write(); err != nil {
			return err
		}
	}
	return errDied
}

func (d *dying) PutRecord(ctx context.Context, p store.PutRecord) (version int64, results []store.Enqueued, err error) {
	err = d.die(func() (err error) {
		version, results, err = d.Store.PutRecord(ctx, p)
		return err
	})
	return version, results, err
}

func (d *dying) Restore(
	ctx context.Context, note store.Record, tasks []store.Task,
) (version int64, exist []store.ID, err error) {
	err = d.die(func() (err error) {
		version, exist, err = d.Store.(store.Restorer).Restore(ctx, note, tasks)
		return err
	})
	return version, exist, err
}

func (d *dying) Unwrap() store.Store { return d.Store }

// A process that restores dies before or after each of its writes to the database. Another process
// finishes the restore, and each task is in the database or in the archive.
func TestWhereverARestoreDiesEachTaskIsThereOnce(t *testing.T) {
	for _, after := range []bool{false, true} {
		for at := int64(1); ; at++ {
			s, ctx := memory.New(), t.Context()
			b, _ := place(t)
			var ids []store.ID
			r := keeper(t, s, b)
			for range 2 {
				ids = append(ids, run(t, s, storetest.NewID(), 30, "q")...)
				drain(t, r)
			}
			id := ask(t, s, Restore{Query: Query{Tenants: []string{"t0"}}})
			d := &dying{Store: s, at: at, after: after}
			_, err := keeper(t, d, b).Restore(ctx, id, nil)
			if err == nil {
				if at < 8 {
					t.Errorf("a restore has %d writes, want more", at-1)
				}
				break
			}
			if !errors.Is(err, errDied) {
				t.Fatalf("at write %d: %v", at, err)
			}
			got, err := keeper(t, s, b).Restore(ctx, id, nil)
			if err != nil || got.State != RestoreDone || got.Restored != 20 {
				t.Fatalf("died at write %d (after: %v): %+v: %v", at, after, got, err)
			}
			either(t, fmt.Sprintf("died at write %d (after: %v)", at, after), s, b, ids, func(i int) bool { return i%3 == 0 })
		}
	}
}

// Processes that restore are killed at random moments. In the end, each task is in the database or
// in the archive, and no file is left that no manifest lists.
func TestWhateverDiesARestoreEnds(t *testing.T) {
	ctx := t.Context()
	dir, s, b := onDisk(t)
	var tasks []store.Task
	var ids []store.ID
	for i := range 600 {
		tasks = append(tasks, oldTask(i%48, func(t *store.Task) {
			t.Queue, t.Tenant = fmt.Sprint("q", i%3), fmt.Sprint("t", i%10)
		}))
		ids = append(ids, tasks[i].ID)
	}
	for part := range slices.Chunk(tasks, 300) {
		shelve(t, b, part)
	}
	for round := range 3 {
		ask(t, s, Restore{Query: Query{Tenants: []string{fmt.Sprint("t", round)}}})
		kill := startOn(t, dir, changeEnv)
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		kill()
	}
	r := keeper(t, s, b)
	for end := time.Now().Add(time.Minute); ; {
		if err := r.tend(ctx); err != nil {
			t.Fatal(err)
		}
		all, err := Restores(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		restored := int64(0)
		for i := range all {
			restored += all[i].Restored
		}
		if !slices.ContainsFunc(all, func(r Restore) bool { return !r.Ended() }) {
			if restored != 180 {
				t.Errorf("%d tasks are counted as restored, want 180", restored)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", all)
		}
	}
	either(t, "in the end", s, b, ids, func(i int) bool { return tasks[i].Tenant <= "t2" })
}
