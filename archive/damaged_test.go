package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// damagedArchive has the tasks of three tenants in three batches. The file of the first one is
// damaged.
func damagedArchive(t *testing.T) (r *Runner, s store.Store, tasks []store.Task, mend func()) {
	t.Helper()
	s = memory.New()
	b, dir := place(t)
	for i := range 90 {
		tasks = append(tasks, oldTask(i/3, func(t *store.Task) { t.Tenant = []string{"acme", "bolt", "corp"}[i%3] }))
	}
	for i := range tasks {
		tasks[i].FinishedAt = time.Date(2026, 1, 1+i/30, 0, 0, 0, 0, time.UTC)
	}
	for part := range slices.Chunk(tasks, 30) {
		shelve(t, b, part)
	}
	path := filepath.Join(dir, "day=2026-01-01", "queue=q")
	files, err := os.ReadDir(path)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	path = filepath.Join(path, files[0].Name())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	broken := slices.Clone(whole)
	broken[len(broken)/4] ^= 1
	if err := os.WriteFile(path, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	return keeper(t, s, b), s, tasks, func() {
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADamagedFileHoldsUpNothingElse(t *testing.T) {
	ctx := t.Context()
	r, s, tasks, mend := damagedArchive(t)
	for _, tenant := range []string{"acme", "bolt"} {
		if _, err := RequestErasure(ctx, s, storetest.NewID(), tenant, ""); err != nil {
			t.Fatal(err)
		}
	}
	corp := tasks[32] // of the second batch
	restore := ask(t, s, Restore{IDs: []store.ID{corp.ID}})
	if err := r.tend(ctx); !errors.Is(err, errKeep) {
		t.Fatalf("the chores say %v", err)
	}
	if note, err := r.read(ctx); note != nil || err != nil {
		t.Errorf("a change is left behind: %+v %v", note, err)
	}
	if all, err := Restores(ctx, s); err != nil || all[0].ID != restore || all[0].Restored != 1 || !all[0].Ended() {
		t.Errorf("the restore is %+v: %v", all, err)
	}
	erasures := func() (states []string) {
		all, err := Erasures(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			states = append(states, fmt.Sprint(e.Tenant, " ", e.State, " ", e.Tasks, " ", e.Error != ""))
		}
		slices.Sort(states)
		return states
	}
	want := []string{"acme waiting 20 true", "bolt waiting 20 true"}
	if got := erasures(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	before := r.shelf.Requests()
	if err := r.tend(ctx); err != nil || r.shelf.Requests() != before {
		t.Errorf("the failure was tried again at once: %v", err)
	}
	if err := errors.Join(RequestPrune(ctx, s), r.tend(ctx)); err != nil {
		t.Errorf("a prune: %v", err)
	}
	if asked, err := pruneAsked(ctx, s); asked || err != nil {
		t.Errorf("a requested prune waits for what has failed: %v", err)
	}
	if status, err := ReadStatus(ctx, s); err != nil || !strings.Contains(status.Failing, "checksum") {
		t.Errorf("the status is %+v: %v", status, err)
	}
	if err := r.succeeded(ctx); err != nil { // a batch ends
		t.Fatal(err)
	}
	if status, err := ReadStatus(ctx, s); err != nil || !strings.Contains(status.Failing, "checksum") {
		t.Errorf("after a batch the status is %+v: %v", status, err)
	}

	mend()
	r.again, r.due = time.Time{}, time.Time{}
	if err := r.tend(ctx); err != nil {
		t.Fatal(err)
	}
	want = []string{"acme done 30 false", "bolt done 30 false"}
	if got := erasures(); !slices.Equal(got, want) {
		t.Errorf("once the file is mended: %q, want %q", got, want)
	}
	if status, err := ReadStatus(ctx, s); err != nil || status.Failing != "" {
		t.Errorf("once the file is mended, the status is %+v: %v", status, err)
	}
}

func TestVerifyNamesADamagedManifestAndGoesOn(t *testing.T) {
	ctx := t.Context()
	r, _, _, mend := damagedArchive(t)
	mend()
	manifests, err := r.shelf.Manifests(ctx)
	if err != nil {
		t.Fatal(err)
	}
	broken := manifestPath(manifests[1].Batch)
	if err := r.o.Bucket.WriteAll(ctx, broken, []byte(`{"files": [`), nil); err != nil {
		t.Fatal(err)
	}
	v, err := New(r.o.Bucket, t.TempDir()).Verify(ctx, nil)
	if err != nil || v.Files != 2 || len(v.Problems) != 2 || v.Problems[0].Path != broken ||
		v.Problems[1].Path != manifests[1].Files[0].Path {
		t.Errorf("%+v: %v", v, err)
	}
}
