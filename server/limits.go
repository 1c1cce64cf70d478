package server

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// Limits are the limits of a queue as the API shows them, with periods as text.
type Limits struct {
	tusk.Limits
	Rate          *RateLimit `json:"rate,omitempty" doc:"of starts, of the queue as a whole"`
	TenantRate    *RateLimit `json:"tenant_rate,omitempty" doc:"of each tenant"`
	PartitionRate *RateLimit `json:"partition_rate,omitempty" doc:"of each partition of a tenant"`
}

// RateLimit is how many tasks may start in a period.
type RateLimit struct {
	Allowed   int      `json:"allowed" rule:"allowed"`
	Period    Duration `json:"period" doc:"1ms to 24h"`
	Algorithm string   `json:"algorithm,omitempty" enum:"token_bucket,sliding_window" doc:"default: token_bucket"`
}

// QueueLimits are the limits of one queue.
type QueueLimits struct {
	Queue  string `json:"queue"`
	Limits Limits `json:"limits"`
}

// LimitsList is a list of limits, by queue.
type LimitsList struct {
	Limits []QueueLimits `json:"limits"`
}

func viewLimits(queue string, l tusk.Limits) QueueLimits {
	return QueueLimits{queue, Limits{Limits: l, Rate: viewRate(l.Rate), TenantRate: viewRate(l.TenantRate),
		PartitionRate: viewRate(l.PartitionRate)}}
}

func viewRate(r *tusk.Rate) *RateLimit {
	if r == nil {
		return nil
	}
	return &RateLimit{r.Allowed, Duration(r.Period), string(r.Algorithm)}
}

func (l Limits) limits() tusk.Limits {
	full := l.Limits
	full.Rate, full.TenantRate, full.PartitionRate = l.Rate.rate(), l.TenantRate.rate(), l.PartitionRate.rate()
	return full
}

func (r *RateLimit) rate() *tusk.Rate {
	if r == nil {
		return nil
	}
	rate := &tusk.Rate{Allowed: r.Allowed, Period: time.Duration(r.Period)}
	switch r.Algorithm {
	case string(tusk.SlidingWindow):
		rate.Algorithm = tusk.SlidingWindow
	case "":
	default:
		rate.Algorithm = tusk.TokenBucket
	}
	return rate
}

func listLimits(c *call, _ struct{}) (LimitsList, error) {
	list := LimitsList{Limits: []QueueLimits{}}
	all, err := c.client.Limits(c.r.Context())
	for _, queue := range slices.Sorted(maps.Keys(all)) {
		if c.who.SeesQueue(queue) {
			list.Limits = append(list.Limits, viewLimits(queue, all[queue]))
		}
	}
	return list, err
}

func getLimits(c *call, in byQueue) (QueueLimits, error) {
	all, err := c.client.Limits(c.r.Context())
	if err != nil {
		return QueueLimits{}, err
	}
	l, ok := all[in.Queue]
	if !ok || !c.who.SeesQueue(in.Queue) {
		return QueueLimits{}, problem(http.StatusNotFound, "not_found", "queue: has no limits")
	}
	return viewLimits(in.Queue, l), nil
}

// maxTenants is the largest number of tenants in a queue with their own limits.
const maxTenants = 1000

type putLimitsInput struct {
	meantQueue
	Body Limits
}

func putLimits(c *call, in putLimitsInput) (QueueLimits, error) {
	if err := c.maySet(in.meantQueue); err != nil {
		return QueueLimits{}, err
	}
	for field, r := range map[string]*RateLimit{"rate": in.Body.Rate, "tenant_rate": in.Body.TenantRate,
		"partition_rate": in.Body.PartitionRate} {
		if r != nil && !slices.Contains([]string{"", string(tusk.TokenBucket), string(tusk.SlidingWindow)}, r.Algorithm) {
			return QueueLimits{}, fieldProblem(http.StatusUnprocessableEntity, "invalid_policy", field+".algorithm",
				"want token_bucket or sliding_window")
		}
	}
	l := in.Body.limits()
	return viewLimits(in.Queue, l), c.client.SetLimits(c.r.Context(), in.Queue, l)
}

func removeLimits(c *call, in byQueue) (nothing, error) {
	if err := c.mayChangeAll(in.Queue); err != nil {
		return nothing{}, err
	}
	return nothing{}, c.client.RemoveLimits(c.r.Context(), in.Queue)
}

