package archive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

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

// Processes that erase tenants and prune are killed at random moments. In the end, those tenants
// are gone, all others are there once, and no file is left that no manifest lists.
func TestWhateverDiesAnErasureEnds(t *testing.T) {
	ctx := t.Context()
	dir, s, b := onDisk(t)
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
		kill := startOn(t, dir, changeEnv)
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		kill()
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
