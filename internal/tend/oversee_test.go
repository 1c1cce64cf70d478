package tend

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/bulk"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// chores counts calls, and says what there is to do.
type chores struct {
	store.Store
	mu   sync.Mutex
	say  store.Chores
	err  error
	seen map[string]int
}

func (c *chores) count(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[name]++
}

// during returns how often each method was called while time went by.
func (c *chores) during(d time.Duration) map[string]int {
	c.mu.Lock()
	c.seen = map[string]int{}
	c.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

func (c *chores) set(say store.Chores, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say, c.err = say, err
}

func (c *chores) oversee(context.Context, store.Candidate, ...string) (store.Chores, error) {
	c.count("oversee")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.say, c.err
}

func (c *chores) Lead(ctx context.Context, by store.Candidate) (store.Leadership, error) {
	c.count("lead")
	return c.Store.Lead(ctx, by)
}

func (c *chores) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	c.count("admit")
	return c.Store.Admit(ctx, term, limit)
}

func (c *chores) Rescue(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	c.count("rescue")
	return c.Store.Rescue(ctx, term, limit)
}

func (c *chores) Turns(ctx context.Context, term int64, groups, heads int) ([]store.Turns, error) {
	c.count("turns")
	return c.Store.Turns(ctx, term, groups, heads)
}

func (c *chores) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	c.count(f.Kind)
	return c.Store.Records(ctx, f)
}

func TestChoresThatHaveNothingToDoAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chores{Store: memory.New(), seen: map[string]int{}}
		c.set(store.Chores{Admit: -1}, nil)
		_, kill := lead(c, 1, func(o *Options) { o.Oversee = c.oversee })
		defer kill()
		time.Sleep(5 * time.Second)
		n := c.during(10 * time.Second)
		asked := n["admit"] + n["rescue"] + n["turns"] + n[tick.RecordKind] + n[bulk.RecordKind]
		if n["oversee"] < 19 || n["oversee"] > 21 || asked > 0 {
			t.Errorf("with nothing to do: %v", n)
		}
		c.set(store.Chores{Admit: -1, Records: []string{tick.RecordKind, bulk.RecordKind}}, nil)
		if n := c.during(600 * time.Millisecond); n[tick.RecordKind] == 0 || n[bulk.RecordKind] == 0 {
			t.Errorf("when there are schedules and operations: %v", n)
		}
		c.set(store.Chores{Admit: -1, Rescue: true, Turns: true}, nil)
		if n := c.during(600 * time.Millisecond); n["rescue"] == 0 || n["turns"] == 0 || n["admit"] > 0 {
			t.Errorf("when a worker may be dead and tasks wait for turns: %v", n)
		}
		c.set(store.Chores{Admit: 100 * time.Millisecond}, nil)
		c.during(time.Second)
		if n := c.during(time.Second); n["oversee"] < 9 || n["rescue"] > 0 {
			t.Errorf("when a task is due in a tenth of a second: %v", n)
		}
		c.set(store.Chores{}, nil)
		if n := c.during(time.Second); n["admit"] == 0 {
			t.Errorf("when a task is due: %v", n)
		}
		c.set(store.Chores{Admit: -1}, errPlanned)
		c.during(time.Second)
		if n := c.during(5 * time.Second); n["admit"] < 5 || n["rescue"] < 4 || n["turns"] < 4 || n[tick.RecordKind] < 4 {
			t.Errorf("while the engine does not tell: %v", n)
		}
	})
}

func TestWhereHintsComeAtOnceChoresAreAskedForOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chores{Store: memory.New(), seen: map[string]int{}}
		c.set(store.Chores{Admit: -1}, nil)
		l, kill := lead(c, 1, func(o *Options) { o.Oversee, o.Prompt = c.oversee, func() bool { return true } })
		defer kill()
		time.Sleep(5 * time.Second)
		n := c.during(10 * time.Second)
		asked := n["admit"] + n["rescue"] + n["turns"] + n[tick.RecordKind] + n[bulk.RecordKind]
		if n["oversee"] < 9 || n["oversee"] > 11 || asked > 0 {
			t.Errorf("with nothing to do: %v", n)
		}
		l.Hear(store.Hint{Turns: true})
		if n := c.during(10 * time.Millisecond); n["turns"] != 1 || n["oversee"] > 1 {
			t.Errorf("when tasks wait for turns: %v", n)
		}
		l.Hear(store.Hint{Queues: []string{"q"}})
		if n := c.during(10 * time.Millisecond); n["turns"]+n["oversee"] > 1 {
			t.Errorf("when a queue has tasks: %v", n)
		}
		c.during(0)
		for range 1000 {
			l.Hear(store.Hint{Turns: true, Due: true})
			time.Sleep(time.Millisecond)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := c.seen; n["turns"] < 100 || n["turns"] > 201 || n["oversee"] < 40 || n["oversee"] > 51 {
			t.Errorf("of a thousand hints in a second came %v", n)
		}
	})
}

func TestATermThatAnOverseerRenewsIsNotRenewedBesides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chores{Store: memory.New(), seen: map[string]int{}}
		c.set(store.Chores{Admit: -1}, nil)
		oversee := func(ctx context.Context, by store.Candidate, kinds ...string) (store.Chores, error) {
			told, err := c.oversee(ctx, by, kinds...)
			if by.TTL > 0 && err == nil {
				l, _ := c.Store.Lead(ctx, by)
				told.Renewed = l.Now
			}
			return told, err
		}
		l, kill := lead(c, 1, func(o *Options) { o.Oversee, o.Prompt = oversee, func() bool { return true } })
		defer kill()
		time.Sleep(5 * time.Second)
		term := l.Term()
		if n := c.during(time.Minute); n["lead"] > 0 || n["oversee"] < 59 {
			t.Errorf("in a minute: %v", n)
		}
		c.set(store.Chores{}, errPlanned)
		if n := c.during(time.Minute); n["lead"] < 20 || l.Term() != term {
			t.Errorf("in a minute in which the engine does not tell: %v, term %d, %d before", n, l.Term(), term)
		}
	})
}

func TestWhereNothingMovesHousekeepingRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chores{Store: memory.New(), seen: map[string]int{}}
		c.set(store.Chores{Admit: -1, Moved: 1}, nil)
		_, kill := lead(c, 1, func(o *Options) {
			o.Oversee = c.oversee
			o.Maintain = func(context.Context, int64) error { c.count("maintain"); return nil }
		})
		defer kill()
		time.Sleep(20 * time.Second)
		if n := c.during(3 * time.Minute)["maintain"]; n != 3 {
			t.Errorf("%d times in three minutes in which tasks neither come nor end, want 3", n)
		}
		times := 0
		for second := range 60 {
			c.set(store.Chores{Admit: -1, Moved: int64(2 + second)}, nil)
			times += c.during(time.Second)["maintain"]
		}
		if times < 11 {
			t.Errorf("%d times in a minute in which tasks end, want 12", times)
		}
		c.set(store.Chores{Admit: -1}, nil)
		if n := c.during(time.Minute)["maintain"]; n < 11 {
			t.Errorf("%d times in a minute of an engine that does not say, want 12", n)
		}
	})
}
