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
	"github.com/tuskqueue/tusk/internal/gate"
	"github.com/tuskqueue/tusk/store"
)

// Limits are the concurrency and rate limits of a queue: for the queue as a whole, for each tenant and for each
// partition. A queue with limits is also fair: its tenants take turns, by weight, however many tasks each has.
//
//	type Limits struct {
//		Concurrency  int                     // maximum number of running tasks of the queue; 0 means no limit
//		PerTenant    int                     // the same for each tenant, unless Tenants overrides it
//		Tenants      map[string]TenantLimits // by the tenant's name
//		PerPartition int                     // the same for each partition of a tenant; 1 runs them in order
//		PerWorker    int                     // the same for each worker; a queue with only this limit has no turns
//
//		Rate          *Rate // rate of starts of the whole queue; nil means no limit
//		TenantRate    *Rate // for each tenant
//		PartitionRate *Rate // for each partition of a tenant
//
//		BlockOnRetry bool // a failed task keeps its turn until its retries end; otherwise others overtake it
//	}
type Limits = allot.Limits

// TenantLimits are the settings of one tenant of a queue that differ from the others.
//
//	type TenantLimits struct {
//		Concurrency int     // maximum number of running tasks of the tenant; 0 means Limits.PerTenant
//		Weight      float64 // share of the turns relative to other tenants; 0 means 1
//	}
type TenantLimits = allot.Tenant

// Rate limits how many tasks may start in a period. Each task counts as its Options.Weight.
//
//	type Rate struct {
//		Allowed   int           // 1 to 1,000,000
//		Period    time.Duration // 1 ms to 24 h
//		Algorithm Algorithm     // default: TokenBucket
//	}
type Rate = allot.Rate

// The algorithms of a rate limit.
const (
	TokenBucket   = allot.TokenBucket   // a burst of up to Allowed, refilled evenly
	SlidingWindow = allot.SlidingWindow // never more than Allowed in any period
)

// limitsAge is the maximum age of the limits that a client or a worker uses.
const limitsAge = time.Second

// SetLimits replaces the limits of a queue. New limits apply to tasks enqueued from then on, within about a
// second; changes of existing limits apply to all tasks that wait for their turn. Empty limits make the queue fair
// and limit nothing.
//
// The error is an *InvalidError if the input is invalid.
func (c *Client) SetLimits(ctx context.Context, queue string, l Limits) error {
	if err := errors.Join(ValidateName("queue", queue), validateLimits(l)); err != nil {
		return firstOf(err)
	}
	body, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("limits of %s: %w", queue, err)
	}
	return c.putLimits(ctx, queue, func([]byte) ([]byte, error) { return body, nil })
}

func (c *Client) putLimits(ctx context.Context, queue string, change func(body []byte) ([]byte, error)) error {
	if err := c.changeRecord(ctx, allot.RecordKind, queue, change); err != nil {
		return fmt.Errorf("limits of %s: %w", queue, err)
	}
	c.limits.forget()
	return nil
}

// ChangeLimits is like SetLimits, but change edits the stored limits, which are empty if there are none. It is called
// again if another process changes them in the meantime. An error of change is returned unchanged, and nothing is
// stored.
func (c *Client) ChangeLimits(ctx context.Context, queue string, change func(l *Limits) error) error {
	if err := ValidateName("queue", queue); err != nil {
		return err
	}
	var refused error
	err := c.putLimits(ctx, queue, func(body []byte) ([]byte, error) {
		var l Limits
		if len(body) > 0 {
			if err := json.Unmarshal(body, &l); err != nil {
				return nil, fmt.Errorf("the stored ones cannot be read: set or remove them: %w", err)
			}
		}
		if refused = change(&l); refused == nil {
			refused = firstOf(validateLimits(l))
		}
		if refused != nil {
			return nil, refused
		}
		return json.Marshal(l)
	})
	if refused != nil {
		return refused
	}
	return err
}

// RemoveLimits removes the limits of a queue. Tasks that wait for their turn get it. The error is ErrNotFound if
// the queue has no limits.
func (c *Client) RemoveLimits(ctx context.Context, queue string) error {
	return c.putLimits(ctx, queue, func(body []byte) ([]byte, error) {
		if len(body) == 0 {
			return nil, ErrNotFound
		}
		return nil, nil
	})
}

// Limits returns the limits of all queues that have limits, by queue.
func (c *Client) Limits(ctx context.Context) (map[string]Limits, error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: allot.RecordKind})
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

// limitCache caches the limits of all queues briefly, so that queues without limits cost almost nothing.
type limitCache struct {
	reading gate.Gate

	mu     sync.Mutex
	read   time.Time
	gone   time.Time // when the limits were last forgotten
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

// take stores limits that were requested at the time asked. Limits forgotten since then stay forgotten.
func (l *limitCache) take(limits map[string]Limits, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked.After(l.gone) && asked.After(l.read) {
		l.limits, l.read = limits, asked
	}
}

// fresh returns the limits that were read last, and whether they are at most limitsAge old.
func (l *limitCache) fresh() (map[string]Limits, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limits, !l.read.IsZero() && time.Since(l.read) < limitsAge
}

// of returns the limits of all queues, at most limitsAge old, or older while the database is not available.
func (l *limitCache) of(ctx context.Context, c *Client) (map[string]Limits, error) {
	if limits, fresh := l.fresh(); fresh {
		return limits, nil
	}
	if err := l.reading.Enter(ctx); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	defer l.reading.Leave()
	if limits, fresh := l.fresh(); fresh { // another goroutine has read them
		return limits, nil
	}
	asked := time.Now()
	limits, err := c.Limits(ctx)
	if errors.Is(err, store.ErrUnavailable) && l.extend(asked) {
		return l.last(), nil
	}
	if err != nil {
		return nil, err
	}
	l.take(limits, asked)
	return limits, nil
}

// extend makes the limits that were read last count as read at the given time, if there are any. While the home
// ledger is unreachable, limits cannot be changed, and tasks are stored in the other ledgers.
func (l *limitCache) extend(asked time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := !l.read.IsZero()
	if known {
		l.read = asked
	}
	return known
}

// takeTurns makes the tasks of queues with limits wait for their turn.
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

// keepsTurn reports whether a task of the queue keeps its turn while it is retried. If the limits cannot be read, the
// last known ones apply. For an unknown queue it then returns true: keeping a turn costs time, giving it up breaks
// the order.
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

// validateOwn validates t; where precedes the field names in errors.
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

// TurnCount is the number of tasks of a queue, tenant and partition that have their turn and that wait for it.
type TurnCount struct {
	Queue, Tenant, Partition string
	Held                     int64 // tasks that have their turn
	Waiting                  int   // tasks that wait for it; at most 1,000 are counted
	More                     bool  // the maximum was counted; there may be more
}

// TurnCounts returns the groups of tasks that have a turn or wait for one, in a queue or, if queue is empty, in
// all queues. Waiting groups come first, the longest waiting first, then all others that have a turn. Of the
// waiting groups, only the first 1,000 of all queues together are read.
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
