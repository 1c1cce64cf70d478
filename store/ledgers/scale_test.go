package ledgers

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// The router's own rules (byID, turns) run over a model of servers, with virtual times.

// call is the cost of a call for a server, as measured by `bench/ledgers -scenario costs`.
type call struct{ base, task time.Duration }

func (c call) of(n int) time.Duration { return c.base + time.Duration(n)*c.task }

var (
	enqueueCost = call{250 * time.Microsecond, 3300 * time.Nanosecond}
	claimCost   = call{160 * time.Microsecond, 1900 * time.Nanosecond}
	finishCost  = call{200 * time.Microsecond, 400 * time.Nanosecond}
	emptyCost   = 120 * time.Microsecond
)

const (
	trip     = 500 * time.Microsecond  // to a server and back
	commit   = 1000 * time.Microsecond // to write a transaction to disk
	cores    = 8                       // per server
	clientOf = 3 * time.Microsecond    // a worker process's time per task
	bellGap  = 20 * time.Millisecond
	pollGap  = time.Second
	warm     = 2 * time.Second // warm-up, which is not measured
)

// world is one run of the model.
type world struct {
	nodes, ledgers int
	rate           float64 // offered tasks per second
	batch          int     // tasks per enqueue
	limit          int     // of a claim
	workers        int     // processes

	rand   *rand.Rand
	now    time.Duration
	events events
	lines  []queued
	free   [][]time.Duration // when each core of each node is free
	busy   []time.Duration
	crew   []*process
	waits  []float64 // a sample of the seconds from enqueue to claim
	done   int
	empty  int
	claims int
}

// queued is a ledger: its waiting tasks, and until when a claim holds its lane.
type queued struct {
	waiting []parcel
	tasks   int
	locked  time.Duration
	rung    time.Duration
}

type parcel struct {
	at time.Duration
	n  int
}

// process is a process that claims with the router's own turns.
type process struct {
	turns  turns
	all    []*ledger
	asleep bool
	epoch  int
}

type event struct {
	at  time.Duration
	no  int
	run func()
}

type events struct {
	list []event
	n    int
}

func (e *events) Len() int { return len(e.list) }
func (e *events) Less(i, j int) bool {
	return e.list[i].at < e.list[j].at || e.list[i].at == e.list[j].at && e.list[i].no < e.list[j].no
}
func (e *events) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }
func (e *events) Push(x any)    { e.list = append(e.list, x.(event)) }
func (e *events) Pop() any {
	last := e.list[len(e.list)-1]
	e.list = e.list[:len(e.list)-1]
	return last
}

func (w *world) after(d time.Duration, run func()) {
	w.events.n++
	heap.Push(&w.events, event{w.now + d, w.events.n, run})
}

// serve makes a node work for a time, once a core is free but not before an instant, and then
// calls done.
func (w *world) serve(no int, cost, notBefore time.Duration, done func()) {
	node := no * w.nodes / w.ledgers
	free := w.free[node]
	core := 0
	for i := range free {
		if free[i] < free[core] {
			core = i
		}
	}
	start := max(w.now, free[core], notBefore)
	free[core] = start + cost
	w.busy[node] += cost
	w.after(start+cost-w.now, done)
}

// produce enqueues batches at the offered rate, like many independent producers.
func (w *world) produce() {
	gap := time.Duration(w.rand.ExpFloat64() * float64(w.batch) / w.rate * float64(time.Second))
	w.after(gap, func() {
		var id store.ID
		id[8], id[9] = byte(w.rand.Uint32()), byte(w.rand.Uint32())
		for i := 10; i < 15; i++ {
			id[i] = byte(w.rand.Uint32())
		}
		no, began := byID(id, w.ledgers), w.now
		w.after(trip/2, func() {
			w.serve(no, enqueueCost.of(w.batch), 0, func() { w.after(commit, func() { w.arrive(no, began) }) })
		})
		w.produce()
	})
}

func (w *world) arrive(no int, began time.Duration) {
	l := &w.lines[no]
	l.waiting = append(l.waiting, parcel{began, w.batch})
	l.tasks += w.batch
	if l.rung > w.now {
		return
	}
	l.rung = w.now + bellGap
	w.after(trip/2, func() {
		for _, p := range w.crew {
			p.turns.heat(no, true)
			if p.asleep {
				w.claim(p)
			}
		}
	})
}

// claim is a round of one process.
func (w *world) claim(p *process) {
	p.asleep = false
	p.epoch++
	w.ask(p, p.turns.order(p.all), w.limit, 0)
}

func (w *world) ask(p *process, order []*ledger, limit, got int) {
	if len(order) == 0 || got >= limit {
		w.finish(p, got)
		return
	}
	no, want := order[0].no, limit-got
	w.after(trip/2, func() {
		l := &w.lines[no]
		n := min(want, l.tasks)
		cost := emptyCost
		if n > 0 {
			cost = claimCost.of(n)
		}
		w.claims++
		if n == 0 {
			w.empty++
		}
		w.take(l, n)
		w.serve(no, cost, l.locked, func() {
			wait := trip / 2
			if n > 0 {
				wait += commit
			}
			w.after(wait, func() {
				p.turns.hot[no].Store(n >= want)
				w.ask(p, order[1:], limit, got+n)
			})
		})
		if n > 0 { // the next claim from it waits for this one's commit
			l.locked = max(l.locked, w.now) + cost + commit
		}
	})
}

func (w *world) take(l *queued, n int) {
	l.tasks -= n
	for n > 0 {
		part := min(n, l.waiting[0].n)
		w.waits = append(w.waits, (w.now - l.waiting[0].at).Seconds())
		if l.waiting[0].n -= part; l.waiting[0].n == 0 {
			l.waiting = l.waiting[1:]
		}
		n -= part
	}
}

