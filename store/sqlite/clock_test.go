package sqlite

import (
	"context"
	"database/sql"
	"math"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// set gives a store a clock that is off by what the returned function is called with.
func set(s *Store) func(off time.Duration) {
	return func(off time.Duration) {
		s.clock.mu.Lock()
		defer s.clock.mu.Unlock()
		s.clock.wall = func() time.Time { return time.Now().Add(off) }
	}
}

// openSame opens another pool on a store's file.
func openSame(t *testing.T, s *Store) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+s.path)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestAClockSetBackStallsNothing(t *testing.T) {
	s := openTest(t)
	turn := set(s)
	worker := store.ID{1}
	beat := func() {
		t.Helper()
		if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	beat()
	turn(-time.Hour)
	lead, err := s.Lead(t.Context(), store.Candidate{ID: store.ID{2}, TTL: time.Minute})
	if err != nil || lead.Term == 0 {
		t.Fatal(lead, err)
	}
	if since := time.Since(lead.Now); since > time.Minute {
		t.Fatalf("the engine went back by %v", since)
	}
	if _, err := s.Enqueue(t.Context(), []store.NewTask{
		{ID: store.ID{3}, Kind: "k", Queue: "q", Delay: 20 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	for {
		did, err := s.Admit(t.Context(), lead.Term, 10)
		if err != nil {
			t.Fatal(err)
		}
		if did.Count == 1 {
			break
		}
		if did.Next > time.Second {
			t.Fatalf("due in %v", did.Next)
		}
		time.Sleep(time.Millisecond)
	}
	beat()
	if dead, err := s.Rescue(t.Context(), lead.Term, 10); err != nil || len(dead) != 0 {
		t.Error(dead, err)
	}
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
}

func TestAClockSetBackBeforeAStartIsNoticed(t *testing.T) {
	s := openTest(t)
	set(s)(time.Hour)
	if _, err := s.Enqueue(t.Context(), []store.NewTask{{ID: store.ID{1}, Kind: "k", Queue: "q"}}); err != nil {
		t.Fatal(err)
	}
	later, err := New(t.Context(), openSame(t, s), Options{CloseDB: true})
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	lead, err := later.Lead(t.Context(), store.Candidate{ID: store.ID{2}, TTL: time.Minute})
	if err != nil || time.Until(lead.Now) < 59*time.Minute {
		t.Errorf("%v, %v", lead.Now, err)
	}
}

func TestTheClockGoesOnAtHalfSpeedUntilTheWallHasCaughtUp(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := &clock{wall: func() time.Time { return now }, read: time.Now()}
	start := c.now()
	now = now.Add(-time.Millisecond)
	c.read = c.read.Add(-10 * time.Millisecond) // as if that much time had passed
	if got := c.now() - start; got < 5_000 || got > 5_000_000 {
		t.Errorf("went on by %d µs in 10 ms", got)
	}
	now = now.Add(time.Hour)
	if got := c.now(); got != micros(now) {
		t.Errorf("%d, the wall says %d", got, micros(now))
	}
}

func TestInstantsBeyondAllReasonAreKeptInBounds(t *testing.T) {
	for _, extreme := range []time.Time{time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0), time.Unix(1<<55, 0), {},
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		for _, d := range []time.Duration{0, math.MaxInt64, math.MinInt64} {
			at := after(micros(extreme), d)
			if sign := extreme.Unix(); sign > 1<<50 && d >= 0 && at < 0 || sign < -1<<50 && d <= 0 && at > 0 {
				t.Errorf("%v + %v = %d", extreme, d, at)
			}
		}
		if n := nanos(extreme); extreme.Unix() > 0 && n < 0 || extreme.Unix() < 0 && n > 0 {
			t.Errorf("%v: %d ns", extreme, n)
		}
	}
}

func TestTheTimeIsToldWhileAnotherProcessWrites(t *testing.T) {
	s := openTest(t)
	db := openSame(t, s)
	defer db.Close()
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	l, err := s.Lead(ctx, store.Candidate{ID: store.ID{1}}) // as a client asks for the time
	if err != nil || l.Term != 0 || time.Since(l.Now).Abs() > time.Minute {
		t.Errorf("%+v, %v", l, err)
	}
}
