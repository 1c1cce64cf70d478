package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/sqlite"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
	"github.com/tuskqueue/tusk/store/storetest"
)

// depot is a database with a client that keeps args outside of it, and a Runner that archives and
// sweeps.
type depot struct {
	t      *testing.T
	store  store.Store
	bucket *blob.Bucket
	client *tusk.Client
	runner *Runner
	worker store.ID
}

func newDepot(t *testing.T, s store.Store, b *blob.Bucket) *depot {
	t.Helper()
	client, err := tusk.NewClient(s, &tusk.ClientConfig{MaxArgsBytes: 100, Payloads: NewPayloads(s, b, storetest.NewID),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	o := optionsFor(s, b, t.TempDir())
	o.Grace = time.Nanosecond
	r, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	return &depot{t, s, b, client, r, storetest.NewID()}
}

func (d *depot) enqueue(text string, o *tusk.Options) tusk.ID {
	d.t.Helper()
	e, err := d.client.Enqueue(d.t.Context(),
		tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `{"text":%q}`, strings.Repeat(text, 200))}, o)
	if err != nil {
		d.t.Fatal(err)
	}
	return e.ID
}

// claim claims the tasks that wait in a queue.
func (d *depot) claim(queue string) []store.Task {
	d.t.Helper()
	if _, err := d.store.Extend(d.t.Context(),
		store.Beat{Worker: store.Worker{ID: d.worker}, TTL: time.Hour}); err != nil {
		d.t.Fatal(err)
	}
	tasks, err := d.store.Claim(d.t.Context(), store.ClaimRequest{Worker: d.worker, Queues: []string{queue}, Limit: 100,
		Token: store.NewToken()})
	if err != nil {
		d.t.Fatal(err)
	}
	return tasks
}

