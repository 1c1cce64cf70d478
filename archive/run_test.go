package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

var folder = &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite, CreateDir: true}

func optionsFor(s store.Store, b *blob.Bucket, dir string) Options {
	return Options{Store: s, Bucket: b, ID: storetest.NewID(), NewID: storetest.NewID, Dir: dir,
		Log:   slog.New(slog.DiscardHandler),
		Every: time.Nanosecond, Patience: time.Nanosecond,
		Keep: func(context.Context) (store.Retention, error) {
			return store.Retention{Completed: time.Microsecond, Cancelled: time.Microsecond, Discarded: time.Microsecond}, nil
		}}
}

// place makes a folder for an archive.
func place(t *testing.T) (*blob.Bucket, string) {
	t.Helper()
	dir := t.TempDir()
	b, err := fileblob.OpenBucket(dir, folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, dir
}

// run enqueues tasks and completes them.
func run(t *testing.T, s store.Store, worker store.ID, n int, queue string) (ids []store.ID) {
	t.Helper()
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: storetest.NewID(), Kind: "k", Queue: queue, Tenant: fmt.Sprint("t", i%3),
			Args: fmt.Appendf(nil, `{"n": %d}`, i)}
		ids = append(ids, tasks[i].ID)
	}
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	finish(t, s, worker, queue)
	return ids
}

// finish completes the tasks that wait in a queue.
func finish(t *testing.T, s store.Store, worker store.ID, queue string) {
	t.Helper()
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for {
		claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{queue}, Limit: 500,
			Token: store.NewToken()})
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) == 0 {
			return
		}
		outcomes := make([]store.Outcome, len(claimed))
		for i := range claimed {
			outcomes[i] = store.Outcome{Task: &claimed[i], State: store.Completed, Attempt: claimed[i].Attempt}
		}
		if lost, err := s.Finish(t.Context(), outcomes); err != nil || len(lost) > 0 {
			t.Fatal(len(lost), err)
		}
	}
}

// drain archives until nothing is left to archive.
func drain(t *testing.T, r *Runner) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		pause, err := r.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if pause > 0 && r.version == 0 {
			time.Sleep(time.Millisecond)
			if left, err := r.engine.Due(t.Context(), store.Retention{Completed: 1, Cancelled: 1, Discarded: 1}, "",
				1); err != nil || len(left.Tasks) == 0 {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("archiving does not end")
		}
	}
}

