package query

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// slow needs time for each task that it lists.
type slow struct {
	store.Store
	perTask time.Duration
}

func (s slow) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	tasks, err := s.Store.List(ctx, f)
	time.Sleep(time.Duration(len(tasks)) * s.perTask)
	return tasks, err
}

func TestASearchInArgsEndsAPageInTimeAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := tusk.NewClient(slow{memory.New(), 500 * time.Microsecond}, nil)
		if err != nil {
			t.Fatal(err)
		}
		const n = 1000
		tasks := make([]tusk.NewTask, n)
		for i := range tasks {
			tasks[i].Args = tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `{"n":%d}`, i)}
		}
		if _, err := client.EnqueueMany(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
		asTheyAre := func(args []byte) []byte { return args }
		looked, found, pages := 0, 0, 0
		for f := (tusk.Filter{Limit: 50}); ; pages++ {
			begun := time.Now()
			p, err := Tasks{Args: "n=3"}.Find(t.Context(), client, Everything, f, asTheyAre)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > SearchTime+20*time.Millisecond {
				t.Errorf("a page takes %v", took)
			}
			looked, found = looked+p.Looked, found+len(p.Tasks)
			if p.More.IsZero() {
				break
			}
			f.Before = p.More
		}
		if looked != n || found != 1 || pages < 2 {
			t.Errorf("%d tasks in %d more pages, %d found", looked, pages, found)
		}
	})
}
