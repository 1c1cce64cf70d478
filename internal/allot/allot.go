// Package allot decides whose turn it is: it shares the turns of a queue among
// tenants by weight, within limits of concurrency and rate.
//
// It is pure: the time and who waits come in from package tend; the ids to grant,
// and what must be remembered of rates, go back to it.
package allot

import (
	"container/heap"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// RecordKind is the kind of record that limits are stored as, by queue; StateKind
// that of what is remembered of rates.
const (
	RecordKind = "limits"
	StateKind  = "allotment"
)

// Limits are the limits of a queue. The zero value limits nothing but has the
// queue's tasks taken in turns, fairly.
type Limits struct {
	// Concurrency is how many tasks of the queue may run at a time; 0: any number.
	Concurrency int `json:"concurrency,omitempty"`
	// PerTenant is the same for each tenant, unless Tenants says otherwise.
	PerTenant int               `json:"per_tenant,omitempty"`
	Tenants   map[string]Tenant `json:"tenants,omitempty"`
	// PerPartition is the same for each partition of a tenant. 1: one after another,
	// in the order in which they were enqueued.
	PerPartition int `json:"per_partition,omitempty"`
	// PerWorker is how many tasks of the queue each worker may hold at a time; 0: as
	// many as it has room for. A queue with this limit alone takes no turns: it is as
	// fast, and as unfair, as one without limits.
	PerWorker int `json:"per_worker,omitempty"`

	Rate          *Rate `json:"rate,omitempty"`           // of starts, of the queue as a whole
	TenantRate    *Rate `json:"tenant_rate,omitempty"`    // of each tenant
	PartitionRate *Rate `json:"partition_rate,omitempty"` // of each partition of a tenant

	// BlockOnRetry keeps the turn of a failed task for its retries, so that what
	// comes after it in a serial partition waits. By default others pass it.
	BlockOnRetry bool `json:"block_on_retry,omitempty"`
}

// Tenant is what sets one tenant apart from others.
type Tenant struct {
	Concurrency int     `json:"concurrency,omitempty"` // 0: as for all
	Weight      float64 `json:"weight,omitempty"`      // its share relative to others; 0: 1
}

// Turns reports whether the queue's tasks take turns.
func (l *Limits) Turns() bool {
	return l.PerWorker == 0 || l.Concurrency > 0 || l.PerTenant > 0 || len(l.Tenants) > 0 || l.PerPartition > 0 ||
		l.Rated() || l.BlockOnRetry
}

// Waiting is what Pick is told of a queue.
type Waiting struct {
	Limits  Limits
	Groups  []store.Turns
	Heads   int              // a group with so many waiting may have more
	Room    int              // how many more may be handed out, whatever the limits say
	Weights map[store.ID]int // of tasks, in rates; those that are missing weigh 1
}

func (w *Waiting) weight(id store.ID) float64 { return float64(max(w.Weights[id], 1)) }

// Shares remembers how much each tenant of a queue has had, so that turns are
// shared over time and not only within one call.
type Shares struct {
	had   map[string]float64 // by tenant: turns divided by weight
	level float64            // what the last one served had had
}

// Pick chooses whose turn it is, in order. It counts what it chose in rates and in
// shares. Short says that there was room for more, and that a group might have had
// more than it was told of.
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
			break // what weighs much waits at the head until there is room for it
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

// queue is a heap of tenants: whoever has had least is first, and among those who
// has waited longest. So what came together is granted together.
type queue struct {
	tenants []*tenant
	held    int
}

type tenant struct {
	name       string
	order      int // in which they have waited
	weight     float64
	had        float64
	room       int
	partitions []*partition
	turn       int // which partition is next
}

type partition struct {
	name    string // for rates: with its tenant, whose name has no slash
	room    int
	waiting []store.ID
	more    bool // there may be more than waiting
	short   bool // and those are all taken
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
		p := &partition{name: g.Tenant + "/" + g.Partition, room: unlimited, waiting: g.Waiting,
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

// enter seats the tenants that wait now. One that was away begins where the others
// are: it has saved nothing up.
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

// next returns the tenant's next partition whose first task may run; nil: none may.
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

// take takes the first task.
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
