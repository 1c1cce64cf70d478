package tick

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// FuzzSchedule reads arbitrary schedules from a database, and fires them.
func FuzzSchedule(f *testing.F) {
	for _, text := range []string{`{"spec":"@every 1m","kind":"k"}`,
		`{"spec":"*/5 * * * *","zone":"Europe/Berlin","kind":"k","missed":"all","cap":3}`,
		`{"spec":"@every 1s","missed":"all","cap":-1,"next":"2026-01-01T00:00:00Z"}`,
		`{"spec":"","next":"0001-01-01T00:00:00Z"}`, `{"jitter":-5,"spec":"@daily","settings":[]}`} {
		f.Add([]byte(text), int64(1_767_225_600))
	}
	f.Fuzz(func(t *testing.T, stored []byte, unix int64) {
		var s Schedule
		if json.Unmarshal(stored, &s) != nil || unix < 0 || unix > 4e9 || s.Cap > 1000 {
			return
		}
		now := time.Unix(unix, 0).UTC()
		if !s.Next.IsZero() && now.Sub(s.Next) > 24*time.Hour {
			s.Next = now.Add(-24 * time.Hour) // a longer time would only take longer
		}
		due, err := s.Due(now, MaxCap)
		if err != nil {
			return
		}
		for _, at := range due {
			if at.After(now) {
				t.Fatalf("%s fires %v at %v", stored, at, now)
			}
			if task, err := s.Task("s", at, store.ID{1}); err == nil && task.Delay < 0 {
				t.Fatalf("%s: delay %v", stored, task.Delay)
			}
		}
		if !s.Paused && !s.Next.IsZero() && !s.Next.After(now) {
			t.Fatalf("%s: the next tick is %v at %v", stored, s.Next, now)
		}
	})
}
