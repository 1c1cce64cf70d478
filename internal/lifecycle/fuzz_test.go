package lifecycle

import (
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// FuzzSettings reads arbitrary settings from a database, and decides by them.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{`{}`, `{"max_attempts":3,"timeout":5,"backoff":{"shape":"linear","base":1000000000}}`,
		`{"backoff":{"shape":"x","base":-1,"jitter":1e308}}`,
		`{"metadata":[1]}`, `{"tick":"x"}`, `null`, `{"max_attempts":-1}`, `{"deadline_in":-9223372036854775808}`} {
		f.Add([]byte(text), 1, 0.5)
	}
	f.Fuzz(func(t *testing.T, stored []byte, attempt int, random float64) {
		if attempt < 1 || !(random >= 0 && random < 1) {
			return
		}
		s, err := DecodeSettings(stored)
		if err != nil {
			return
		}
		task := &store.Task{Attempt: attempt, EnqueuedAt: time.Unix(0, 0)}
		s.DeadlineOf(task)
		for _, out := range []store.Outcome{After(task, s, End{Err: errors.New("x")}, random), Died(task, s, true, random)} {
			if out.Delay < 0 || out.State < store.Scheduled || out.State > store.Discarded || out.Attempt < 0 {
				t.Fatalf("%s at attempt %d: %+v", stored, attempt, out)
			}
		}
	})
}
