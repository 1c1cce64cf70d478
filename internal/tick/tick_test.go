package tick

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fire looks at a schedule at moments after its start, and returns what it fired.
func fire(t *testing.T, s *Schedule, at ...time.Duration) (fired []time.Duration) {
	t.Helper()
	for _, d := range append([]time.Duration{0}, at...) {
		due, err := s.Due(start.Add(d), MaxCap)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range due {
			fired = append(fired, one.Sub(start))
		}
		stored, err := json.Marshal(s) // as the leader does
		if err != nil {
			t.Fatal(err)
		}
		*s = Schedule{}
		if err := json.Unmarshal(stored, s); err != nil {
			t.Fatal(err)
		}
	}
	return fired
}

func TestEachTickFiresOnceHoweverOftenOneLooks(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := &Schedule{Spec: "@every 1m", Kind: "k", Missed: MissedAll, Cap: MaxCap}
		var looks []time.Duration
		for at := time.Duration(0); at < 3*time.Hour; {
			looks = append(looks, at)
			at += time.Duration(random.Int64N(int64(5 * time.Minute)))
			if random.IntN(10) == 0 {
				at -= time.Duration(random.Int64N(int64(10 * time.Minute))) // another leader's clock is behind
			}
		}
		latest := slices.Max(append(looks, 0))
		fired := fire(t, s, looks...)
		for i, at := range fired {
			if want := time.Duration(i+1) * time.Minute; at != want {
				t.Fatalf("seed %d: tick %d is %v, want %v", seed, i, at, want)
			}
		}
		if n := int(latest / time.Minute); len(fired) != n || s.Fired != int64(n) {
			t.Fatalf("seed %d: %d ticks in %v, counted %d, want %d", seed, len(fired), latest, s.Fired, n)
		}
	}
}

func TestMissedTicksFollowThePolicy(t *testing.T) {
	for _, c := range []struct {
		missed  Missed
		cap     int
		fired   []time.Duration
		skipped int64
	}{
		{missed: MissedOnce, fired: []time.Duration{time.Hour}, skipped: 3},
		{missed: "", fired: []time.Duration{time.Hour}, skipped: 3},
		{missed: MissedSkip, skipped: 4},
		{missed: MissedAll, fired: []time.Duration{15 * time.Minute, 30 * time.Minute, 45 * time.Minute, time.Hour}},
		{missed: MissedAll, cap: 2, fired: []time.Duration{45 * time.Minute, time.Hour}, skipped: 2},
	} {
		s := &Schedule{Spec: "*/15 * * * *", Kind: "k", Missed: c.missed, Cap: c.cap}
		if fired := fire(t, s, time.Hour+14*time.Minute); !slices.Equal(fired, c.fired) || s.Skipped != c.skipped {
			t.Errorf("%q, cap %d: fired %v and skipped %d, want %v and %d", c.missed, c.cap, fired, s.Skipped,
				c.fired, c.skipped)
		}
		if next := s.Next.Sub(start); next != 75*time.Minute {
			t.Errorf("%q: the next tick is %v", c.missed, next)
		}
	}
}

func TestATickThatIsALittleLateIsNotMissed(t *testing.T) {
	s := &Schedule{Spec: "*/15 * * * *", Kind: "k", Missed: MissedSkip}
	if fired := fire(t, s, 15*time.Minute+Grace); !slices.Equal(fired, []time.Duration{15 * time.Minute}) {
		t.Errorf("fired %v", fired)
	}
	if fired := fire(t, s, 30*time.Minute+Grace+time.Second); len(fired) > 0 {
		t.Errorf("fired %v, which came too late", fired)
	}
}

func TestAPausedScheduleFiresNothingAndNeverDoesOne(t *testing.T) {
	s := &Schedule{Spec: "@every 1m", Kind: "k", Paused: true, Next: start}
	if fired := fire(t, s, time.Hour); len(fired) > 0 {
		t.Errorf("paused, it fired %v", fired)
	}
	for _, spec := range []string{"0 0 31 2 *", "nonsense"} {
		s := &Schedule{Spec: spec, Kind: "k"}
		due, err := s.Due(start, MaxCap)
		if len(due) > 0 || err == nil && !s.Next.IsZero() {
			t.Errorf("%q: due %v, next %v, %v", spec, due, s.Next, err)
		}
	}
}

