package tusk

import (
	"math"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
)

// earliest is the earliest time that a task may have. Earlier times are zero values of some language or database,
// in some time zone.
var earliest = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

// At makes sure that a time that was left unset by mistake is not taken for an unset option. The zero time of an
// option means that it is not set; for example, a task with an unset RunAt runs now. At(t) returns t, but if t is
// the zero time, it returns a time that Tusk refuses.
func At(t time.Time) time.Time {
	if t.IsZero() {
		return t.Add(1)
	}
	return t
}

// validateSource validates a source time. It may be a version number given as seconds since 1970, and so may be
// early. The zero value means none.
func validateSource(at time.Time) error {
	if !at.IsZero() && !at.After(time.Unix(0, 0)) {
		return invalid("source time", "invalid_time",
			"is %s, which is no time of a change: give one after 1970-01-01, or leave it out", at.UTC().Format(time.RFC3339))
	}
	if at.After(latestSource) {
		return invalid("source time", "out_of_range", "is %s, want one up to %s (a version number counts as seconds)",
			at.UTC().Format(time.RFC3339), latestSource.Format(time.RFC3339))
	}
	return nil
}

// latestSource is the latest source time. Engines count the nanoseconds since 1970 in 64 bits.
var latestSource = time.Unix(0, math.MaxInt64).UTC().Truncate(time.Second)

// validateRun validates when a task may run. RunAt and Delay exclude each other, because their sum is never
// intended.
func validateRun(at time.Time, delay time.Duration) error {
	if !at.IsZero() && delay != 0 {
		return invalid("delay", "not_both", "is given beside a time to run at: give one of them")
	}
	return firstProblem(validateAhead("delay", delay), validateInstant("run at", at))
}

// validateAhead validates a duration from now.
func validateAhead(field string, in time.Duration) error {
	switch {
	case in < 0:
		return invalid(field, "invalid_duration", "is %s, which is negative", duration.Text(in))
	case in > MaxAhead:
		return invalid(field, "out_of_range", "is %s ahead, at most %s is allowed", duration.Text(in),
			duration.Text(MaxAhead))
	}
	return nil
}

// validateInstant validates a point in time; the zero time means that it is not set.
func validateInstant(field string, at time.Time) error {
	switch {
	case at.IsZero():
		return nil
	case at.Before(earliest):
		return invalid(field, "invalid_time",
			"is %s: a time before 1971 is one that was never set. Give the real time, or leave it out",
			at.UTC().Format(time.RFC3339))
	case at.Year() > 9999:
		return invalid(field, "invalid_time", "is in the year %d, which not every database can store", at.Year())
	case time.Until(at) > MaxAhead:
		return invalid(field, "out_of_range", "is %s, at most %s ahead is allowed", at.Format(time.RFC3339),
			duration.Text(MaxAhead))
	}
	return nil
}

// clockSkew is how far the client's clock may be off the database's without a task being refused for it.
const clockSkew = 10 * time.Minute

// validateEnds refuses an expiry or a deadline that is not after the run time, because the task could never run. A
// duration counts from the database's now, so its comparison with a time is only as exact as the client's clock.
func validateEnds(o *Options, now time.Time) error {
	run, relative := o.RunAt, o.Delay > 0
	if relative {
		run = now.Add(o.Delay)
	}
	for _, end := range []struct {
		field string
		at    time.Time
		in    time.Duration
	}{
		{"expires at", o.ExpiresAt, 0}, {"expires in", time.Time{}, o.ExpiresIn},
		{"deadline", o.Deadline, 0}, {"deadline in", time.Time{}, o.DeadlineIn},
	} {
		margin := time.Duration(0)
		if relative != (end.in > 0) {
			margin = clockSkew
		}
		if end.in > 0 {
			end.at = now.Add(end.in)
		}
		if !run.IsZero() && !end.at.IsZero() && run.Sub(end.at) >= margin {
			return invalid(end.field, "before_run_time",
				"ends at %s, but the run time is %s: the task could never run. Let it end later, or run earlier",
				exactly(end.at), exactly(run))
		}
	}
	return nil
}

func exactly(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z") }
