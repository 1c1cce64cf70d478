package rerun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

const childEnv = "TUSK_TEST_RERUN_CHILD"

// TestMain lets the test binary be a process that carries on reruns until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		c, done, err := openIn(context.Background(), dir)
		if err == nil {
			c.Run(context.Background())
			done()
		}
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func openIn(ctx context.Context, dir string) (*Carrier, func(), error) {
	s, err := sqlitefile.Open(ctx, filepath.Join(dir, "tusk.db"))
	if err != nil {
		return nil, nil, err
	}
	c, err := carrierOn(ctx, s, folderIn(dir), nil)
	return c, func() { s.Close() }, err
}

// folderIn is the archive in a folder.
func folderIn(dir string) string { return "file://" + filepath.ToSlash(filepath.Join(dir, "archive")) }

func carrierOn(ctx context.Context, s store.Store, location string, ring *tusk.KeyRing) (*Carrier, error) {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler), KeyRing: ring})
	if err != nil {
		return nil, err
	}
	bucket, err := place.Open(ctx, location)
	if err != nil {
		return nil, err
	}
	return &Carrier{Client: client, Archive: archive.New(bucket, ""), Log: slog.New(slog.DiscardHandler)}, nil
}

// shelve enqueues tasks, completes them and moves them into the archive.
func shelve(t *testing.T, c *Carrier, location string, tasks []tusk.NewTask) []tusk.ID {
	t.Helper()
	ctx := t.Context()
	var ids []tusk.ID
	for from := 0; from < len(tasks); from += 500 {
		enqueued, err := c.Client.EnqueueMany(ctx, tasks[from:min(from+500, len(tasks))])
		if err != nil {
			t.Fatal(err)
		}
		var page []tusk.ID
		for _, e := range enqueued {
			page = append(page, e.ID)
		}
		if _, err := c.Client.Edit(ctx, page, tusk.Change{Op: tusk.OpCancel, Reason: "not now"}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, page...)
	}
	bucket, err := place.Open(ctx, location)
	if err != nil {
		t.Fatal(err)
	}
	defer bucket.Close()
	r, err := archive.NewRunner(archive.Options{Store: c.Client.Store(), Bucket: bucket, ID: tusk.NewID(),
		NewID: tusk.NewID, Dir: t.TempDir(), Every: time.Nanosecond,
		Keep: func(context.Context) (store.Retention, error) {
			return store.Retention{Cancelled: time.Microsecond}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		if _, err := r.Step(ctx); err != nil {
			t.Fatal(err)
		}
		left, err := c.Client.List(ctx, tusk.Filter{States: []tusk.State{tusk.StateCancelled}, Limit: 1})
		if err != nil || time.Now().After(end) {
			t.Fatal(len(left), err)
		}
		if len(left) == 0 {
			return ids
		}
	}
}

// again counts the new tasks of a rerun, by the ids of the tasks that they repeat.
func again(t *testing.T, c *Carrier) map[string]int {
	t.Helper()
	times, f := map[string]int{}, tusk.Filter{Limit: store.MaxPage}
	for {
		tasks, err := c.Client.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			times[task.Metadata["rerun_of"]]++
			f.Before = task.ID
		}
		if len(tasks) < f.Limit {
			return times
		}
	}
}

func kindOf(kind string, n int) tusk.RawArgs {
	return tusk.RawArgs{Name: kind, JSON: fmt.Appendf(nil, `{"n": %d}`, n)}
}

// Processes that carry on a rerun are killed at random moments, two at a time. In the end, each
// matching task was enqueued once.
func TestWhateverDiesNoTaskRunsAgainTwice(t *testing.T) {
	dir := t.TempDir()
	c, done, err := openIn(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	m, _ := store.As[store.Migrator](c.Client.Store())
	if _, err := m.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	var tasks []tusk.NewTask
	for i := range 6000 {
		tasks = append(tasks, tusk.NewTask{Args: kindOf([]string{"a", "b"}[i%2], i), Options: &tusk.Options{Ephemeral: true}})
	}
	ids := shelve(t, c, folderIn(dir), tasks)
	r, err := Start(t.Context(), c.Client.Store(), Rerun{Query: archive.Query{Kinds: []string{"b"}}, Expected: 3000})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		var children []*exec.Cmd
		for range 2 {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childEnv+"="+dir)
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
		time.Sleep(time.Second + time.Duration(mathrand.IntN(200))*time.Millisecond) // a carrier looks once a second
		for _, child := range children {
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	}
	ended, err := c.Carry(t.Context(), r.ID, nil)
	if err != nil || ended.State != Done || ended.Enqueued != 3000 || ended.StartedAt.IsZero() ||
		ended.FinishedAt.IsZero() {
		t.Errorf("it ended as %+v: %v", ended, err)
	}
	times := again(t, c)
	for i, id := range ids {
		if want := i % 2; times[id.String()] != want {
			t.Errorf("task %d was enqueued again %d times, want %d", i, times[id.String()], want)
		}
	}
}

func TestATaskRunsAgainAsItWas(t *testing.T) {
	dir, s := t.TempDir(), memory.New()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	ring := &tusk.KeyRing{Keys: map[string][]byte{"k": key}, Primary: "k"}
	c, err := carrierOn(t.Context(), s, folderIn(dir), ring)
	if err != nil {
		t.Fatal(err)
	}
	o := &tusk.Options{Queue: "q", Tenant: "acme", Priority: -3, Tags: []string{"x"},
		Metadata: map[string]string{"m": "1"}, MaxAttempts: 7,
		Timeout: time.Minute, Partition: "p", Weight: 3, Key: "order-1"}
	ids := shelve(t, c, folderIn(dir), []tusk.NewTask{{Args: kindOf("pay", 17), Options: o},
		{Args: kindOf("other", 1), Options: &tusk.Options{Unique: &tusk.Unique{}}}})
	e, err := c.One(t.Context(), ids[0], nil)
	if err != nil || e.Result != tusk.Added {
		t.Fatal(e, err)
	}
	got, err := c.Client.Get(t.Context(), e.ID)
	if err != nil || got.Queue != "q" || got.Tenant != "acme" || got.Priority != -3 || len(got.Tags) != 1 ||
		got.Metadata["m"] != "1" || got.MaxAttempts != 7 ||
		got.Timeout != time.Minute || got.Partition != "p" || got.Weight != 3 || got.Key != "order-1" ||
		got.Metadata["rerun_of"] != ids[0].String() {
		t.Errorf("%+v: %v", got, err)
	}
	same, err := c.Client.Again(*got)
	if err != nil || string(same.Args.(tusk.RawArgs).JSON) != `{"n": 17}` {
		t.Errorf("its args are %v: %v", same, err)
	}
	if e, err = c.One(t.Context(), ids[0], nil); err != nil || e.Result != tusk.Skipped || e.ID != got.ID {
		t.Errorf("while its key is taken: %v, %v", e, err)
	}
	if _, err := c.One(t.Context(), ids[1], func(_, tenant string) bool { return tenant == "acme" }); !errors.Is(err,
		archive.ErrNotFound) {
		t.Errorf("beyond the bounds: %v", err)
	}
	if e, err = c.One(t.Context(), ids[1], nil); err != nil || e.Result != tusk.Added {
		t.Errorf("a task with a key of its args: %v, %v", e, err)
	}

	// Without the key of the key ring, nothing runs, and the error says why.
	blind, err := carrierOn(t.Context(), s, folderIn(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blind.One(t.Context(), ids[1], nil); !errors.Is(err, tusk.ErrEncrypted) {
		t.Error(err)
	}
	r, err := Start(t.Context(), s, Rerun{})
	if err != nil {
		t.Fatal(err)
	}
	if ended, err := blind.Carry(t.Context(), r.ID, nil); err != nil || ended.State != Done || ended.Refused != 2 ||
		ended.Enqueued != 0 || len(ended.Left) != 2 {
		t.Errorf("%+v: %v", ended, err)
	}
}

func TestARerunKeepsToItsBoundsCountsTakenKeysAndStops(t *testing.T) {
	dir, s := t.TempDir(), memory.New()
	c, err := carrierOn(t.Context(), s, folderIn(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	var tasks []tusk.NewTask
	for i := range 30 {
		tasks = append(tasks, tusk.NewTask{Args: kindOf("k", i),
			Options: &tusk.Options{Tenant: []string{"acme", "acme-2", "bolt"}[i%3], Key: fmt.Sprint("key-", i)}})
	}
	shelve(t, c, folderIn(dir), tasks)
	if _, err := c.Client.Enqueue(t.Context(), kindOf("k", 0), &tusk.Options{Tenant: "acme", Key: "key-0"}); err != nil {
		t.Fatal(err)
	}
	bounded := Rerun{Tenants: []string{"acme*"}, Owner: "token:1"}
	if n, err := c.Count(t.Context(), bounded, 0, nil); err != nil || n.Tasks != 20 {
		t.Errorf("counted %+v: %v", n, err)
	}
	r, err := Start(t.Context(), s, bounded)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	ended, err := c.Carry(t.Context(), r.ID, func(Rerun) { told++ })
	if err != nil || ended.State != Done || ended.Enqueued != 19 || ended.KeyTaken != 1 ||
		len(ended.Left) != 1 || told < 2 {
		t.Errorf("%+v, told %d times: %v", ended, told, err)
	}
	if r, err = Start(t.Context(), s, Rerun{}); err != nil {
		t.Fatal(err)
	}
	if err := Cancel(t.Context(), s, r.ID); err != nil {
		t.Fatal(err)
	}
	if ended, err = c.Carry(t.Context(), r.ID, nil); err != nil || ended.State != Cancelled || ended.Enqueued != 0 {
		t.Errorf("%+v: %v", ended, err)
	}
	if _, err := Get(t.Context(), s, tusk.NewID()); !errors.Is(err, tusk.ErrNotFound) {
		t.Error(err)
	}
	if all, err := List(t.Context(), s); err != nil || len(all) != 2 || all[0].ID != r.ID {
		t.Errorf("%+v: %v", all, err)
	}
}

// While a rerun reads, files do not change, because its cursor is a row of one.
func TestFilesStayWhileARerunReads(t *testing.T) {
	dir, s := t.TempDir(), memory.New()
	c, err := carrierOn(t.Context(), s, folderIn(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	shelve(t, c, folderIn(dir), []tusk.NewTask{{Args: kindOf("k", 1), Options: &tusk.Options{Tenant: "acme"}}})
	r, err := Start(t.Context(), s, Rerun{})
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := place.Open(t.Context(), "file://"+filepath.ToSlash(filepath.Join(dir, "archive")))
	if err != nil {
		t.Fatal(err)
	}
	defer bucket.Close()
	keeper, err := archive.NewRunner(archive.Options{Store: s, Bucket: bucket, ID: tusk.NewID(),
		NewID: tusk.NewID, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keeper.Prune(t.Context(), nil); !errors.Is(err, archive.ErrBusy) {
		t.Errorf("while a rerun reads: %v", err)
	}
	if _, err := c.Carry(t.Context(), r.ID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := keeper.Prune(t.Context(), nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