// sweep sweeps. It returns the texts that are left, by the tasks for which they were made.
func (d *depot) sweep() map[tusk.ID]string {
	d.t.Helper()
	time.Sleep(25 * time.Millisecond) // the clock of a folder has steps of up to 10 ms
	if err := d.runner.tidy(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	return d.objects()
}

func (d *depot) objects() map[tusk.ID]string {
	d.t.Helper()
	left := map[tusk.ID]string{}
	err := each(d.t.Context(), d.bucket, payload.Prefix, func(o *blob.ListObject) error {
		text, err := d.bucket.ReadAll(d.t.Context(), o.Key)
		id, _ := payload.TaskOf(o.Key[len(payload.Prefix):])
		_, args, _ := strings.Cut(string(text), "\n")
		left[id] += strings.TrimLeft(args, `{"tex:`)[:1]
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return left
}

func (d *depot) want(got map[tusk.ID]string, want map[tusk.ID]string) {
	d.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Errorf("objects %v, want %v", got, want)
	}
}

func TestAnOrphanIsSweptAndAReferencedObjectNever(t *testing.T) {
	b, _ := place(t)
	d := newDepot(t, memory.New(), b)
	plain, key := d.enqueue("a", nil), &tusk.Options{Queue: "keyed", Key: "document", OnConflict: tusk.Replace}
	first := d.enqueue("b", key)
	newer := tusk.NewID()
	key.ID = newer
	if d.enqueue("c", key) != first { // the first task has these args now
		t.Fatal("it is another task")
	}
	if _, err := d.client.Enqueue(t.Context(), tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `"%200d"`, 1)},
		&tusk.Options{Queue: "keyed", Key: "document"}); err != nil {
		t.Fatal(err) // the task is skipped
	}
	if got := len(d.objects()); got != 4 {
		t.Fatalf("%d objects", got)
	}
	d.want(d.sweep(), map[tusk.ID]string{plain: "a", first: "b", newer: "c"}) // the first task has not finished

	finish(t, d.store, d.worker, "keyed")
	finish(t, d.store, d.worker, "default")
	d.want(d.sweep(), map[tusk.ID]string{plain: "a", newer: "c"})
	drain(t, d.runner)
	if left, err := d.client.List(t.Context(), tusk.Filter{}); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
	d.want(d.sweep(), map[tusk.ID]string{plain: "a", newer: "c"})
	row, err := New(b, t.TempDir()).Find(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	info := d.client.Describe(row)
	content, err := d.client.ArgsOf(&info)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := content.Bytes(t.Context()); err != nil || !strings.Contains(string(text), "cccc") {
		t.Errorf("%s, %v", text, err)
	}

	zero := time.Nanosecond
	if err := SetRetention(t.Context(), d.store, "keyed", &zero); err != nil {
		t.Fatal(err)
	}
	if gone, err := d.runner.Prune(t.Context(), nil); err != nil || gone.Tasks != 1 {
		t.Fatal(gone, err)
	}
	d.want(d.sweep(), map[tusk.ID]string{plain: "a"})
}

func TestWhatCannotBeReadToItsEndLeavesNoObject(t *testing.T) {
	b, _ := place(t)
	d := newDepot(t, memory.New(), b)
	args := tusk.StreamArgs{Name: "k", JSON: strings.NewReader(`{"text":"` + strings.Repeat("a", 200))}
	if _, err := d.client.Enqueue(t.Context(), args, nil); !errors.Is(err, tusk.ErrInvalid) {
		t.Error(err)
	}
	if left := d.objects(); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestWhatAnAttemptMadeIsKeptUntilItEnds(t *testing.T) {
	b, _ := place(t)
	d := newDepot(t, memory.New(), b)
	d.enqueue("a", nil)
	parent := d.claim("default")[0]
	write := func(h payload.Header) string {
		line, err := h.Line()
		if err != nil {
			t.Fatal(err)
		}
		name := payload.Name(h.Task, storetest.NewID(), time.Now())
		if err := NewPayloads(d.store, b, storetest.NewID).Write(t.Context(), name,
			strings.NewReader(string(line)+"a")); err != nil {
			t.Fatal(err)
		}
		return name
	}
	output, child := write(payload.Header{Task: parent.ID, By: parent.ID}), storetest.NewID()
	write(payload.Header{Task: parent.ID, By: parent.ID}) // of an earlier attempt
	args := write(payload.Header{Task: child, By: parent.ID})
	write(payload.Header{Task: storetest.NewID(), By: parent.ID}) // the task is not enqueued
	if got := len(d.sweep()); got != 3 || len(d.sweep()[parent.ID]) != 3 {
		t.Fatalf("%d tasks have objects while the attempt runs", got)
	}
	ref := func(name string) []byte {
		text, err := (&payload.Ref{Object: name, Skip: 9, Bytes: 1, SHA256: strings.Repeat("0", 64)}).Text()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	then := store.NewTask{ID: child, Kind: "k", Queue: "default", Args: ref(args)}
	lost, err := d.store.Finish(t.Context(), []store.Outcome{{Task: &parent, State: store.Completed, Attempt: 1,
		Then: []store.NewTask{then}, Note: &store.Note{Output: ref(output)}}})
	if err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if left := d.sweep(); len(left) != 2 || len(left[parent.ID]) != 2 || len(left[child]) != 1 {
		t.Errorf("%v is left when it has ended", left)
	}
}

func TestATransactionThatIsRolledBackLeavesAnOrphan(t *testing.T) {
	b, dir := place(t)
	db, err := sqlitefile.Pool(filepath.Join(t.TempDir(), "tusk.db"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.New(t.Context(), db, sqlite.Options{CloseDB: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	d := newDepot(t, s, b)
	if err := NewPayloads(s, b, storetest.NewID).Claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	args := tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `"%200d"`, 1)}
	for _, commit := range []bool{true, false} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := d.client.EnqueueTx(t.Context(), tx, args, nil)
		if err != nil {
			t.Fatal(err)
		}
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		d.runner.o.Grace = time.Hour
		if _, kept := d.sweep()[e.ID]; !kept {
			t.Error("it is swept before its time")
		}
		d.runner.o.Grace = time.Nanosecond
		if _, kept := d.sweep()[e.ID]; kept != commit {
			t.Errorf("committed: %v, kept: %v", commit, kept)
		}
	}
	verified, err := New(b, dir).Verify(t.Context(), nil)
	if err != nil || len(verified.Problems) != 0 {
		t.Error(verified, err)
	}
}

func TestAnErasureTakesTheObjectsOfATenantAndNoOthers(t *testing.T) {
	b, dir := place(t)
	d := newDepot(t, memory.New(), b)
	d.enqueue("a", &tusk.Options{Tenant: "acme"})
	other := d.enqueue("b", &tusk.Options{Tenant: "bolt"})
	d.enqueue("c", &tusk.Options{Tenant: "acme", Queue: "alone"})
	finish(t, d.store, d.worker, "default")
	finish(t, d.store, d.worker, "alone")
	drain(t, d.runner)
	e, err := RequestErasure(t.Context(), d.store, storetest.NewID(), "acme", "")
	if err != nil {
		t.Fatal(err)
	}
	if e, err = d.runner.Erase(t.Context(), e, nil); err != nil || e.State != ErasureDone {
		t.Fatal(e, err)
	}
	d.want(d.objects(), map[tusk.ID]string{other: "b"})
	if v, err := New(b, dir).Verify(t.Context(), nil); err != nil || len(v.Problems) != 0 {
		t.Error(v, err)
	}
	if err := b.Delete(t.Context(), payload.Prefix+func() string { // somebody deletes it
		manifests, err := New(b, dir).Manifests(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(manifests, func(m Manifest) bool { return len(m.Files) > 0 })
		return manifests[i].Files[0].Payloads[0]
	}()); err != nil {
		t.Fatal(err)
	}
	if v, err := New(b, dir).Verify(t.Context(), nil); err != nil || len(v.Problems) != 1 ||
		!strings.Contains(v.Problems[0].Text, "missing") {
		t.Error(v, err)
	}
}

func TestThePlaceOfAnotherDatabaseIsRefused(t *testing.T) {
	b, _ := place(t)
	newDepot(t, memory.New(), b).enqueue("a", nil)
	other := newDepot(t, memory.New(), b)
	_, err := other.client.Enqueue(t.Context(), tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `"%200d"`, 1)}, nil)
	if err == nil || errors.Is(err, tusk.ErrInvalid) || !strings.Contains(err.Error(), "belongs to the database") {
		t.Error(err)
	}
	if err := other.runner.sweepOrphans(context.Background()); err != nil {
		t.Error(err)
	}
}

// listing counts the lists that a database is asked for.
type listing struct {
	store.Store
	lists int
}

// Unwrap returns the store inside.
func (l *listing) Unwrap() store.Store { return l.Store }

func (l *listing) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	l.lists++
	return l.Store.List(ctx, f)
}

func TestASweepAsksForNoObjectThatAManifestLists(t *testing.T) {
	b, _ := place(t)
	s := &listing{Store: memory.New()}
	d := newDepot(t, s, b)
	for range 5 {
		d.enqueue("a", nil)
	}
	finish(t, d.store, d.worker, "default")
	drain(t, d.runner)
	waits := d.enqueue("b", nil)
	s.lists = 0
	if left := d.sweep(); len(left) != 6 || left[waits] != "b" || s.lists != 1 {
		t.Errorf("%v is left, after %d lists of the database, want 1", left, s.lists)
	}
}