type putTenantLimitsInput struct {
	meantQueue
	Tenant string `path:"tenant" rule:"name"`
	Body   tusk.TenantLimits
}

func putTenantLimits(c *call, in putTenantLimitsInput) (QueueLimits, error) {
	if err := c.maySet(in.meantQueue); err != nil {
		return QueueLimits{}, err
	}
	c.detail = short(in.Tenant)
	if err := c.client.SetTenantLimits(c.r.Context(), in.Queue, in.Tenant, in.Body); err != nil {
		return QueueLimits{}, err
	}
	return getLimits(c, in.byQueue)
}

// Turns is how many tasks of a tenant and partition have their turn, and how many wait for it.
type Turns struct {
	Tenant    string `json:"tenant"`
	Partition string `json:"partition"`
	Held      int64  `json:"held" doc:"tasks that have their turn, until they end"`
	Waiting   int    `json:"waiting" doc:"at most 50 are counted"`
	More      bool   `json:"more,omitempty" doc:"more tasks wait than were counted"`
}

// TurnList is a list of turns. Groups with waiting tasks come first, and among them those that have waited longest.
type TurnList struct {
	Turns []Turns `json:"turns"`
	More  bool    `json:"more,omitempty" doc:"only the 1,000 groups were searched that have waited longest in any queue: some of this queue may be missing; its tasks are listed by /tasks?queue=…&state=pending"`
}

func listTurns(c *call, in byQueue) (TurnList, error) {
	list := TurnList{Turns: []Turns{}}
	if _, err := getLimits(c, in); err != nil {
		return list, err
	}
	counts, more, err := query.Turns(c.r.Context(), c.client, in.Queue, query.TurnGroups, query.TurnHeads)
	list.More = more
	for _, t := range counts {
		list.Turns = append(list.Turns, Turns{t.Tenant, t.Partition, t.Held, t.Waiting, t.More})
	}
	return list, err
}

// mayChangeAll fails unless the caller, who has named the queue, sees everything in it.
func (c *call) mayChangeAll(queue string) error {
	c.target = short(queue)
	switch {
	case !c.who.SeesQueue(queue):
		return notIts(c.who, "queue", queue)
	case !c.who.SeesAllTenants():
		return problem(http.StatusForbidden, "forbidden", "your %s is bound to tenants, and the queue %s belongs to all",
			c.who.Via, short(queue))
	}
	return nil
}

// TenantSummary is what is known about a tenant.
type TenantSummary struct {
	Name   string                       `json:"name"`
	Queues []string                     `json:"queues" doc:"of the tasks that were searched"`
	Tasks  map[string]int64             `json:"tasks" doc:"unfinished tasks that were searched, by state"`
	Limits map[string]tusk.TenantLimits `json:"limits" doc:"the tenant's own limits, by queue"`
}

// TenantList is a list of tenants, by name.
type TenantList struct {
	Tenants []TenantSummary `json:"tenants"`
	Looked  int             `json:"looked_at" doc:"the number of the newest unfinished tasks that were searched"`
	Whole   bool            `json:"whole" doc:"all unfinished tasks were searched"`
}

func listTenants(c *call, _ struct{}) (TenantList, error) {
	list := TenantList{Tenants: []TenantSummary{}}
	all, err := c.client.Limits(c.r.Context())
	if err != nil {
		return list, err
	}
	own := map[string]map[string]tusk.TenantLimits{}
	for queue, l := range all {
		for name, t := range l.Tenants {
			if c.who.Sees(queue, name) {
				if own[name] == nil {
					own[name] = map[string]tusk.TenantLimits{}
				}
				own[name][queue] = t
			}
		}
	}
	sums, looked, whole, err := query.Tenants(c.r.Context(), c.client, c.who, slices.Collect(maps.Keys(own)),
		query.SurveyBudget)
	for _, sum := range sums {
		t := TenantSummary{Name: sum.Name, Queues: sum.Queues, Tasks: sum.Counts, Limits: own[sum.Name]}
		if t.Queues == nil {
			t.Queues = []string{}
		}
		if t.Limits == nil {
			t.Limits = map[string]tusk.TenantLimits{}
		}
		list.Tenants = append(list.Tenants, t)
	}
	list.Looked, list.Whole = looked, whole
	return list, err
}
