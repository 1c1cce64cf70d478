package archive

import (
	"errors"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// keeper returns a Runner that changes an archive.
func keeper(t testing.TB, s store.Store, b *blob.Bucket) *Runner {
	t.Helper()
	r, err := NewRunner(optionsFor(s, b, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// unhurried is a keeper whose chores are due in an hour.
func unhurried(t testing.TB, s store.Store, b *blob.Bucket) *Runner {
	t.Helper()
	r := keeper(t, s, b)
	r.due = time.Now().Add(time.Hour)
	return r
}

func TestWhatIsPastItsRetentionGoesUnlessItIsHeld(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	b, _ := place(t)
	var tasks []store.Task
	now := time.Now().UTC()
	ago := func(days int, queue, tenant string) {
		tasks = append(tasks, oldTask(0, func(t *store.Task) {
			t.Queue, t.Tenant, t.FinishedAt = queue, tenant, now.AddDate(0, 0, -days)
			t.ID = idAt(t.FinishedAt)
		}))
	}
	for day := range 20 {
		for _, tenant := range []string{"", "acme", "bolt"} {
			ago(day, "long", tenant)
			ago(day, "short", tenant)
			ago(day, "kept", tenant)
		}
	}
	shelve(t, b, tasks)
	week, day := 7*24*time.Hour, 3*24*time.Hour
	forever := time.Duration(0)
	err := errors.Join(SetRetention(ctx, s, "", &week), SetRetention(ctx, s, "short", &day),
		SetRetention(ctx, s, "kept", &forever), PutHold(ctx, s, Hold{Name: "one", Tenant: "acme", Queue: "short"},
			time.Second), PutHold(ctx, s, Hold{Name: "two", From: now.AddDate(0, 0, -12).Add(-time.Hour),
			Until: now.AddDate(0, 0, -12).Add(time.Hour)}, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	stays := func(t *store.Task, held bool) bool {
		age := now.Sub(t.FinishedAt)
		keep := map[string]time.Duration{"long": week, "short": day, "kept": 1 << 62}[t.Queue]
		return age < keep || held && (t.Tenant == "acme" && t.Queue == "short" || age > 12*24*time.Hour-time.Hour &&
			age < 12*24*time.Hour+time.Hour)
	}
	check := func(held bool) (gone int64) {
		t.Helper()
		times := archived(t, b)
		for i := range tasks {
			want := 0
			if stays(&tasks[i], held) {
				want = 1
			} else {
				gone++
			}
			if times[tasks[i].ID.String()] != want {
				t.Errorf("a task of %s and %q of %v is there %d times, want %d", tasks[i].Queue, tasks[i].Tenant,
					tasks[i].FinishedAt, times[tasks[i].ID.String()], want)
			}
		}
		return gone
	}
	r := keeper(t, s, b)
	would, err := New(b, "").Prunable(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := r.Prune(ctx, nil)
	if want := check(true); err != nil || gone.Tasks != want || would.Tasks != want {
		t.Errorf("pruned %+v, a dry run said %+v, want %d: %v", gone, would, want, err)
	}
	if again, err := r.Prune(ctx, nil); err != nil || again != (Gone{}) {
		t.Errorf("again: %+v, %v", again, err)
	}
	if err := errors.Join(RemoveHold(ctx, s, "one"), RemoveHold(ctx, s, "two")); err != nil {
		t.Fatal(err)
	}
	if err := RemoveHold(ctx, s, "two"); !errors.Is(err, ErrNoHold) {
		t.Error(err)
	}
	if err := r.chores(ctx); err != nil {
		t.Fatal(err)
	}
	check(false)
}

// A hold that is put while a process deletes is in force once PutHold has returned.
func TestAHoldWaitsForWhoBeganToDeleteBefore(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	b, _ := place(t)
	r := keeper(t, s, b)
	note, _, err := r.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := PutHold(ctx, s, Hold{Name: "h", Queue: "q"}, 0); !errors.Is(err, ErrStillChanging) {
		t.Errorf("while a change goes on: %v", err)
	}
	done := make(chan error)
	go func() { done <- PutHold(ctx, s, Hold{Name: "h", Queue: "q"}, time.Minute) }()
	if err := errors.Join(r.sweep(ctx, note), r.clear(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
