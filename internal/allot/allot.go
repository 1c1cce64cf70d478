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

// Waiting is what Pick is told of a queue.
type Waiting struct {
	Limits Limits
	Groups []store.Turns
	Room   int // how many more may be handed out, whatever the limits say
}

// Shares remembers how much each tenant of a queue has had, so that turns are
// shared over time and not only within one call.
type Shares struct {
	had   map[string]float64 // by tenant: turns divided by weight
	level float64            // what the last one served had had
}

// Pick chooses whose turn it is, in order. It counts what it chose in rates and in
// shares.
func Pick(w Waiting, shares *Shares, rates Rates, now time.Time) []store.ID {
	q := newQueue(w, shares, rates, now)
	var picked []store.ID
	room := w.Room
	if w.Limits.Concurrency > 0 {
		room = min(room, w.Limits.Concurrency-q.held)
	}
	room = min(room, rates.left(w.Limits.Rate, "", now))
	for len(picked) < room && q.Len() > 0 {
		t := q.tenants[0]
		id, ok := t.next(&w.Limits, rates, now)
		if !ok {
			heap.Pop(q)
			continue
		}
		picked = append(picked, id)
		rates.take(w.Limits.Rate, "", now)
		rates.take(w.Limits.TenantRate, t.name, now)
		shares.level = t.had
		t.had += 1 / t.weight
		shares.had[t.name] = t.had
		heap.Fix(q, 0)
	}
	return picked
}

// queue is a heap of tenants: whoever has had least is first.
type queue struct {
	tenants []*tenant
	held    int
}

type tenant struct {
	name       string
	weight     float64
	had        float64
	room       int
	partitions []*partition
	turn       int // which partition is next
}

type partition struct {
	name    string // for rates: with its tenant
	room    int
	waiting []store.ID
}

func newQueue(w Waiting, shares *Shares, rates Rates, now time.Time) *queue {
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
			t = newTenant(g.Tenant, &w.Limits, held[g.Tenant], rates, now)
			byName[g.Tenant] = t
			q.tenants = append(q.tenants, t)
		}
		p := &partition{name: g.Tenant + "/" + g.Partition, room: unlimited, waiting: g.Waiting}
		if w.Limits.PerPartition > 0 {
			p.room = w.Limits.PerPartition - int(g.Held)
		}
		p.room = min(p.room, rates.left(w.Limits.PartitionRate, p.name, now))
		t.partitions = append(t.partitions, p)
	}
	shares.enter(q.tenants)
	heap.Init(q)
	return q
}

const unlimited = 1 << 30

func newTenant(name string, l *Limits, held int, rates Rates, now time.Time) *tenant {
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
	t.room = min(t.room, rates.left(l.TenantRate, name, now))
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

// next takes the first task of the tenant's next partition that has room.
func (t *tenant) next(l *Limits, rates Rates, now time.Time) (store.ID, bool) {
	if t.room <= 0 {
		return store.ID{}, false
	}
	for range t.partitions {
		p := t.partitions[t.turn%len(t.partitions)]
		t.turn++
		if p.room <= 0 || len(p.waiting) == 0 {
			continue
		}
		id := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.room--
		t.room--
		rates.take(l.PartitionRate, p.name, now)
		return id, true
	}
	return store.ID{}, false
}

func (q *queue) Len() int { return len(q.tenants) }
func (q *queue) Less(i, j int) bool {
	return q.tenants[i].had < q.tenants[j].had
}
func (q *queue) Swap(i, j int) { q.tenants[i], q.tenants[j] = q.tenants[j], q.tenants[i] }
func (q *queue) Push(x any)    { q.tenants = append(q.tenants, x.(*tenant)) }
func (q *queue) Pop() any {
	last := q.tenants[len(q.tenants)-1]
	q.tenants = q.tenants[:len(q.tenants)-1]
	return last
}
