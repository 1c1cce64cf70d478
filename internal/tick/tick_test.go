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

// fire lets a schedule be looked at, at moments after its start, and returns what
// it fired.
func fire(t *testing.T, s *Schedule, at ...time.Duration) (fired []time.Duration) {
	t.Helper()
	for _, d := range append([]time.Duration{0}, at...) {
		due, err := s.Due(start.Add(d))
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
				at -= time.Duration(random.Int64N(int64(10 * time.Minute))) // another leader's clock
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
			t.Errorf("%q, cap %d: fired %v and skipped %d, want %v and %d", c.missed, c.cap, fired, s.Skipped, c.fired, c.skipped)
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
		due, err := s.Due(start)
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
			return n.Key == Key("s") && n.OnConflict == store.Rerun && n.SourceTime.Equal(at)
		},
	} {
		s := &Schedule{Spec: "@every 1m", Kind: "k", Overlap: overlap, Settings: json.RawMessage(`{"max_attempts":3}`), Jitter: time.Second}
		n, err := s.Task("s", at, store.ID{1})
		if err != nil || !check(n) {
			t.Errorf("%q: %+v, %v", overlap, n, err)
		}
		var settings struct {
			MaxAttempts int       `json:"max_attempts"`
			Schedule    string    `json:"schedule"`
			Tick        time.Time `json:"tick"`
		}
		if err := json.Unmarshal(n.Settings, &settings); err != nil || settings.MaxAttempts != 3 || settings.Schedule != "s" || !settings.Tick.Equal(at) {
			t.Errorf("%q: settings %s, %v", overlap, n.Settings, err)
		}
		if n.Delay < 0 || n.Delay >= time.Second {
			t.Errorf("%q: a delay of %v, want some jitter", overlap, n.Delay)
		}
	}
}
