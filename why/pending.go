package why

import (
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// pending says what a pending task waits for: other tasks, the task with its key, or its turn.
func (f *Facts) pending() []Reason {
	if reasons := f.needs(); reasons != nil {
		return reasons
	}
	t := &f.Task
	if f.Key != nil && f.Key.State == store.Running {
		return []Reason{{Code: KeyRuns, Text: say("it runs when task %s, which has its key %q and is running, has ended",
			f.Key.ID, t.Key),
			Fix: say("tusk tasks cancel %s", f.Key.ID), Tasks: []tusk.ID{f.Key.ID}}}
	}
	if none := f.leaderless(); none != nil {
		return none
	}
	return f.turn()
}

// needs says which tasks must end first. If one of them failed, it returns that one, since it needs
// an action.
func (f *Facts) needs() []Reason {
	if f.Task.Detail == nil {
		return nil
	}
	var open []store.NeedState
	for _, n := range f.Task.Detail.Needs {
		switch {
		case n.Dooms(n.State):
			first := Reason{Code: Doomed, Text: "it is about to be cancelled: it " + n.Reason(n.State), Tasks: []tusk.ID{n.Task}}
			return append(f.leaderless(), first)
		case !n.Met(n.State):
			open = append(open, n)
		}
	}
	if len(open) == 0 {
		return nil
	}
	r := Reason{Code: Needs}
	var parts []string
	for i, n := range open {
		if n.State == store.Cancelled || n.State == store.Discarded {
			return []Reason{{Code: NeedsFailed, Text: say("it waits for task %s, which is %v, to be retried", n.Task, n.State),
				Fix: say("tusk tasks retry %s", n.Task), Tasks: []tusk.ID{n.Task}}}
		}
		if i < named {
			r.Tasks, parts = append(r.Tasks, n.Task), append(parts, say("%s (%v)", n.Task, n.State))
		}
	}
	if more := len(open) - named; more > 0 {
		parts = append(parts, say("and %d more", more))
	}
	r.Text = say("it waits for %s to end: %s", words.Count(len(open), "task"), strings.Join(parts, ", "))
	r.Fix = say("tusk tasks why %s", open[0].Task)
	return []Reason{r}
}

// turn says what the task's turn waits for.
func (f *Facts) turn() []Reason {
	t, l := &f.Task, f.Limits
	if l == nil {
		return []Reason{{Code: Turn, Text: "its queue has no limits any more: it gets its turn in a moment"}}
	}
	reasons := append(f.limits(l), f.rates(l)...)
	if len(reasons) > 0 {
		return reasons
	}
	if n := f.before(); n > 0 {
		return []Reason{{Code: TurnsBehind, Text: say("%s of its partition in queue %s have their turn before it",
			words.Count(n, "task"), t.Queue),
			Fix: say("tusk tasks reprioritize %s --priority %d", t.ID, max(int(t.Priority)-1, -1<<15))}}
	}
	return []Reason{{Code: Turn, Text: "it gets its turn as soon as a worker has room for it",
		Fix: say("tusk limits show %s", t.Queue)}}
}

// limits says which concurrency limits are reached.
func (f *Facts) limits(l *tusk.Limits) (reasons []Reason) {
	t := &f.Task
	var inQueue, ofTenant, ofPartition int64
	for _, g := range f.Turns {
		inQueue += g.Held
		if g.Tenant == t.Tenant {
			ofTenant += g.Held
			if g.Partition == t.Partition {
				ofPartition += g.Held
			}
		}
	}
	perTenant := l.PerTenant
	if own := l.Tenants[t.Tenant].Concurrency; own > 0 {
		perTenant = own
	}
	for _, limit := range []struct {
		code  Code
		held  int64
		most  int
		of    string
		flag  string
		holds func(h *tusk.TaskInfo) bool
	}{
		{LimitPartition, ofPartition, l.PerPartition, say("its partition %q", t.Partition), "--per-partition",
			func(h *tusk.TaskInfo) bool { return h.Tenant == t.Tenant && h.Partition == t.Partition }},
		{LimitTenant, ofTenant, perTenant, say("its tenant %q", t.Tenant), "--per-tenant",
			func(h *tusk.TaskInfo) bool { return h.Tenant == t.Tenant }},
		{LimitQueue, inQueue, l.Concurrency, "its queue " + t.Queue, "--concurrency", func(*tusk.TaskInfo) bool {
			return true
		}},
	} {
		if limit.most == 0 || limit.held < int64(limit.most) {
			continue
		}
		var holders []tusk.TaskInfo
		for i := range f.Holders {
			if limit.holds(&f.Holders[i]) {
				holders = append(holders, f.Holders[i])
			}
		}
		r := Reason{Code: limit.code, Tasks: ids(holders), Fix: say("tusk limits set %s %s %d", t.Queue, limit.flag,
			2*limit.most)}
		r.Text = say("it waits for its turn: the limit of %s is reached, %d of %d%s", limit.of, limit.held, limit.most,
			heldBy(holders))
		if f.Bounded {
			r.Text = say("it waits for its turn: the limit of %s is reached%s", limit.of, heldBy(holders))
		}
		reasons = append(reasons, r)
	}
	return reasons
}

// rates says which rate limits are used up, those with the longest wait first.
func (f *Facts) rates(l *tusk.Limits) (reasons []Reason) {
	t := &f.Task
	weight := float64(max(t.Weight, 1))
	for _, rate := range []struct {
		code     Code
		rate     *tusk.Rate
		key      string
		of, flag string
	}{
		{Rate, l.Rate, "", "its queue " + t.Queue, "--rate"},
		{RateTenant, l.TenantRate, allot.OfTenant(t.Tenant), say("its tenant %q", t.Tenant), "--tenant-rate"},
		{RatePartition, l.PartitionRate, t.Tenant + "/" + t.Partition, say("its partition %q", t.Partition),
			"--partition-rate"},
	} {
		next := f.Rates.Next(rate.rate, rate.key, weight, f.Now)
		if !next.After(f.Now) {
			continue
		}
		r := Reason{Code: rate.code, Until: next, Fix: say("tusk limits set %s %s %d/%s", t.Queue, rate.flag,
			2*rate.rate.Allowed, duration.Text(rate.rate.Period))}
		r.Text = say("it waits for its turn: the rate of %s, %d in %s, is used up; the next may start in %s", rate.of,
			rate.rate.Allowed, duration.Text(rate.rate.Period), dur(next.Sub(f.Now)))
		if len(reasons) > 0 && next.After(reasons[0].Until) {
			reasons = append([]Reason{r}, reasons...)
		} else {
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// before counts the tasks that have their turn before this one, among those that were read.
func (f *Facts) before() int {
	for _, g := range f.Turns {
		if g.Tenant != f.Task.Tenant || g.Partition != f.Task.Partition {
			continue
		}
		for i, id := range g.Waiting {
			if id == f.Task.ID {
				return i
			}
		}
		return len(g.Waiting)
	}
	return 0
}
