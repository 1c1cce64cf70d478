package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/store"
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