func TestTasksOfATickKeepToTheOverlapPolicy(t *testing.T) {
	at := start.Add(time.Minute)
	for overlap, check := range map[Overlap]func(n store.NewTask) bool{
		"":           func(n store.NewTask) bool { return n.Key == Key("s") && n.OnConflict == store.Skip },
		OverlapSkip:  func(n store.NewTask) bool { return n.Key == Key("s") && n.OnConflict == store.Skip },
		OverlapAllow: func(n store.NewTask) bool { return n.Key == "" },
		OverlapBuffer: func(n store.NewTask) bool {
			return n.Key == Key("s") && n.OnConflict == store.Rerun && n.SourceTime.IsZero()
		},
	} {
		s := &Schedule{Spec: "@every 1m", Kind: "k", Overlap: overlap, Settings: json.RawMessage(`{"max_attempts":3}`),
			Jitter: time.Second}
		n, err := s.Task("s", at, store.ID{1})
		if err != nil || !check(n) {
			t.Errorf("%q: %+v, %v", overlap, n, err)
		}
		var settings struct {
			MaxAttempts int       `json:"max_attempts"`
			Schedule    string    `json:"schedule"`
			Tick        time.Time `json:"tick"`
		}
		if err := json.Unmarshal(n.Settings, &settings); err != nil || settings.MaxAttempts != 3 ||
			settings.Schedule != "s" || !settings.Tick.Equal(at) {
			t.Errorf("%q: settings %s, %v", overlap, n.Settings, err)
		}
		if n.Delay < 0 || n.Delay >= time.Second {
			t.Errorf("%q: a delay of %v, want some jitter", overlap, n.Delay)
		}
	}
}

func TestAPeriodCountsFromItsFirstRun(t *testing.T) {
	first := start.Add(17*time.Minute + 3*time.Second)
	s := &Schedule{Spec: "@every 7d", Start: first, Kind: "k"}
	if err := s.Plan(start); err != nil || !s.Next.Equal(first) {
		t.Fatalf("planned for %v, %v", s.Next, err)
	}
	const week = 7 * 24 * time.Hour
	from := first.Sub(start)
	if fired := fire(t, s, from-1, from+time.Hour, from+week, from+2*week+5*time.Hour); !slices.Equal(fired,
		[]time.Duration{from, from + week, from + 2*week}) {
		t.Errorf("fired %v", fired)
	}
	s = &Schedule{Spec: "@every 7d", Start: start, Kind: "k"}
	if err := s.Plan(start.Add(time.Second)); err != nil || !s.Next.Equal(start) {
		t.Errorf("a first run just now is planned for %v, %v", s.Next, err)
	}
	if err := s.Plan(start.Add(time.Hour)); err != nil || !s.Next.IsZero() {
		t.Errorf("a first run an hour ago is planned for %v, %v", s.Next, err)
	}
	if _, err := s.Due(start.Add(time.Hour), MaxCap); err != nil || !s.Next.Equal(start.Add(week)) {
		t.Errorf("the run after one an hour ago is planned for %v, %v", s.Next, err)
	}
}

func TestAClockThatWasAheadSilencesNothingForMoreThanATick(t *testing.T) {
	for _, missed := range []Missed{MissedOnce, MissedSkip, MissedAll} {
		s := &Schedule{Spec: "@every 1m", Kind: "k", Missed: missed}
		fire(t, s, 90*time.Second, 3*time.Hour) // the clock was ahead by hours
		back := start.Add(2 * time.Minute)
		if moved, err := s.Rewind(back); !moved || err != nil || s.Next.Sub(back) > time.Minute {
			t.Errorf("%s: the next tick is %v, %v", missed, s.Next, err)
		}
		if due, err := s.Due(back.Add(time.Minute), MaxCap); err != nil || len(due) != 1 {
			t.Errorf("%s: a minute later %v fired, %v", missed, due, err)
		}
	}
}

