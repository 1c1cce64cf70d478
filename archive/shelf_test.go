package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
	"github.com/tuskqueue/tusk/store/storetest"
)

// idAt returns an id that was made at a given time.
func idAt(at time.Time) store.ID {
	id := storetest.NewID()
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// oldTask returns a task that ended so many hours after the first of January.
func oldTask(hours int, change func(*store.Task)) store.Task {
	end := time.Date(2026, 1, 1, hours, 0, 0, 0, time.UTC)
	t := store.Task{ID: idAt(end.Add(-time.Minute)), Kind: "mail", Queue: "q", State: store.Completed,
		Args: []byte(`{"n": 1}`), Attempt: 1,
		EnqueuedAt: end.Add(-time.Minute), RunAt: end.Add(-time.Minute), ClaimedAt: end, FinishedAt: end,
		Detail: &store.Detail{}}
	if change != nil {
		change(&t)
	}
	return t
}

// shelve puts tasks into an archive, as a batch that has ended.
func shelve(t testing.TB, b *blob.Bucket, tasks []store.Task) {
	t.Helper()
	shelveOne(t, b, tasks, true)
}

// shelveOne is shelve, but publishes the catalogue only if publish is set.
func shelveOne(t testing.TB, b *blob.Bucket, tasks []store.Task, publish bool) {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	w, err := newBatch(b, storetest.NewID(), dir, func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer w.discard()
	if err := w.add(ctx, &store.Due{Tasks: tasks}); err != nil {
		t.Fatal(err)
	}
	files, err := w.finish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Schema: SchemaVersion, Batch: w.id, Written: time.Now().UTC(), Files: files}
	if err := errors.Join(m.put(ctx, b), remove(ctx, b, receiptPath(w.id))); err != nil {
		t.Fatal(err)
	}
	if !publish {
		return
	}
	if err := New(b, dir).Publish(ctx); err != nil {
		t.Fatal(err)
	}
}

// mixed returns tasks that differ in everything that a search can ask for.
func mixed(n int) []store.Task {
	tasks := make([]store.Task, n)
	for i := range tasks {
		tasks[i] = oldTask(i%72, func(t *store.Task) {
			t.Kind, t.Queue, t.Tenant = []string{"mail", "bill", "scan"}[i%3], []string{"a", "b"}[i%2],
				[]string{"", "acme", "bolt", "corp"}[i%4]
			t.State = []store.State{store.Completed, store.Discarded, store.Cancelled}[i%5%3]
			t.Args = fmt.Appendf(nil, `{"order": {"id": %d}}`, i%7)
			t.Key = []string{"", "k1"}[i%11/10]
			if i%13 == 0 {
				t.Tags = []string{"x", "y"}
			}
			if i%17 == 0 {
				t.Args = []byte(`{"$encrypted":{"key":"k","nonce":"AA==","data":"AA=="}}`)
			}
			if t.State == store.Discarded {
				t.Detail.Attempts = []store.Attempt{{Number: 1, StartedAt: t.ClaimedAt, EndedAt: t.FinishedAt,
					Outcome: store.Discarded,
					Error:   "boom", Fingerprint: []string{"f1", "f2"}[i%2]}}
			}
		})
	}
	return tasks
}

func TestASearchFindsWhatMatchesAndGoesOnWhereItStopped(t *testing.T) {
	b, _ := place(t)
	tasks := mixed(1500)
	for part := range slices.Chunk(tasks, 400) {
		shelve(t, b, part)
	}
	a := New(b, t.TempDir())
	group := func(t *store.Task) string {
		if len(t.Detail.Attempts) == 0 {
			return ""
		}
		return t.Detail.Attempts[0].Fingerprint
	}
	since, until := time.Date(2026, 1, 1, 20, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 7, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		q    Query
		want func(*store.Task) bool
	}{
		"all": {Query{}, func(*store.Task) bool { return true }},
		"state": {Query{States: []string{"discarded", "cancelled"}}, func(t *store.Task) bool {
			return t.State != store.Completed
		}},
		"queue": {Query{Queues: []string{"b"}}, func(t *store.Task) bool { return t.Queue == "b" }},
		"kind":  {Query{Kinds: []string{"bill"}}, func(t *store.Task) bool { return t.Kind == "bill" }},
		"tenant": {Query{Tenants: []string{"bolt", "corp"}}, func(t *store.Task) bool {
			return t.Tenant == "bolt" || t.Tenant == "corp"
		}},
		"key":    {Query{Key: "k1"}, func(t *store.Task) bool { return t.Key == "k1" }},
		"tags":   {Query{Tags: []string{"y", "x"}}, func(t *store.Task) bool { return len(t.Tags) == 2 }},
		"no tag": {Query{Tags: []string{"y", "z"}}, func(t *store.Task) bool { return false }},
		"error":  {Query{ErrorGroup: "f2"}, func(t *store.Task) bool { return group(t) == "f2" }},
		"time": {Query{From: since, Until: until}, func(t *store.Task) bool {
			return !t.FinishedAt.Before(since) && t.FinishedAt.Before(until)
		}},
		"nothing": {Query{Kinds: []string{"other"}}, func(t *store.Task) bool { return false }},
		"args": {Query{Args: "order.id=3", Tenants: []string{"acme"}}, func(t *store.Task) bool {
			return strings.Contains(string(t.Args), ": 3}") && t.Tenant == "acme"
		}},
		"bounds": {Query{Sees: func(queue, tenant string) bool { return queue == "a" && tenant == "bolt" }},
			func(t *store.Task) bool { return t.Tenant == "bolt" }},
	} {
		want := map[store.ID]bool{}
		for i := range tasks {
			if c.want(&tasks[i]) {
				want[tasks[i].ID] = true
			}
		}
		n, err := a.Count(t.Context(), c.q, 0, nil)
		if err != nil || n.Tasks != int64(len(want)) {
			t.Errorf("%s: counted %+v, want %d: %v", name, n, len(want), err)
		}
		got, cursor, day := 0, "", "9999"
		for {
			found, err := a.Search(t.Context(), c.q, cursor, 37, 0, nil)
			if err != nil {
				t.Fatal(name, err)
			}
			for _, task := range found.Tasks {
				if ended := task.FinishedAt.Format(time.DateOnly); ended > day {
					t.Errorf("%s: a task of %s comes after one of %s", name, ended, day)
				} else {
					day = ended
				}
				if !want[task.ID] {
					t.Errorf("%s: found %+v", name, task)
				}
				delete(want, task.ID)
				got++
			}
			if cursor = found.Next; cursor == "" {
				break
			}
			if len(found.Tasks) != 37 {
				t.Errorf("%s: a page has %d tasks", name, len(found.Tasks))
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: found %d tasks, and not %d others", name, got, len(want))
		}
	}
	found, err := a.Search(t.Context(), Query{Args: "encrypted"}, "", 10, 0, nil)
	sealed := int64(0)
	for i := range tasks {
		if i%17 == 0 {
			sealed++
		}
	}
	if err != nil || len(found.Tasks) > 0 || found.Sealed != sealed {
		t.Errorf("in encrypted args %d tasks were found, and %d of %d named: %v", len(found.Tasks), found.Sealed, sealed, err)
	}
	if _, err := a.Search(t.Context(), Query{}, "x", 1, 0, nil); !errors.Is(err, ErrCursor) {
		t.Error(err)
	}
	if _, err := a.Search(t.Context(), Query{}, "7@day=2026-01-01/queue=a/gone.parquet", 1, 0,
		nil); !errors.Is(err, ErrMoved) {
		t.Error(err)
	}
}

func TestSpansHoldWhatWasAdded(t *testing.T) {
	for range 200 {
		var s spans
		var added []int64
		for range rand.IntN(400) {
			second := 1_800_000_000 + rand.Int64N(1_000_000)
			if rand.IntN(3) > 0 {
				second = 1_800_000_000 + int64(len(added))
			}
			added = append(added, second)
			s = s.add(second)
		}
		text, err := json.Marshal(s)
		var back spans
		if err = errors.Join(err, json.Unmarshal(text, &back)); err != nil || !slices.Equal(s, back) || len(s) > mostSpans {
			t.Fatalf("%d spans, %s: %v", len(s), text, err)
		}
		for _, second := range added {
			if _, holds := back.find(second); !holds {
				t.Fatalf("%v does not hold %d", s, second)
			}
		}
		if !slices.IsSortedFunc(s, func(a, b span) int {
			return bytes.Compare([]byte(fmt.Sprint(a.from)), []byte(fmt.Sprint(b.from)))
		}) {
			t.Fatal(s)
		}
	}
	if _, holds := (spans{{5, 7}, {10, 10}}).find(8); holds {
		t.Error("a gap is held")
	}
}

// keeper returns a Runner that changes an archive.
func keeper(t testing.TB, s store.Store, b *blob.Bucket) *Runner {
	t.Helper()
	o := optionsFor(s, b, t.TempDir())
	r, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
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

func TestATenantIsErasedAndNobodyElse(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	b, dir := place(t)
	tasks := mixed(900)
	for part := range slices.Chunk(tasks, 300) {
		shelve(t, b, part)
	}
	a := New(b, t.TempDir())
	if _, err := a.Find(ctx, tasks[1].ID); err != nil { // it caches the footers
		t.Fatal(err)
	}
	if err := PutHold(ctx, s, Hold{Name: "case", Tenant: "acme", Queue: "b",
		From: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)}, time.Second); err != nil {
		t.Fatal(err)
	}
	held := func(t *store.Task) bool {
		return t.Tenant == "acme" && t.Queue == "b" && t.FinishedAt.Day() == 3
	}
	e, err := RequestErasure(ctx, s, storetest.NewID(), "acme", "ada")
	if err != nil {
		t.Fatal(err)
	}
	would, err := a.Erasable(ctx, s, "acme")
	if err != nil {
		t.Fatal(err)
	}
	r := keeper(t, s, b)
	if err := r.chores(ctx); err != nil {
		t.Fatal(err)
	}
	check := func(stays func(*store.Task) bool) (gone int64) {
		t.Helper()
		times := archived(t, b)
		for i := range tasks {
			want := 0
			if stays(&tasks[i]) {
				want = 1
			} else {
				gone++
			}
			if times[tasks[i].ID.String()] != want {
				t.Errorf("%+v is there %d times", tasks[i], times[tasks[i].ID.String()])
			}
		}
		return gone
	}
	gone := check(func(t *store.Task) bool { return t.Tenant != "acme" || held(t) })
	all, err := Erasures(ctx, s)
	if err != nil || len(all) != 1 || all[0].ID != e.ID || all[0].State != ErasureHeld || all[0].Tasks != gone ||
		all[0].Held == 0 || would.Tasks != gone {
		t.Errorf("the request is %+v, and %d are gone, a dry run said %+v: %v", all, gone, would, err)
	}
	if err := r.chores(ctx); err != nil { // nothing has changed
		t.Fatal(err)
	}
	if err := errors.Join(RemoveHold(ctx, s, "case"), r.chores(ctx)); err != nil {
		t.Fatal(err)
	}
	check(func(t *store.Task) bool { return t.Tenant != "acme" })
	if all, err = Erasures(ctx, s); err != nil || all[0].State != ErasureDone || all[0].Done.IsZero() || all[0].Held != 0 {
		t.Errorf("in the end the request is %+v: %v", all, err)
	}
	if _, err := a.Find(ctx, tasks[1].ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("an erased task is found: %v", err)
	}
	text, err := exec.Command("grep", "-rl", "acme", dir).CombinedOutput()
	if len(text) > 0 {
		t.Errorf("files still name the tenant: %s %v", text, err)
	}
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

const eraseEnv = "TUSK_TEST_ARCHIVE_ERASE"

// eraseForever carries out all requests until it is killed.
func eraseForever(dir string) error {
	s, err := sqlitefile.Open(context.Background(), filepath.Join(dir, "tusk.db"))
	if err != nil {
		return err
	}
	b, err := fileblob.OpenBucket(filepath.Join(dir, "archive"), folder)
	if err != nil {
		return err
	}
	r, err := NewRunner(optionsFor(s, b, filepath.Join(dir, "spool")))
	for err == nil {
		err = r.tend(context.Background())
	}
	return err
}

// Processes that erase tenants and prune are killed at random moments. In the end, those tenants
// are gone, all others are there once, and no file is left that no manifest lists.
func TestWhateverDiesAnErasureEnds(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	for _, sub := range []string{"archive", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s, err := sqlitefile.Open(ctx, filepath.Join(dir, "tusk.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if m, ok := store.As[store.Migrator](s); ok {
		if _, err := m.Migrate(ctx, -1); err != nil {
			t.Fatal(err)
		}
	}
	b, err := fileblob.OpenBucket(filepath.Join(dir, "archive"), folder)
	if err != nil {
		t.Fatal(err)
	}
	var tasks []store.Task
	for i := range 1200 {
		tasks = append(tasks, oldTask(i%48, func(t *store.Task) {
			t.Queue, t.Tenant = fmt.Sprint("q", i%3),
				fmt.Sprint("t", i%10)
		}))
	}
	for part := range slices.Chunk(tasks, 300) {
		shelve(t, b, part)
	}
	for round := range 5 {
		if _, err := RequestErasure(ctx, s, storetest.NewID(), fmt.Sprint("t", round), ""); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), eraseEnv+"="+dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	r := keeper(t, s, b)
	for end := time.Now().Add(time.Minute); ; {
		if err := r.tend(ctx); err != nil {
			t.Fatal(err)
		}
		all, err := Erasures(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(all, func(e Erasure) bool { return e.State != ErasureDone }) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", all)
		}
	}
	if _, err := r.Prune(ctx, nil); err != nil { // settles what was left behind
		t.Fatal(err)
	}
	times := archived(t, b)
	for i := range tasks {
		want := 0
		if tasks[i].Tenant > "t4" {
			want = 1
		}
		if times[tasks[i].ID.String()] != want {
			t.Errorf("a task of %s is there %d times", tasks[i].Tenant, times[tasks[i].ID.String()])
		}
	}
}
