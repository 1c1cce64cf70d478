package archive

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// days puts the tasks of some days into an archive, in as many batches as are merged. The tasks
// were made in each minute of their day, and some have waited for days. One day's file is too large
// to be read with its footer in one request. days returns some of the tasks, including those that
// waited.
func days(t *testing.T, b *blob.Bucket) (some []store.Task) {
	t.Helper()
	for day := range 6 {
		tasks := make([]store.Task, 3000)
		for i := range tasks {
			tasks[i] = oldTask(24*day, func(t *store.Task) {
				t.FinishedAt = t.FinishedAt.Add(time.Duration(i) * 24 * time.Hour / 3000)
				waited := time.Duration(rand.Int64N(int64(time.Minute)))
				if i%60 == 0 {
					waited = time.Duration(rand.Int64N(int64(5 * 24 * time.Hour)))
				}
				t.EnqueuedAt = t.FinishedAt.Add(-waited)
				t.ID = idAt(t.EnqueuedAt)
				noise := make([]byte, 300)
				for j := range noise {
					noise[j] = byte(rand.Uint32())
				}
				t.Args = fmt.Appendf(nil, `{"n": %q}`, hex.EncodeToString(noise))
			})
			if i%180 == 0 || i%300 == 1 {
				some = append(some, tasks[i])
			}
		}
		for batch := range slices.Chunk(tasks, len(tasks)/mergeFiles) {
			shelve(t, b, batch)
		}
	}
	return some
}

func TestALookUpTakesThreeRequestsAtMost(t *testing.T) {
	b, _ := place(t)
	some := days(t, b)
	check := func(when string) {
		t.Helper()
		warm := New(b, t.TempDir())
		for _, task := range some {
			cold := New(b, t.TempDir())
			got, err := cold.Find(t.Context(), task.ID)
			if err != nil || got.ID != task.ID {
				t.Fatal(task.ID, err)
			}
			if n := cold.Requests(); n > 3 {
				t.Errorf("%s: the first look-up of a process took %d requests for a task that waited for %v", when, n,
					task.FinishedAt.Sub(task.EnqueuedAt))
			}
			before := warm.Requests()
			if _, err := warm.Find(t.Context(), task.ID); err != nil {
				t.Fatal(err)
			}
			if n := warm.Requests() - before; n > 3 {
				t.Errorf("%s: a later look-up took %d requests", when, n)
			}
		}
		before := warm.Requests()
		if _, err := warm.Find(t.Context(), idAt(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if n := warm.Requests() - before; n > 2 {
			t.Errorf("%s: that a task is nowhere took %d requests", when, n)
		}
	}
	check("as they were archived")
	r, err := NewRunner(optionsFor(memory.New(), b, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if more, err := r.merge(t.Context()); err != nil || more {
		t.Fatal(more, err)
	}
	check("merged")
	gone := some[len(some)/2].ID
	if _, err := r.cut(t.Context(), func(time.Time) (cut, error) { return returned{gone.String(): true}, nil },
		nil); err != nil {
		t.Fatal(err)
	}
	some = slices.DeleteFunc(some, func(task store.Task) bool { return task.ID == gone })
	check("when a file was written anew")
}

func TestStraysAreExactUntilThereAreTooMany(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, n := range []int{0, 1, mostStrays, mostStrays + 1} {
		var f File
		var ids []string
		for i := range n + 100 {
			made := begun.Add(-time.Duration(1+i) * time.Minute)
			if i >= n {
				made = begun.Add(time.Duration(i) * time.Second)
			}
			r := Row{ID: idAt(made).String(), FinishedAt: begun.Add(time.Duration(i) * time.Second).UnixMicro()}
			f.count(&r, i%7)
			ids = append(ids, r.ID)
		}
		f.endStrays()
		text, err := json.Marshal(f)
		var back File
		if err = errors.Join(err, json.Unmarshal(text, &back)); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if !back.mayHave(id) {
				t.Fatalf("with %d strays, %s is in the file, which says that it is not", n, id)
			}
			if group, _ := back.Strays.group(id); n <= mostStrays && i < n && group != i%7 {
				t.Errorf("the stray %d of %d is said to be in group %d, and is in %d", i, n, group, i%7)
			}
		}
		if n == 0 {
			continue
		}
		if may := back.mayHave(idAt(begun.Add(-time.Minute)).String()); may != (n > mostStrays) {
			t.Errorf("with %d strays, a file may have another id of their time: %v", n, may)
		}
	}
}
