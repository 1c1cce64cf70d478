package allot

import "time"

// Rate limits how many tasks may start in a period.
type Rate struct {
	Allowed int           `json:"allowed"`
	Period  time.Duration `json:"period"` // nanoseconds
	// Algorithm is a token bucket (the default: Allowed at once, refilled evenly) or a sliding window (never more than
	// Allowed in any period, with the accuracy of counting in two windows).
	Algorithm Algorithm `json:"algorithm,omitempty"`
}

// Algorithm is how a rate is measured.
type Algorithm string

// The algorithms.
const (
	TokenBucket   Algorithm = "token_bucket"
	SlidingWindow Algorithm = "sliding_window"
)

// Rates holds the usage of a queue's rates, by what they limit: the queue itself, a tenant or a partition. It is
// stored in a Book, so that a new leader continues where the last one stopped.
type Rates map[string]*Usage

// Usage is how much of one rate is used.
type Usage struct {
	// For a bucket, when Used was counted. For a window, when it began.
	At time.Time `json:"at"`
	// For a bucket, the tokens used. For a window, the starts in it.
	Used  float64 `json:"used"`
	Prior float64 `json:"prior,omitempty"` // starts in the previous window

	Allowed int `json:"allowed,omitempty"` // Rate.Allowed at that time; 0 if unknown
}

// OfTenant names the rate of a tenant in Rates. The queue's own rate has the empty name, so the rate of tasks without a
// tenant has a name that no tenant can have.
func OfTenant(tenant string) string {
	if tenant == "" {
		return " "
	}
	return tenant
}

// fit reports whether a task of a given weight may start now. A task that weighs more than is ever allowed at once may
// start when nothing is used.
func (rates Rates) fit(r *Rate, of string, weight float64, now time.Time) bool {
	if r == nil {
		return true
	}
	allowed := float64(r.Allowed)
	return rates.used(r, of, now)+min(weight, allowed) <= allowed+1e-9
}

// take counts the start of a task.
func (rates Rates) take(r *Rate, of string, weight float64, now time.Time) {
	if r == nil {
		return
	}
	rates.used(r, of, now)
	if rates[of] == nil {
		rates[of] = &Usage{At: now, Allowed: r.Allowed}
	}
	rates[of].Used += weight
}

// used brings the usage up to now and returns how much of the rate is used.
func (rates Rates) used(r *Rate, of string, now time.Time) float64 {
	u := rates[of]
	if u == nil {
		return 0
	}
	// The clock was set back: the tasks that have started count for a period from now on.
	if now.Before(u.At) {
		u.At = now
	}
	// Starts that were allowed before must not become a debt.
	if all := float64(r.Allowed); u.Allowed > r.Allowed {
		u.Used, u.Prior = min(u.Used, all), min(u.Prior, all)
	}
	u.Allowed = r.Allowed
	passed := now.Sub(u.At)
	if r.Algorithm != SlidingWindow {
		u.Used = max(u.Used-float64(r.Allowed)*float64(passed)/float64(r.Period), 0)
		u.At = now
		return u.Used
	}
	switch {
	case passed >= 2*r.Period:
		u.At, u.Used, u.Prior = now, 0, 0
	case passed >= r.Period:
		u.At, u.Used, u.Prior = u.At.Add(r.Period), 0, u.Used
	}
	rest := 1 - float64(now.Sub(u.At))/float64(r.Period)
	return u.Used + u.Prior*rest
}

// Rated reports whether any rate is limited, so that usage must be remembered.
func (l *Limits) Rated() bool {
	return l.Rate != nil || l.TenantRate != nil || l.PartitionRate != nil
}

// Next returns the earliest time at which a task of a given weight may start, if nothing else starts before. It returns
// now if the task may start at once.
func (rates Rates) Next(r *Rate, of string, weight float64, now time.Time) time.Time {
	if r == nil || rates.fit(r, of, weight, now) {
		return now
	}
	u, room := rates[of], float64(r.Allowed)-min(weight, float64(r.Allowed))
	if r.Algorithm != SlidingWindow {
		return now.Add(time.Duration((u.Used - room) / float64(r.Allowed) * float64(r.Period)))
	}
	// Returns when the count of an earlier window has faded to rest.
	fades := func(begin time.Time, count, rest float64) time.Time {
		return begin.Add(time.Duration((1 - rest/count) * float64(r.Period)))
	}
	if u.Used <= room {
		return fades(u.At, u.Prior, room-u.Used)
	}
	return fades(u.At.Add(r.Period), u.Used, room)
}
