package archive

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// The encoder makes its channel on first use, and a test in a bubble of simulated time cannot use a
// channel from another bubble.
var _ = encoder.EncodeAll([]byte{0}, nil)

// shy is an engine that hands over nothing at first, as PostgreSQL does while others write. It
// counts the looks.
type shy struct {
	*memory.Store
	empty, looks int
}

func (s *shy) Due(ctx context.Context, keep store.Retention, from string, limit int) (store.Due, error) {
	if s.looks++; s.looks <= s.empty {
		return store.Due{}, nil
	}
	return s.Store.Due(ctx, keep, from, limit)
}

// running runs a Runner with the default intervals, over tasks with the given retention.
func running(t *testing.T, s store.Store, kept time.Duration) {
	t.Helper()
	b, _ := place(t)
	o := optionsFor(s, b, t.TempDir())
	o.Every, o.Patience = 0, 0
	o.Keep = func(context.Context) (store.Retention, error) { return store.Retention{Completed: kept}, nil }
	r, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
}

func left(t *testing.T, s store.Store) int {
	t.Helper()
	synctest.Wait()
	tasks, err := s.List(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func TestWhereTheFirstLookFindsNothingTheNextComesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shy{Store: memory.New(), empty: 1}
		run(t, s, storetest.NewID(), 50, "q")
		time.Sleep(2 * time.Second)
		running(t, s, time.Second)
		time.Sleep(1500 * time.Millisecond)
		if n := left(t, s); n != 0 {
			t.Errorf("%d tasks have not been archived in 1.5 seconds", n)
		}
	})
}

func TestArchivingBeginsSoonAfterRetentionIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		run(t, s, storetest.NewID(), 50, "q")
		running(t, s, 10*time.Second)
		time.Sleep(9 * time.Second)
		if n := left(t, s); n != 50 {
			t.Errorf("%d of 50 tasks are left before their retention is over", n)
		}
		time.Sleep(11 * time.Second)
		if n := left(t, s); n != 0 {
			t.Errorf("%d tasks have not been archived 10 seconds after their retention was over", n)
		}
	})
}

// leafy is an engine whose first page is empty and names another, as that of a ledger is in which nothing is due. It
// counts the writes of records.
type leafy struct {
	*memory.Store
	writes int
}

func (l *leafy) Due(ctx context.Context, keep store.Retention, from string, limit int) (store.Due, error) {
	if from == "" {
		return store.Due{Next: "1:"}, nil
	}
	return l.Store.Due(ctx, keep, strings.TrimPrefix(from, "1:"), limit)
}

func (l *leafy) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	l.writes++
	return l.Store.PutRecord(ctx, p)
}

func TestAnEmptyPageBeforeOthersBeginsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leafy{Store: memory.New()}
		running(t, s, time.Second)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.writes > 200 {
			t.Errorf("%d records were written in an hour in which nothing was due", s.writes)
		}
		run(t, s, storetest.NewID(), 50, "q")
		time.Sleep(2 * time.Minute)
		if n := left(t, s); n != 0 {
			t.Errorf("%d tasks on the second page have not been archived", n)
		}
	})
}

func TestLooksThatFindNothingBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shy{Store: memory.New()}
		running(t, s, time.Second)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.looks < 50 || s.looks > 70 {
			t.Errorf("%d looks in an hour, want about one a minute", s.looks)
		}
	})
}
