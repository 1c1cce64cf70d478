// Package allot hands out turns: it shares the turns of a queue among tenants by weight, within limits of concurrency
// and rate.
//
// It is pure. Package tend passes in the time and the waiting tasks, and gets back the ids to grant and the usage of
// rates to store.
package allot

import (
	"container/heap"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// RecordKind is the kind of the records that store limits, by queue. StateKind is the kind of the records that store
// the usage of rates.
const (
	RecordKind = "limits"
	StateKind  = "allotment"
)

// Limits are the limits of a queue. The zero value limits nothing, but makes the queue's tasks take turns, fairly.
type Limits struct {
	// Concurrency is how many tasks of the queue may run at a time; 0 means no limit.
	Concurrency int `json:"concurrency,omitempty"`
	// PerTenant is the same for each tenant without an entry in Tenants.
	PerTenant int               `json:"per_tenant,omitempty"`
	Tenants   map[string]Tenant `json:"tenants,omitempty"`
	// PerPartition is the same for each partition of a tenant. With 1, tasks run one after another, in the order in
	// which they were enqueued.
	PerPartition int `json:"per_partition,omitempty"`
	// PerWorker is how many tasks of the queue each worker may hold at a time; 0 means as many as it has room for. A
	// queue with only this limit takes no turns: it is as fast, and as unfair, as a queue without limits.
	PerWorker int `json:"per_worker,omitempty"`

	Rate          *Rate `json:"rate,omitempty"`           // of starts in the whole queue
	TenantRate    *Rate `json:"tenant_rate,omitempty"`    // of each tenant
	PartitionRate *Rate `json:"partition_rate,omitempty"` // of each partition of a tenant

	// BlockOnRetry keeps the turn of a failed task for its retries, so that the tasks after it in a serial partition
	// wait. By default they overtake it.
	BlockOnRetry bool `json:"block_on_retry,omitempty"`
}

// Tenant holds the settings of a single tenant.
type Tenant struct {
	Concurrency int     `json:"concurrency,omitempty"` // 0 means PerTenant
	Weight      float64 `json:"weight,omitempty"`      // its share relative to other tenants; 0 means 1
}

// Turns reports whether the queue's tasks take turns.
func (l *Limits) Turns() bool {
	return l.PerWorker == 0 || l.Concurrency > 0 || l.PerTenant > 0 || len(l.Tenants) > 0 || l.PerPartition > 0 ||
		l.Rated() || l.BlockOnRetry
}

// Waiting is what Pick needs to know about a queue.
type Waiting struct {
	Limits Limits
	Groups []store.Turns
	Heads  int // a group with this many waiting tasks may have more
	// How many more turns may be handed out, whatever the limits say.
	Room    int
	Weights map[store.ID]int // of tasks, for rates; the default is 1
}

// Paid is the weight of a task that has had a turn before and was postponed before its handler began.
const Paid = -1

func (w *Waiting) weight(id store.ID) float64 {
	if w.Weights[id] == Paid {
		return 0
	}
	return float64(max(w.Weights[id], 1))
}

// Shares records how many turns each tenant of a queue has had, so that turns are shared over time and not only
// within one call.
type Shares struct {
	had   map[string]float64 // by tenant: turns divided by weight
	level float64            // the share of the tenant served last, before that turn
}

// Pick chooses the tasks that get their turn, in order, and counts them in rates and in shares. short says that there
// was room for more, and that a group whose tasks were all chosen may have more waiting tasks.
func Pick(w Waiting, shares *Shares, rates Rates, now time.Time) (picked []store.ID, short bool) {
	q := newQueue(&w, shares)
	l := &w.Limits
	room := w.Room
	if l.Concurrency > 0 {
		room = min(room, l.Concurrency-q.held)
	}
	for len(picked) < room && q.Len() > 0 {
		t := q.tenants[0]
		p := t.next(&w, rates, now)
		if p == nil {
			heap.Pop(q)
			continue
		}
		weight := w.weight(p.waiting[0])
		if !rates.fit(l.Rate, "", weight, now) {
			// A heavy task waits at the head until there is room for it.
			break
		}
		rates.take(l.Rate, "", weight, now)
		rates.take(l.TenantRate, OfTenant(t.name), weight, now)
		rates.take(l.PartitionRate, p.name, weight, now)
		picked = append(picked, p.take())
		t.room--
		short = short || p.short
		shares.level = t.had
		t.had += weight / t.weight
		shares.had[t.name] = t.had
		heap.Fix(q, 0)
	}
	return picked, short && len(picked) < room
}

// queue is a heap of tenants. The tenant that has had the least is first; among equals, the one that has waited
// longest. So tasks that arrived together are granted together.
type queue struct {
	tenants []*tenant
	held    int
}

type tenant struct {
	name       string
	order      int // by how long they have waited
	weight     float64
	had        float64
	room       int
	partitions []*partition
	turn       int // the next partition
}

type partition struct {
	name    string // for rates
	room    int
	waiting []store.ID
	more    bool // there may be more than in waiting
	short   bool // there may be more, but all in waiting are taken
}

func newQueue(w *Waiting, shares *Shares) *queue {
	q := &queue{}
	held, byName := map[string]int{}, map[string]*tenant{}
	for _, g := range w.Groups {
		q.held += int(g.Held)
		held[g.Tenant] += int(g.Held)
	}
	for _, g := range w.Groups {
		if len(g.Waiting) == 0 {
			continue
		}
		t := byName[g.Tenant]
		if t == nil {
			t = newTenant(g.Tenant, &w.Limits, held[g.Tenant])
			byName[g.Tenant], t.order = t, len(q.tenants)
			q.tenants = append(q.tenants, t)
		}
		p := &partition{name: partitionOf(&g), room: unlimited, waiting: g.Waiting,
			more: len(g.Waiting) == w.Heads}
		if w.Limits.PerPartition > 0 {
			p.room = w.Limits.PerPartition - int(g.Held)
		}
		t.partitions = append(t.partitions, p)
	}
	shares.enter(q.tenants)
	heap.Init(q)
	return q
}

const unlimited = 1 << 30

func newTenant(name string, l *Limits, held int) *tenant {
	own := l.Tenants[name]
	t := &tenant{name: name, weight: own.Weight, room: unlimited}
	if t.weight <= 0 {
		t.weight = 1
	}
	if most := max(own.Concurrency, 0); most > 0 {
		t.room = most - held
	} else if l.PerTenant > 0 {
		t.room = l.PerTenant - held
	}
	return t
}

// enter adds the tenants that wait now. A tenant that had no tasks starts at the level of the others: unused turns
// are not saved up.
func (s *Shares) enter(tenants []*tenant) {
	had := make(map[string]float64, len(tenants))
	for _, t := range tenants {
		before, known := s.had[t.name]
		if t.had = before; !known || before < s.level {
			t.had = s.level
		}
		had[t.name] = t.had
	}
	s.had = had
}

// next returns the tenant's next partition whose first task may run, or nil if none may.
func (t *tenant) next(w *Waiting, rates Rates, now time.Time) *partition {
	if t.room <= 0 {
		return nil
	}
	for range t.partitions {
		p := t.partitions[t.turn%len(t.partitions)]
		t.turn++
		if p.room <= 0 || len(p.waiting) == 0 {
			continue
		}
		weight := w.weight(p.waiting[0])
		if !rates.fit(w.Limits.PartitionRate, p.name, weight, now) {
			continue
		}
		if !rates.fit(w.Limits.TenantRate, OfTenant(t.name), weight, now) {
			return nil
		}
		return p
	}
	return nil
}

// take removes and returns the first task.
func (p *partition) take() store.ID {
	id := p.waiting[0]
	p.waiting = p.waiting[1:]
	p.room--
	p.short = p.more && len(p.waiting) == 0 && p.room > 0
	return id
}

func (q *queue) Len() int { return len(q.tenants) }
func (q *queue) Less(i, j int) bool {
	a, b := q.tenants[i], q.tenants[j]
	return a.had < b.had || a.had == b.had && a.order < b.order
}
func (q *queue) Swap(i, j int) { q.tenants[i], q.tenants[j] = q.tenants[j], q.tenants[i] }
func (q *queue) Push(x any)    { q.tenants = append(q.tenants, x.(*tenant)) }
func (q *queue) Pop() any {
	last := q.tenants[len(q.tenants)-1]
	q.tenants = q.tenants[:len(q.tenants)-1]
	return last
}
