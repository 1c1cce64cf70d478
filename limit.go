package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/store"
)

// Limits are the limits of a queue: of concurrency and of rate, for the queue, for
// each tenant and for each partition. A queue with limits is fair as well: its
// tenants take turns, by weight, however many tasks each has.
//
//	type Limits struct {
//		Concurrency  int                     // tasks of the queue that may run at a time; 0: any number
//		PerTenant    int                     // the same of each tenant, unless Tenants says otherwise
//		Tenants      map[string]TenantLimits // by the tenant's name
//		PerPartition int                     // the same of each partition of a tenant; 1: one after another, in order
//		PerWorker    int                     // the same of each worker; a queue with this limit alone takes no turns
//
//		Rate          *Rate // of starts, of the queue as a whole; nil: none
//		TenantRate    *Rate // of each tenant
//		PartitionRate *Rate // of each partition of a tenant
//
//		BlockOnRetry bool // a failed task keeps its turn until its retries are over; else others pass it
//	}
type Limits = allot.Limits

// TenantLimits is what sets one tenant of a queue apart from others.
//
//	type TenantLimits struct {
//		Concurrency int     // tasks of the tenant that may run at a time; 0: Limits.PerTenant
//		Weight      float64 // its share of the turns relative to other tenants; 0: 1
//	}
type TenantLimits = allot.Tenant

// Rate limits how many tasks may start in a period. A task counts as many as its
// Options.Weight says.
//
//	type Rate struct {
//		Allowed   int           // 1 to 1,000,000
//		Period    time.Duration // a millisecond to a day
//		Algorithm Algorithm     // default: TokenBucket
//	}
type Rate = allot.Rate

// The algorithms of a rate.
const (
	TokenBucket   = allot.TokenBucket   // Allowed at once, refilled evenly
	SlidingWindow = allot.SlidingWindow // never more than Allowed in any one period
)

// limitsAge is how soon a client and a worker learn of new limits.
const limitsAge = time.Second

// SetLimits sets the limits of a queue, in place of those that it had. They count
// for tasks that are enqueued from then on, within about a second; changes of
// limits count for all tasks that wait for their turn. Empty limits make the queue
// fair and limit nothing.
//
// The error is an *InvalidError for what was passed in.
func (c *Client) SetLimits(ctx context.Context, queue string, l Limits) error {
	if err := errors.Join(ValidateName("queue", queue), validateLimits(l)); err != nil {
		return firstOf(err)
	}
	err := c.changeRecord(ctx, allot.RecordKind, queue, func([]byte) ([]byte, error) { return json.Marshal(l) })
	if err != nil {
		return fmt.Errorf("limits of %s: %w", queue, err)
	}
	c.limits.forget()
	return nil
}

// RemoveLimits takes a queue's limits away. Tasks that wait for their turn get it.
// The error is ErrNotFound when the queue has none.
func (c *Client) RemoveLimits(ctx context.Context, queue string) error {
	err := c.changeRecord(ctx, allot.RecordKind, queue, func(body []byte) ([]byte, error) {
		if len(body) == 0 {
			return nil, ErrNotFound
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("limits of %s: %w", queue, err)
	}
	c.limits.forget()
	return nil
}

// Limits returns the limits of all queues that have any.
func (c *Client) Limits(ctx context.Context) (map[string]Limits, error) {
	records, err := c.store.Records(ctx, allot.RecordKind)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	return limitsOf(records)
}

func limitsOf(records []store.Record) (map[string]Limits, error) {
	limits := make(map[string]Limits, len(records))
	for _, r := range records {
		var l Limits
		if err := json.Unmarshal(r.Body, &l); err != nil {
			return nil, fmt.Errorf("limits of %s: %w", r.Name, err)
		}
		limits[r.Name] = l
	}
	return limits, nil
}

// limitCache remembers the limits of all queues for a moment, so that queues
// without limits pay next to nothing.
type limitCache struct {
	mu     sync.Mutex
	read   time.Time
	gone   time.Time // when they were last forgotten
	limits map[string]Limits
}

func (l *limitCache) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read, l.gone = time.Time{}, time.Now()
}

// last returns the limits that were read last.
func (l *limitCache) last() map[string]Limits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limits
}

