package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// batches archives tasks in so many batches, each with two queues.
func batches(t *testing.T, s store.Store, r *Runner, n int) (ids []store.ID) {
	t.Helper()
	worker := storetest.NewID()
	for range n {
		ids = append(ids, run(t, s, worker, 300, "mail")...)
		ids = append(ids, run(t, s, worker, 5, "other")...)
		time.Sleep(time.Millisecond) // their retention ends
		if _, err := r.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, r)
	return ids
}

func TestSmallFilesAreMergedAndTheirTasksAreThereOnce(t *testing.T) {
	s := memory.New()
	b, dir := place(t)
	r := unhurried(t, s, b)
	ids := batches(t, s, r, mergeFiles+2)
	if files := parquetFiles(t, dir); len(files) < 2*mergeFiles {
		t.Fatalf("%d files before the merge: too few for this test", len(files))
	}
	r.due = time.Time{}
	if err := r.chores(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files := parquetFiles(t, dir); len(files) != 2 {
		t.Errorf("after the merge there are %d files, want 2", len(files))
	}
	times := archived(t, b)
	for _, id := range ids {
		if times[id.String()] != 1 {
			t.Fatalf("after the merge task %v is in the archive %d times", id, times[id.String()])
		}
	}
	a := New(b, t.TempDir())
	for i := 0; i < len(ids); i += 97 {
		task, err := a.Find(t.Context(), ids[i])
		if want := fmt.Sprintf(`{"n": %d}`, i%305%300); err != nil || task.ID != ids[i] || string(task.Args) != want {
			t.Fatalf("look-up of task %d after the merge: %v with %s, want %s: %v", i, task.ID, task.Args, want, err)
		}
	}
	manifests, err := filepath.Glob(filepath.Join(dir, "_tusk", "manifests", "*"))
	if err != nil || len(manifests) != 1 {
		t.Errorf("after the merge there are %d manifests, want 1: %v", len(manifests), err)
	}
	drain(t, r)
	if r.version != 0 {
		t.Error("a note is left")
	}
}

// mergeFirst merges the first group of small files, and returns the manifest for that and the number of groups.
func mergeFirst(t *testing.T, r *Runner) (*Note, *Manifest, int) {
	t.Helper()
	note, now, err := r.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := r.shelf.Manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	groups, _ := mergeable(manifests, now)
	f, err := r.mergeGroup(t.Context(), note, groups[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	m, merged := &Manifest{Files: []File{f}}, map[string]bool{}
	for _, f := range groups[0] {
		merged[f.Path] = true
		note.Paths = append(note.Paths, f.Path)
	}
	m.replace(manifests, merged)
	return note, m, len(groups)
}

// A merge that ends at any point leaves each task in the archive once. The process that continues
// from its note leaves no file that no manifest lists.
func TestAMergeThatDiesIsEndedOrTakenBack(t *testing.T) {
	s := memory.New()
	b, dir := place(t)
	o := optionsFor(s, b, t.TempDir())
	r, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	r.due = time.Now().Add(time.Hour)
	ids, left := batches(t, s, r, mergeFiles), 2
	for _, end := range []string{"before the manifest", "before that is noted", "committed"} {
		note, m, groups := mergeFirst(t, r)
		if groups != left {
			t.Fatalf("%d groups of files are to be merged, want %d", groups, left)
		}
		switch end {
		case "before that is noted":
			draft(t, r, note, m)
			err = m.put(t.Context(), b)
		case "committed":
			err = r.commit(t.Context(), note, m)
		}
		if err != nil {
			t.Fatal(err)
		}
		if end != "before the manifest" { // a manifest that has arrived counts
			left--
		}
		o.ID = storetest.NewID() // another process
		if r, err = NewRunner(o); err != nil {
			t.Fatal(err)
		}
		r.due = time.Now().Add(time.Hour)
		drain(t, r)
		if times := archived(t, b); len(times) != len(ids) {
			t.Errorf("%s: %d tasks are archived, want %d", end, len(times), len(ids))
		}
		if files, want := parquetFiles(t, dir), left*mergeFiles+2-left; len(files) != want {
			t.Errorf("%s: %d files, want %d", end, len(files), want)
		}
	}
}

func TestFilesOfANewerProgramAreNotMerged(t *testing.T) {
	type newer struct {
		Row
		Mood string `parquet:"mood"`
	}
	local, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	w := parquet.NewGenericWriter[newer](local)
	if _, err := w.Write([]newer{{Mood: "good"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rewritable(local); err == nil {
		t.Error("a file with a column that this program does not know is written anew without it")
	}
}

func TestWhatIsMergedWithWhat(t *testing.T) {
	now := time.Now()
	file := func(day string, age time.Duration, size int64, n int) File {
		var id store.ID
		ms := now.Add(-age).UnixMilli()
		for i := range 6 {
			id[i] = byte(ms >> (40 - 8*i))
		}
		id[6], id[8], id[15] = 0x70, 0x80, byte(n)
		return File{Path: Partition{day, "q"}.path(id, 0), Day: day, Queue: "q", Bytes: size, MinID: id.String()}
	}
	const mib = 1 << 20
	var young, few, large, many []File
	for i := range mergeFiles - 1 {
		young = append(young, file("2026-01-01", time.Hour, mib, i))
	}
	for i := range 2 {
		few = append(few, file("2026-01-02", mergeRest+time.Hour, mib, i))
	}
	for i := range mergeFiles {
		large = append(large, file("2026-01-03", mergeRest+time.Hour, smallFile, i))
		many = append(many, file("2026-01-04", time.Hour, 30*mib, i))
	}
	for name, c := range map[string]struct {
		files []File
		want  []int // number of files in each group
	}{
		"fewer wait for more": {young, nil},
		"until none comes":    {few, []int{2}},
		"large ones stay":     {large, nil},
		"as many as fit":      {many, []int{5, 3}},
	} {
		groups, more := mergeable([]Manifest{{Schema: SchemaVersion, Files: c.files}}, now)
		var got []int
		for _, g := range groups {
			got = append(got, len(g))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || more {
			t.Errorf("%s: groups of %v files, want %v", name, got, c.want)
		}
	}
}

func parquetFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "day=*", "queue=*", "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