// The clock goes back for hours and forward again. Ticks that were fired before are not made up
// for.
func TestAClockThatGoesBackForAMomentFiresAgainInThatMomentAlone(t *testing.T) {
	for _, missed := range []Missed{MissedOnce, MissedSkip, MissedAll} {
		s := &Schedule{Spec: "@every 1m", Kind: "k", Missed: missed, Cap: 1000}
		fire(t, s, 90*time.Second, 5*time.Hour)
		back := start.Add(2*time.Hour + 30*time.Second)
		if moved, err := s.Rewind(back); !moved || err != nil {
			t.Fatal(moved, err)
		}
		if due, err := s.Due(back.Add(32*time.Second), MaxCap); err != nil || len(due) != 1 ||
			!due[0].Equal(start.Add(2*time.Hour+time.Minute)) {
			t.Errorf("%s: in that moment %v fired, %v", missed, due, err)
		}
		if due, err := s.Due(start.Add(5*time.Hour+3*time.Second), MaxCap); err != nil || len(due) > 1 ||
			!s.Next.Equal(start.Add(5*time.Hour+time.Minute)) {
			t.Errorf("%s: when it came again %d fired, the next is %v, %v", missed, len(due), s.Next, err)
		}
		if due, err := s.Due(start.Add(5*time.Hour+3*time.Minute), MaxCap); err != nil || len(due) == 0 ||
			missed == MissedAll && len(due) != 3 {
			t.Errorf("%s: from then on %d of 3 fired, %v", missed, len(due), err)
		}
	}
}

func TestSmallStepsOfTheClockFireNoTickTwice(t *testing.T) {
	for _, spec := range []string{"@every 1s", "@every 1m", "0 * * * *"} {
		s := &Schedule{Spec: spec, Kind: "k"}
		fire(t, s, time.Hour)
		next := s.Next
		for _, step := range []time.Duration{0, time.Millisecond, time.Second, 5 * time.Second} {
			if moved, err := s.Rewind(start.Add(time.Hour - step)); moved || err != nil || !s.Next.Equal(next) {
				t.Errorf("%s: %v back, the cursor moved to %v, %v", spec, step, s.Next, err)
			}
		}
	}
}

func TestPartsFireWhatTheWholeDoes(t *testing.T) {
	for _, c := range []struct{ cap, most int }{{100, 1}, {100, 7}, {100, 100}, {7, 3}, {1, 5}, {MaxCap, 500}} {
		plan := Schedule{Spec: "@every 1m", Kind: "k", Missed: MissedAll, Cap: c.cap, Next: start.Add(time.Minute)}
		whole, parts, now := plan, plan, start.Add(300*time.Minute)
		want, err := whole.Due(now, MaxCap)
		if err != nil {
			t.Fatal(err)
		}
		var got []time.Time
		for {
			due, err := parts.Due(now, c.most)
			if err != nil || len(due) > c.most {
				t.Fatalf("%+v: a part of %d, %v", c, len(due), err)
			}
			if len(due) == 0 {
				break
			}
			if got = append(got, due...); !parts.Last.Equal(got[len(got)-1]) {
				t.Errorf("%+v: the last is %v of %v", c, parts.Last, due)
			}
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) || len(want) != min(c.cap, 300) {
			t.Errorf("%+v: parts fired %d, the whole %d", c, len(got), len(want))
		}
		if parts.Fired != whole.Fired || parts.Skipped != whole.Skipped || !parts.Next.Equal(whole.Next) {
			t.Errorf("%+v: fired %d, skipped %d, next %v; the whole %d, %d, %v", c, parts.Fired, parts.Skipped,
				parts.Next, whole.Fired, whole.Skipped, whole.Next)
		}
	}
}

// Before, two months of seconds took 20 s: 10,000 ticks were moved by one, five million times.
func TestManyMissedTicksAreCountedInLinearTime(t *testing.T) {
	s := Schedule{Spec: "@every 1s", Kind: "k", Missed: MissedAll, Cap: MaxCap, Next: start}
	const missed = 60 * 24 * 3600
	begun := time.Now()
	last := start.Add((missed - 1) * time.Second)
	due, err := s.Due(last, MaxCap)
	if err != nil || len(due) != MaxCap || !due[MaxCap-1].Equal(last) || s.Skipped != missed-MaxCap {
		t.Errorf("%d due, %d skipped, %v", len(due), s.Skipped, err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
