package tend

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 6 * time.Second

var errPlanned = errors.New("planned")

// shaky is a store that fails or dawdles as it is told.
type shaky struct {
	store.Store
	before func(method string) error
}

func (s *shaky) fail(method string) error {
	if s.before == nil {
		return nil
	}
	return s.before(method)
}

func (s *shaky) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	if err := s.fail("Lead"); err != nil {
		return store.Leadership{}, err
	}
	return s.Store.Lead(ctx, c)
}

func (s *shaky) Rescue(ctx context.Context, term int64, limit int) ([]store.Task, error) {
	if err := s.fail("Rescue"); err != nil {
		return nil, err
	}
	return s.Store.Rescue(ctx, term, limit)
}

func (s *shaky) Admit(ctx context.Context, term int64, limit int) (store.Admitted, error) {
	if err := s.fail("Admit"); err != nil {
		return store.Admitted{}, err
	}
	return s.Store.Admit(ctx, term, limit)
}

func (s *shaky) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if err := s.fail("PutRecord"); err != nil {
		return 0, nil, err
	}
	return s.Store.PutRecord(ctx, p)
}

func (s *shaky) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	if err := s.fail("UpdateRecords"); err != nil {
		return nil, err
	}
	return s.Store.UpdateRecords(ctx, term, puts)
}

// lead runs a leader on a store. Kill ends it without notice, as SIGKILL does.
func lead(s Store, id byte, change ...func(*Options)) (l *Leader, kill func()) {
	l = candidate(s, id, change...)
	return l, run(l)
}

// candidate is a leader that does not run yet.
func candidate(s Store, id byte, change ...func(*Options)) *Leader {
	o := Options{ID: store.ID{id}, TTL: ttl, RescueEvery: time.Second, Outage: ttl / 3, NewID: newID,
		Retention: func() store.Retention { return store.Retention{} },
		Log:       slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, f := range change {
		f(&o)
	}
	return New(s, o)
}

func run(l *Leader) (kill func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for _, one := range l.Loops() {
		loops.Go(func() { one.Run(ctx, nil) })
	}
	return func() { cancel(); loops.Wait() }
}

var ids struct {
	sync.Mutex
	n uint64
}

func newID() store.ID {
	ids.Lock()
	defer ids.Unlock()
	ids.n++
	return store.ID{6: 0x70, 8: 0x80, 13: byte(ids.n >> 16), 14: byte(ids.n >> 8), 15: byte(ids.n)}
}

// TestLeadersThatComeAndGoFireEachTickOnce kills leaders, makes them resign, stand still and lose their database, at
// random moments, and checks what their schedule has fired. The seed repeats a failure.
func TestLeadersThatComeAndGoFireEachTickOnce(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			var dice sync.Mutex
			throw := func(n int) int { dice.Lock(); defer dice.Unlock(); return random.IntN(n) }
			chance := func(n int) bool { return throw(n) == 0 }
			inner := memory.New()
			s := &shaky{Store: inner, before: func(string) error {
				if chance(10) {
					return errPlanned
				}
				if chance(10) {
					time.Sleep(time.Second) // between the look at the term and the write
				}
				return nil
			}}
			plan(t, inner, "s", tick.Schedule{Spec: "@every 20s", Kind: "k", Missed: tick.MissedAll, Cap: tick.MaxCap,
				Overlap: tick.OverlapAllow})
			leaders := map[byte]*Leader{}
			kills := map[byte]func(){}
			for id := range byte(3) {
				leaders[id], kills[id] = lead(s, id+1)
			}
			next := byte(10)
			for range 25 {
				time.Sleep(time.Duration(throw(60)) * time.Second)
				for id, kill := range kills {
					if chance(3) {
						kill()
						if chance(2) {
							leaders[id].Resign(context.Background()) // its error is the store's
						}
						delete(kills, id)
						next++
						leaders[next], kills[next] = lead(s, next)
						break
					}
				}
			}
			time.Sleep(3 * ttl)
			for _, kill := range kills {
				kill()
			}
			fired := ticks(t, inner)
			if len(fired) < 20 {
				t.Fatalf("seed %d: %d ticks", seed, len(fired))
			}
			for i := 1; i < len(fired); i++ {
				if d := fired[i].Sub(fired[i-1]); d != 20*time.Second {
					t.Fatalf("seed %d: ticks %v and %v are %v apart", seed, fired[i-1], fired[i], d)
				}
			}
		})
	}
}

