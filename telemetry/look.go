package telemetry

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
)

// look is the state of the database as it was last read.
type look struct {
	every  time.Duration // 0 means Every
	client *tusk.Client  // nil if there is no database to read

	mu      sync.Mutex
	begun   time.Time           // when the last read began
	reading chan struct{}       // closed when that has ended; nil if no read is in progress
	told    []*dto.MetricFamily // the metrics, gathered once for all scrapes
	at      time.Time           // when they were read
	broken  error               // why they could not be gathered

	// Only refresh uses the following fields.
	err     error
	queues  []tusk.Queue
	workers []store.Worker
	late    time.Duration // how overdue the most overdue schedule is
	health  store.Health
	heard   []herald.Receiver // the receivers of alerts and hooks
	known   bool              // health was read
	local   time.Time
}

const (
	patience = 25 * time.Millisecond // how long a scrape waits before it returns what was read before
	longest  = 5 * time.Second       // how long a read may take
)

// families starts a read if the last one is too old, and returns the metrics of the database. It
// waits a moment for a read in progress, and longer for the first one. Callers must not change
// the result.
func (l *look) families() ([]*dto.MetricFamily, error) {
	l.mu.Lock()
	if l.client == nil {
		l.mu.Unlock()
		return nil, nil
	}
	if l.reading == nil && time.Since(l.begun) >= cmp.Or(l.every, Every) {
		l.begun, l.reading = time.Now(), make(chan struct{})
		go l.refresh()
	}
	reading, wait := l.reading, patience
	if l.at.IsZero() {
		wait = 2 * longest
	}
	l.mu.Unlock()
	if reading != nil {
		select {
		case <-reading:
		case <-time.After(wait):
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told, l.broken
}

// age returns how long ago the metrics were read, and false if they were not read yet.
func (l *look) age() (age time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.at), !l.at.IsZero()
}

// refresh reads the database.
func (l *look) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	at := time.Now()
	l.err = l.read(ctx)
	once := prometheus.NewRegistry()
	once.MustRegister(told(l.tell))
	families, err := once.Gather()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told, l.at, l.broken = families, at, err
	close(l.reading)
	l.reading = nil
}

func (l *look) read(ctx context.Context) (err error) {
	if l.queues, l.workers, err = l.client.QueuesAndWorkers(ctx); err != nil {
		return err
	}
	l.local = time.Now()
	e, ok := store.As[store.Examiner](l.client.Store())
	if l.known = ok; ok {
		if l.health, err = e.Examine(ctx); err != nil {
			return err
		}
	}
	schedules, err := l.client.Schedules(ctx)
	l.late = 0
	for _, s := range schedules {
		if now := l.now(); !s.Paused && !s.Next.IsZero() {
			l.late = max(l.late, now.Sub(s.Next))
		}
	}
	if err != nil {
		return err
	}
	l.heard, err = herald.Receivers(ctx, l.client.Store())
	return err
}

// now returns the database's time, or this process's if the database's is not known.
func (l *look) now() time.Time {
	if l.known && !l.health.Now.IsZero() {
		return l.health.Now
	}
	return l.local
}

func (l *look) tell(e *emitter) {
	e.gauge("tusk_up", "Whether the database could be read.", nil, number(l.err == nil))
	if l.err != nil {
		return
	}
	l.tellQueues(e)
	l.tellWorkers(e)
	e.gauge("tusk_schedule_late_seconds", "How overdue the most overdue schedule is; 0: none is.", nil, l.late.Seconds())
	l.tellReceivers(e)
	if l.known {
		l.tellHealth(e)
	}
}

var unfinished = []store.State{store.Scheduled, store.Pending, store.Available, store.Running, store.Retryable}

// depth is what the metrics say about a queue.
type depth struct {
	tasks   [store.Discarded + 1]int64
	oldest  time.Duration
	paused  bool
	workers int
}