// archived counts how often each task is in the files. The files must be those of the manifests.
func archived(t *testing.T, b *blob.Bucket) map[string]int {
	t.Helper()
	a := New(b, t.TempDir())
	v, err := a.Verify(t.Context(), nil)
	if err != nil || len(v.Problems) > 0 {
		t.Fatal(v.Problems, err)
	}
	times := map[string]int{}
	manifests, err := a.Manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counted := int64(0)
	for _, m := range manifests {
		counted += m.Tasks()
		for _, f := range m.Files {
			local, err := f.download(t.Context(), b, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			n := int64(0)
			err = eachRow(local, func(r *Row) error { n++; times[r.ID]++; return nil })
			discard(local)
			if err != nil || n != f.Tasks {
				t.Fatalf("%s has %d tasks, and the manifest says %d: %v", f.Path, n, f.Tasks, err)
			}
		}
	}
	if counted != v.Tasks {
		t.Errorf("the manifests count %d tasks, and %d were verified", counted, v.Tasks)
	}
	return times
}

func TestFinishedTasksMoveIntoTheArchiveAndAreFoundThere(t *testing.T) {
	s, worker := memory.New(), storetest.NewID()
	b, dir := place(t)
	ids := append(run(t, s, worker, 300, "mail"), run(t, s, worker, 20, "other")...)
	want, err := s.List(t.Context(), store.Filter{IDs: ids[7:8], Detail: true})
	if err != nil {
		t.Fatal(err)
	}
	r := keeper(t, s, b)
	drain(t, r)
	if left, err := s.List(t.Context(), store.Filter{}); err != nil || len(left) != 0 {
		t.Errorf("%d tasks are left in the database: %v", len(left), err)
	}
	if times := archived(t, b); len(times) != len(ids) {
		t.Errorf("%d tasks are archived, want %d", len(times), len(ids))
	}
	files, _ := filepath.Glob(filepath.Join(dir, "day=*", "queue=mail", "*.parquet"))
	if len(files) == 0 {
		t.Error("no file is where readers of Hive's layout expect it")
	}
	a := New(b, t.TempDir())
	got, err := a.Find(t.Context(), ids[7])
	if err != nil || got.ID != ids[7] || string(got.Args) != string(want[0].Args) || got.Queue != "mail" ||
		got.Tenant != want[0].Tenant ||
		len(got.Detail.Attempts) != 1 || got.FinishedAt.UnixMicro() != want[0].FinishedAt.UnixMicro() {
		t.Errorf("found %+v, want %+v: %v", got, want[0], err)
	}
	for _, id := range ids {
		if task, err := a.Find(t.Context(), id); err != nil || task.ID != id {
			t.Fatalf("look-up of %v: %v, %v", id, task.ID, err)
		}
	}
	if _, err := a.Find(t.Context(), storetest.NewID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("look-up of a task that is not there: %v", err)
	}
	status, err := ReadStatus(t.Context(), s)
	if err != nil || status.Tasks != int64(len(ids)) || status.Succeeded.IsZero() || status.Failing != "" {
		t.Errorf("the status is %+v: %v", status, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], make([]byte, info.Size()), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = New(b, t.TempDir()).Search(t.Context(), Query{Queues: []string{"mail"}}, "", 1000, 0, nil)
	if err == nil || !strings.Contains(err.Error(), filepath.Base(files[0])) {
		t.Errorf("a search in a damaged file, which it should name: %v", err)
	}
}

func TestATaskThatComesBackIsTakenOutOfTheFile(t *testing.T) {
	s, worker := memory.New(), storetest.NewID()
	b, _ := place(t)
	ids := run(t, s, worker, 50, "q")
	o := optionsFor(s, b, t.TempDir())
	r, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	keep, _ := o.Keep(t.Context())
	time.Sleep(time.Millisecond)
	page, err := r.engine.Due(t.Context(), keep, "", 100)
	note := &Note{Holder: o.ID, Batch: storetest.NewID()}
	if err = errors.Join(err, r.write(t.Context(), note)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.fill(t.Context(), note, keep, page); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(t.Context(), store.Edit{IDs: ids[:2], Change: store.Change{Op: store.Retry}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if times := archived(t, b); len(times) != 48 || times[ids[0].String()] != 0 {
		t.Errorf("%d tasks are archived, want 48", len(times))
	}
	finish(t, s, worker, "q")
	drain(t, r)
	if times := archived(t, b); len(times) != 50 {
		t.Errorf("%d tasks are archived, want 50", len(times))
	}
}

func TestAPlaceThatCannotBeReachedKeepsHistoryInTheDatabaseUntilItCan(t *testing.T) {
	s, worker := memory.New(), storetest.NewID()
	b, dir := place(t)
	ids := run(t, s, worker, 50, "q")
	r := keeper(t, s, b)
	away := dir + "-away"
	// The archive is now a file instead of a folder.
	if err := errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	for range 3 {
		if _, err := r.Step(t.Context()); err == nil {
			t.Fatal("a step succeeded without a place")
		}
	}
	left, _ := s.List(t.Context(), store.Filter{})
	status, err := ReadStatus(t.Context(), s)
	if err != nil || status.Failing == "" || len(left) != len(ids) {
		t.Errorf("%d tasks are left, the status is %+v: %v", len(left), status, err)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(away, dir)); err != nil {
		t.Fatal(err)
	}
	drain(t, r)
	if status, err := ReadStatus(t.Context(), s); err != nil || status.Failing != "" || len(archived(t, b)) != len(ids) {
		t.Errorf("afterwards the status is %+v: %v", status, err)
	}
}

// Processes that archive are killed at random moments, while tasks end, some run again, and some
// are deleted. In the end, each task is in the archive once.
func TestWhateverDiesEachTaskIsCountedOnce(t *testing.T) {
	dir, s, b := onDisk(t)
	worker := storetest.NewID()
	var ids []store.ID
	for round := range 12 {
		ids = append(ids, run(t, s, worker, 200, fmt.Sprint("q", round%3))...)
		kill := startOn(t, dir, archiveEnv)
		time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond)
		again := []store.ID{ids[rand.IntN(len(ids))], ids[len(ids)-1], ids[len(ids)-2]}
		if _, err := s.Edit(t.Context(), store.Edit{IDs: again, Change: store.Change{Op: store.Retry}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		kill()
		finish(t, s, worker, fmt.Sprint("q", round%3))
	}
	for q := range 3 {
		finish(t, s, worker, fmt.Sprint("q", q))
	}
	r, err := NewRunner(optionsFor(s, b, filepath.Join(dir, "spool")))
	if err != nil {
		t.Fatal(err)
	}
	drain(t, r)
	half := filepath.Join(dir, "archive", filepath.FromSlash(manifestPath(storetest.NewID()))) + ".18eca287b96bdae0.tmp"
	// A process that is killed while it writes a manifest leaves this.
	if err := os.WriteFile(half, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	times := archived(t, b)
	slices.SortFunc(ids, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		if times[id.String()] != 1 {
			t.Errorf("%v is in the archive %d times", id, times[id.String()])
		}
	}
	if left, err := s.List(t.Context(), store.Filter{}); err != nil || len(left) != 0 || len(times) != len(ids) {
		t.Errorf("%d tasks are left, %d archived of %d: %v", len(left), len(times), len(ids), err)
	}
}