// finish ends the claimed tasks while the next claim is in progress.
func (w *world) finish(p *process, got int) {
	if got == 0 {
		p.asleep = true
		epoch := p.epoch
		w.after(pollGap, func() {
			if p.asleep && p.epoch == epoch {
				w.claim(p)
			}
		})
		return
	}
	run := time.Duration(got) * clientOf
	w.after(run, func() {
		w.done += got
		no := w.rand.IntN(w.ledgers) // any ledger will do: they are alike
		w.after(trip/2, func() { w.serve(no, finishCost.of(got), 0, func() {}) })
		w.claim(p)
	})
}

// outcome is the result of a run.
type outcome struct {
	perSecond, busy, p50, p99, empties, size float64
}

func (w *world) run(lasts time.Duration) outcome {
	w.rand = rand.New(rand.NewPCG(1, 2))
	w.lines, w.free, w.busy = make([]queued, w.ledgers), make([][]time.Duration, w.nodes), make([]time.Duration, w.nodes)
	for i := range w.free {
		w.free[i] = make([]time.Duration, cores)
	}
	var all []*ledger
	for no := range w.ledgers {
		all = append(all, &ledger{no: no})
	}
	for range w.workers {
		p := &process{all: all}
		p.turns.now = func() time.Time { return time.Unix(1e9, 0).Add(w.now) }
		p.turns.next.Store(w.rand.Uint64())
		for no := range w.ledgers {
			p.turns.hot[no].Store(true)
			p.turns.listen(no, true)
		}
		w.crew = append(w.crew, p)
		w.after(time.Duration(w.rand.Int64N(int64(pollGap))), func() { w.claim(p) })
	}
	w.produce()
	for begun := false; w.now < lasts+warm; {
		if !begun && w.now >= warm {
			begun, w.done, w.claims, w.empty, w.waits = true, 0, 0, 0, nil
			clear(w.busy)
		}
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run()
	}
	var busy time.Duration
	for _, b := range w.busy {
		busy += b
	}
	slices.Sort(w.waits)
	at := func(q float64) float64 { return w.waits[int(q*float64(len(w.waits)-1))] }
	full := float64(w.claims - w.empty)
	return outcome{
		perSecond: float64(w.done) / lasts.Seconds(), busy: busy.Seconds() / lasts.Seconds() / float64(w.nodes*cores),
		p50: at(0.5), p99: at(0.99), empties: float64(w.empty) / full, size: float64(w.done) / full,
	}
}

// With twice the servers and twice the offered rate, the servers are as busy as before: nothing in
// the router's work grows with their number, except calls that find nothing.
func TestTheRouterGrowsWithItsServers(t *testing.T) {
	grow := func(nodes int) outcome {
		w := world{nodes: nodes, ledgers: 2 * nodes, rate: 100_000 * float64(nodes), batch: 500, limit: 500,
			workers: 2 * nodes}
		o := w.run(2 * time.Second)
		t.Logf("%d servers: %+v", nodes, o)
		return o
	}
	one, four := grow(1), grow(4)
	if four.perSecond < 3.6*one.perSecond {
		t.Errorf("%.0f tasks a second with one server, %.0f with four", one.perSecond, four.perSecond)
	}
	if four.busy > 1.15*one.busy || four.p99 > 2*one.p99 {
		t.Errorf("with one server %+v, with four %+v", one, four)
	}
}

// TestScale prints the figures of docs/design/scale.md.
func TestScale(t *testing.T) {
	if os.Getenv("TUSK_SCALE") == "" {
		t.Skip("TUSK_SCALE=1 prints the tables of docs/design/scale.md")
	}
	for _, batch := range []int{1, 10, 100, 500} {
		for nodes := 1; nodes <= 64; nodes *= 2 {
			ledgers := min(2*nodes, Most)
			rate := 1e6 * float64(nodes) / 64
			w := world{nodes: nodes, ledgers: ledgers, rate: rate, batch: batch, limit: 500, workers: max(2, nodes)}
			o := w.run(2 * time.Second)
			fmt.Printf("| %d | %d | %d | %.0f | %.0f | %.0f %% | %.1f | %.1f | %.0f | %.2f |\n", batch, nodes, ledgers, rate,
				o.perSecond, 100*o.busy, 1000*o.p50, 1000*o.p99, o.size, o.empties)
		}
	}
	for _, workers := range []int{64, 256, 1024} {
		w := world{nodes: 64, ledgers: 64, rate: 1e6, batch: 100, limit: 500, workers: workers}
		o := w.run(2 * time.Second)
		fmt.Printf(
			"workers %d: %.0f a second, %.0f %% busy, p99 %.1f ms, %.0f tasks a claim, %.2f empty claims for each other\n",
			workers, o.perSecond, 100*o.busy, 1000*o.p99, o.size, o.empties)
	}
	perTask := func(batch, limit int) float64 {
		return float64(enqueueCost.of(batch))/float64(batch) +
			float64(claimCost.of(limit)+finishCost.of(limit))/float64(limit)
	}
	const billion = 1e9 / 3600
	for _, batch := range []int{1, 10, 100, 500} {
		ns := perTask(batch, min(batch*10, 500))
		fmt.Printf("a billion an hour in batches of %d: %.2f us a task, %.1f cores, %.0f servers of %d cores, half busy\n",
			batch, ns/1000, billion*ns/1e9, math.Ceil(2*billion*ns/1e9/cores), cores)
	}
}