func (l *look) tellQueues(e *emitter) {
	depths := map[string]*depth{}
	for _, q := range l.queues {
		name := q.Name
		if len(depths) >= MaxQueues {
			name = Other
		}
		if depths[name] == nil {
			depths[name] = &depth{}
		}
		d := depths[name]
		for state, n := range q.Tasks {
			d.tasks[state] += n
		}
		d.oldest, d.paused = max(d.oldest, q.Oldest), d.paused || q.Paused
	}
	for _, w := range l.workers {
		for _, q := range w.Queues {
			if depths[q] != nil && !w.Quiet {
				depths[q].workers++
			}
		}
	}
	for name, d := range depths {
		for _, state := range unfinished {
			e.gauge("tusk_queue_tasks", "Unfinished tasks.", []string{"queue", "state"}, float64(d.tasks[state]), name,
				state.String())
		}
		e.gauge("tusk_queue_oldest_seconds", "How long the oldest available task has been due.", []string{"queue"},
			d.oldest.Seconds(), name)
		e.gauge("tusk_queue_paused", "Whether the queue is paused.", []string{"queue"}, number(d.paused), name)
		e.gauge("tusk_queue_workers", "Living workers that take from the queue; quiet ones do not.", []string{"queue"},
			float64(d.workers), name)
	}
}

func (l *look) tellWorkers(e *emitter) {
	slots, busy := 0, 0
	versions := map[string]int{}
	for _, w := range l.workers {
		slots, busy = slots+w.Concurrency, busy+w.Running
		versions[w.Version]++
	}
	e.gauge("tusk_worker_slots", "Tasks that all living workers may run at once.", nil, float64(slots))
	e.gauge("tusk_worker_slots_busy", "Tasks that they hold.", nil, float64(busy))
	e.gauge("tusk_worker_versions", "How many versions of Tusk the living workers are of.", nil, float64(len(versions)))
	e.gauge("tusk_workers", "Living workers.", nil, float64(len(l.workers)))
}

func (l *look) tellReceivers(e *emitter) {
	labels := []string{"kind", "name"}
	for _, r := range l.heard {
		behind := 0.0
		if !r.Waits.IsZero() {
			behind = max(l.now().Sub(r.Waits).Seconds(), 0)
		}
		e.gauge("tusk_receiver_behind_seconds", "How long a message of an alert or a hook has waited for its receiver.",
			labels, behind, r.Kind, r.Name)
		e.counter("tusk_receiver_dropped_total", "Messages of alerts and hooks that were given up.", labels, r.Dropped,
			r.Kind, r.Name)
	}
}

func (l *look) tellHealth(e *emitter) {
	h := &l.health
	e.gauge("tusk_leader", "Whether a process leads.", nil, number(h.Leader.Held))
	e.gauge("tusk_leader_term", "The term of the leader; it grows when another process takes over.", nil,
		float64(h.Leader.Term))
	e.gauge("tusk_clock_offset_seconds", "How far the database's clock is ahead of this process's.", nil,
		h.Now.Sub(l.local).Seconds())
	for _, m := range []struct {
		name, help string
		value      int64
	}{
		{"dead_rows", "Rows that a vacuum would have to remove.", h.DeadRows},
		{"live_rows", "Rows beside them.", h.LiveRows},
		{"bytes", "What Tusk's tables take.", h.Bytes},
		{"segments", "Tables or partitions that tasks are spread over.", h.Segments},
		{"positions_behind", "Positions of lanes that were passed and are still kept.", h.Behind},
		{"connections", "Connections open on the server.", h.Connections},
		{"connections_max", "Connections that the server takes.", h.ConnectionsMost},
		{"disk_free_bytes", "Free on the database's disk, where it is this machine's.", h.DiskFree},
		{"disk_size_bytes", "The size of that disk.", h.DiskSize},
	} {
		if m.value >= 0 {
			e.gauge("tusk_database_"+m.name, m.help, nil, float64(m.value))
		}
	}
	if h.OpenFor >= 0 {
		e.gauge("tusk_database_open_transaction_seconds", "The age of the oldest open transaction.", nil, h.OpenFor.Seconds())
	}
	if !h.OldestCompleted.IsZero() {
		e.gauge("tusk_database_oldest_completed_seconds", "How long ago the oldest completed task ended that is still kept.",
			nil, h.Now.Sub(h.OldestCompleted).Seconds())
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
