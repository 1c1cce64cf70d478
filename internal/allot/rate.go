package allot

import (
	"strings"
	"time"
)

// Rate limits how many tasks may start in a period.
type Rate struct {
	Allowed int           `json:"allowed"`
	Period  time.Duration `json:"period"` // nanoseconds
	// Algorithm is a token bucket (the default: Allowed at once, refilled evenly) or
	// a sliding window (never more than Allowed in any one period, to the accuracy
	// of counting in two of them).
	Algorithm Algorithm `json:"algorithm,omitempty"`
}

// Algorithm is how a rate is measured.
type Algorithm string

// The algorithms.
const (
	TokenBucket   Algorithm = "token_bucket"
	SlidingWindow Algorithm = "sliding_window"
)

// Rates is what is remembered of the rates of a queue, by what they count: the
// queue itself, a tenant, a partition. It is stored, so that a new leader goes on
// where the last one was.
type Rates map[string]*Usage

// Usage is what is remembered of one rate.
type Usage struct {
	At    time.Time `json:"at"`              // of a bucket: when it was counted; of a window: when it began
	Used  float64   `json:"used"`            // of a bucket: tokens gone; of a window: starts in it
	Prior float64   `json:"prior,omitempty"` // starts in the window before

	Allowed int `json:"allowed,omitempty"` // what was allowed then; 0: not known
}

// OfTenant names the rate of a tenant in Rates. The queue's own rate has the empty name, so tasks without a tenant have
// another one, which no tenant can have.
func OfTenant(tenant string) string {
	if tenant == "" {
		return " "
	}
	return tenant
}

// fit reports whether a task of some weight may start now. One that weighs more than
// is ever allowed at once may start when nothing is used.
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

// used brings what is remembered up to now and says how much of the rate is gone.
func (rates Rates) used(r *Rate, of string, now time.Time) float64 {
	u := rates[of]
	if u == nil {
		return 0
	}
	if now.Before(u.At) { // the clock was set back: what has started counts for a period from now on
		u.At = now
	}
	if all := float64(r.Allowed); u.Allowed > r.Allowed { // what was allowed before is no debt
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

// Tidy forgets what says nothing any more: buckets that are full again, windows that are over, and what is not limited.
func (rates Rates) Tidy(l *Limits, now time.Time) {
	for of := range rates {
		r := l.TenantRate
		switch {
		case of == "":
			r = l.Rate
		case strings.Contains(of, "/"):
			r = l.PartitionRate
		}
		if r == nil || rates.used(r, of, now) == 0 {
			delete(rates, of)
		}
	}
}

// Rated reports whether any rate is limited, so that usage must be remembered.
func (l *Limits) Rated() bool {
	return l.Rate != nil || l.TenantRate != nil || l.PartitionRate != nil
}

// Next returns when a task of some weight may start at the earliest, if nothing else
// starts before; now when it may at once.
func (rates Rates) Next(r *Rate, of string, weight float64, now time.Time) time.Time {
	if r == nil || rates.fit(r, of, weight, now) {
		return now
	}
	u, room := rates[of], float64(r.Allowed)-min(weight, float64(r.Allowed))
	if r.Algorithm != SlidingWindow {
		return now.Add(time.Duration((u.Used - room) / float64(r.Allowed) * float64(r.Period)))
	}
	fades := func(begin time.Time, count, rest float64) time.Time { // when so many of a window before count as few as rest
		return begin.Add(time.Duration((1 - rest/count) * float64(r.Period)))
	}
	if u.Used <= room {
		return fades(u.At, u.Prior, room-u.Used)
	}
	return fades(u.At.Add(r.Period), u.Used, room)
}