func TestOfAllLeadersOneLeadsAndAnotherFollowsWithinATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first, killFirst := lead(s, 1)
		time.Sleep(time.Second)
		second, killSecond := lead(s, 2)
		time.Sleep(time.Minute)
		if first.Term() != 1 || second.Term() != 0 {
			t.Fatalf("terms %d and %d, want the first to lead", first.Term(), second.Term())
		}
		killFirst()
		killed := time.Now()
		for second.Term() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if waited := time.Since(killed); second.Term() != 2 || waited > ttl+ttl/3+time.Second {
			t.Errorf("term %d after %v", second.Term(), waited)
		}
		if first.Term() != 0 {
			t.Error("the killed one thinks that it leads")
		}
		killSecond()
		if err := second.Resign(context.Background()); err != nil || second.Term() != 0 {
			t.Errorf("resigned: term %d, %v", second.Term(), err)
		}
	})
}

func TestALeaderThatCannotRenewStepsDownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := false
		var mu sync.Mutex
		s := &shaky{Store: memory.New(), before: func(method string) error {
			mu.Lock()
			defer mu.Unlock()
			if down && method == "Lead" {
				return errPlanned
			}
			return nil
		}}
		l, kill := lead(s, 1)
		time.Sleep(time.Second)
		mu.Lock()
		down = true
		mu.Unlock()
		time.Sleep(ttl)
		if l.Term() != 0 {
			t.Errorf("still leads term %d", l.Term())
		}
		kill()
	})
}

// A leader with one failing chore does the others (riverqueue/river#1161).
func TestAChoreThatFailsDoesNotKeepTheOthersFromTheirWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		s := &shaky{Store: inner, before: func(method string) error {
			if method == "Admit" {
				panic("planned")
			}
			return nil
		}}
		plan(t, inner, "s", tick.Schedule{Spec: "@every 1m", Kind: "k", Missed: tick.MissedAll, Overlap: tick.OverlapAllow})
		_, kill := lead(s, 1)
		time.Sleep(10*time.Minute + time.Second)
		kill()
		if n := len(ticks(t, inner)); n < 9 {
			t.Errorf("%d ticks while another chore failed", n)
		}
	})
}

func TestSettingsThatCannotBeReadStopNoPruning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		if _, _, err := s.PutRecord(t.Context(),
			store.PutRecord{Record: store.Record{Kind: QueueKind, Name: "bad", Body: []byte("{")}}); err != nil {
			t.Fatal(err)
		}
		l := New(s, Options{NewID: newID, Log: slog.New(slog.DiscardHandler), Retention: func() store.Retention {
			return store.Retention{Completed: time.Hour}
		}})
		keep, _, err := l.Retentions(t.Context())
		if err != nil || keep.Completed != time.Hour {
			t.Fatal(keep, err)
		}
		if own, named := keep.Queues["bad"]; !named || own.Completed != 0 {
			t.Error("what its settings may want to keep is not kept")
		}
	})
}

// While the store is away nobody can beat. When it is back, every worker gets time to beat.
func TestAnOutageIsNobodysDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		away := false
		var mu sync.Mutex
		s := &shaky{Store: inner, before: func(string) error {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return errPlanned
			}
			return nil
		}}
		set := func(gone bool) { mu.Lock(); defer mu.Unlock(); away = gone }
		worker, dead := newID(), newID()
		tasks := map[store.ID]store.ID{}
		for _, w := range []store.ID{worker, dead} {
			if _, err := inner.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: w}, TTL: ttl}); err != nil {
				t.Fatal(err)
			}
			if _, err := inner.Enqueue(t.Context(),
				[]store.NewTask{{ID: newID(), Kind: "k", Queue: "q", Args: []byte("{}")}}); err != nil {
				t.Fatal(err)
			}
			got, err := inner.Claim(t.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
				Token: store.NewToken()})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			tasks[w] = got[0].ID
		}
		state := func(w store.ID) store.Task {
			found, err := inner.List(t.Context(), store.Filter{IDs: []store.ID{tasks[w]}})
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			return found[0]
		}
		_, kill := lead(s, 1)
		defer kill()
		time.Sleep(time.Second)
		set(true)
		time.Sleep(5 * ttl)
		set(false)
		time.Sleep(ttl * 2 / 3) // as late as a worker beats whose beats have failed
		if _, err := inner.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Hour}); err != nil {
			t.Fatalf("the worker was declared dead: %v", err)
		}
		time.Sleep(3 * ttl)
		if got := state(worker); got.State != store.Running || got.Crashes != 0 {
			t.Errorf("the task of the living worker is %v, crashes %d", got.State, got.Crashes)
		}
		time.Sleep(time.Hour - 4*ttl)
		if got := state(dead); got.State == store.Running || got.Crashes != 1 {
			t.Errorf("the task of the dead worker is %v, crashes %d", got.State, got.Crashes)
		}
	})
}