// take takes in limits that were asked for at a time. What was forgotten since stays so.
func (l *limitCache) take(limits map[string]Limits, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked.After(l.gone) && asked.After(l.read) {
		l.limits, l.read = limits, asked
	}
}

// of returns the limits of all queues as they were within limitsAge.
func (l *limitCache) of(ctx context.Context, c *Client) (map[string]Limits, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.read.IsZero() && time.Since(l.read) < limitsAge {
		return l.limits, nil
	}
	limits, err := c.Limits(ctx)
	if err != nil {
		return nil, err
	}
	l.limits, l.read = limits, time.Now()
	return limits, nil
}

// takeTurns has the tasks of queues with limits wait for their turn.
func (c *Client) takeTurns(ctx context.Context, tasks []store.NewTask) error {
	limits, err := c.limits.of(ctx, c)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotCommitted, err)
	}
	if len(limits) == 0 {
		return nil
	}
	for i := range tasks {
		l, limited := limits[tasks[i].Queue]
		tasks[i].Turn = limited && l.Turns()
	}
	return nil
}

// keepsTurn reports whether a task of the queue keeps its turn while it is retried.
// While the limits cannot be read, what was last known of them counts. Of an unknown
// queue it does: a turn that is kept costs time, one that is not costs the order.
func (c *Client) keepsTurn(queue string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limitsAge)
	defer cancel()
	limits, err := c.limits.of(ctx, c)
	if err != nil {
		limits = c.limits.last()
	}
	of, known := limits[queue]
	return of.BlockOnRetry || err != nil && !known
}

const maxLimit = 1000000

func validateLimits(l Limits) error {
	problems := []error{
		within("concurrency", l.Concurrency, 0, maxLimit),
		within("per tenant", l.PerTenant, 0, maxLimit),
		within("per partition", l.PerPartition, 0, maxLimit), within("per worker", l.PerWorker, 0, maxLimit),
		validateRate("rate", l.Rate), validateRate("tenant rate", l.TenantRate),
		validateRate("partition rate", l.PartitionRate),
	}
	for name, t := range l.Tenants {
		problems = append(problems, ValidateName("tenant", name), validateOwn("tenants: "+cutText(name)+": ", t))
	}
	return errors.Join(problems...)
}

// validateOwn names fields as they are called where the tenant is.
func validateOwn(where string, t TenantLimits) error {
	if !(t.Weight >= 0 && t.Weight <= maxLimit) {
		return invalid(where+"weight", "out_of_range", "is %s, want 0 to %d",
			strconv.FormatFloat(t.Weight, 'f', -1, 64), maxLimit)
	}
	return within(where+"concurrency", t.Concurrency, 0, maxLimit)
}

func validateRate(field string, r *Rate) error {
	if r == nil {
		return nil
	}
	return errors.Join(
		within(field+": allowed", r.Allowed, 1, maxLimit),
		within(field+": period", r.Period, time.Millisecond, 24*time.Hour),
		oneOf(field+": algorithm", r.Algorithm, "", TokenBucket, SlidingWindow))
}

// TurnCount says how many tasks of a queue, tenant and partition have their turn, and
// how many wait for it.
type TurnCount struct {
	Queue, Tenant, Partition string
	Held                     int64 // have their turn
	Waiting                  int   // wait for it; at most 1,000 are counted
	More                     bool  // that many were counted: there may be more
}

// TurnCounts returns who has a turn and who waits for one in a queue, or in all
// queues when none is named: first those that wait, the longest waiting first, then
// all others that have a turn. Of those that wait, the first 1,000 of all queues
// together are looked at.
func (c *Client) TurnCounts(ctx context.Context, queue string) ([]TurnCount, error) {
	const groups, heads = 1000, 1000
	turns, err := c.store.Turns(ctx, 0, groups, heads)
	if err != nil {
		return nil, err
	}
	counts := make([]TurnCount, 0, len(turns))
	for _, t := range turns {
		if queue == "" || t.Queue == queue {
			counts = append(counts, TurnCount{t.Queue, t.Tenant, t.Partition, t.Held, len(t.Waiting),
				len(t.Waiting) == heads})
		}
	}
	return counts, nil
}
