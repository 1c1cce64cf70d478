package archive

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// HealthState says in a word how an archive is doing.
type HealthState string

// The states of an archive, the best first.
const (
	Healthy HealthState = "ok"
	Behind  HealthState = "behind"  // nothing was archived for too long, though something may be due
	Failing HealthState = "failing" // who archives says why it does not go on
	Away    HealthState = "away"    // the place cannot be reached from here
)

// Health is how an archive is doing.
type Health struct {
	State HealthState
	Status
}

// late is how old the last success may be: batches are begun once an hour.
const late = 2 * time.Hour

// reachTime is how long the place may take to answer.
const reachTime = 3 * time.Second

// Examine says how an archive is doing; a: as it is reached from here, nil: it is not looked at.
func Examine(ctx context.Context, s store.Recorder, a *Archive, now time.Time) (h Health, err error) {
	if h.Status, err = ReadStatus(ctx, s); err != nil {
		return h, err
	}
	h.State = Healthy
	if a != nil {
		reaching, cancel := context.WithTimeout(ctx, reachTime)
		defer cancel()
		has, err := a.reach(reaching)
		if err == nil && !has && h.Tasks > 0 {
			err = errors.New("the place is empty, though tasks have been archived: it is another one, or not mounted")
		}
		if err != nil {
			h.State, h.Failing = Away, err.Error()
			return h, nil
		}
	}
	switch {
	case h.Failing != "":
		h.State = Failing
	case !h.Succeeded.IsZero() && now.Sub(h.Succeeded) > late:
		h.State = Behind
	}
	return h, nil
}
