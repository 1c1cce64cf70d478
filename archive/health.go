package archive

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// HealthState is the health of an archive in one word.
type HealthState string

// The states of an archive, from best to worst.
const (
	Healthy HealthState = "ok"
	Behind  HealthState = "behind"  // nothing was archived for too long, though something may be due
	Failing HealthState = "failing" // a process that archives says why it cannot continue
	Away    HealthState = "away"    // the object store cannot be reached from here
)

// Health is the health of an archive, with the status of archiving.
type Health struct {
	State HealthState
	Status
}

// late is how old the last success may be. A batch begins once an hour.
const late = 2 * time.Hour

// reachTime is how long the object store may take to answer.
const reachTime = 3 * time.Second

// Examine returns the health of an archive. It also checks that it can reach the archive through a,
// unless a is nil.
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
