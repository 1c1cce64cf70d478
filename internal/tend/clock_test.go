package tend

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// early is a store whose clock is ahead of this process's. While it is slow, a look at records and a campaign take a
// moment, and the first to admit is told that it does not lead.
type early struct {
	store.Store
	ahead   time.Duration
	slow    atomic.Bool
	refused atomic.Bool
}

func (s *early) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	if s.slow.Load() {
		time.Sleep(1900 * time.Millisecond)
	}
	answer, err := s.Store.Lead(ctx, c)
	answer.Now = answer.Now.Add(s.ahead)
	return answer, err
}

func (s *early) Records(ctx context.Context, kind string) ([]store.Record, error) {
	if s.slow.Load() && kind == tick.RecordKind {
		time.Sleep(time.Second)
	}
	return s.Store.Records(ctx, kind)
}

func (s *early) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	if s.slow.Load() && !s.refused.Swap(true) {
		return store.Admitted{}, store.ErrNotLeader
	}
	return s.Store.Admit(ctx, term, limit)
}

// A chore that is under way when its term ends goes by the engine's clock, not by this machine's: the cursor of a
// schedule would be taken back, and its ticks fired again.
func TestTheEndOfATermDoesNotChangeTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		s := &early{Store: inner, ahead: 2 * time.Hour}
		plan(t, inner, "s", tick.Schedule{Spec: "@every 1s", Kind: "k", Missed: tick.MissedAll, Overlap: tick.OverlapAllow,
			Next: time.Now().Add(s.ahead + 10*time.Second)})
		_, kill := lead(s, 1)
		time.Sleep(20 * time.Second)
		s.slow.Store(true)
		time.Sleep(5 * time.Second)
		if !s.refused.Load() {
			t.Fatal("nobody was refused")
		}
		s.slow.Store(false)
		time.Sleep(10 * time.Second)
		fired := ticks(t, inner)
		for i := 1; i < len(fired); i++ {
			if fired[i].Equal(fired[i-1]) {
				t.Errorf("the tick %v fired twice", fired[i])
			}
		}
		if len(fired) < 20 {
			t.Errorf("%d ticks in 25 seconds", len(fired))
		}
		kill()
	})
}
