//go:build unix

package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

const producerKeys = 4 // number of keys in use

// producer enqueues until it is killed. Its seed determines what it enqueues.
type producer struct {
	part   part
	random *rand.Rand
	client *tusk.Client
	log    *history
	dbs    pools
	recent []tusk.ID // may be cancelled
	// May also change their priority: no check depends on their order.
	free  []tusk.ID
	left  map[string]int64 // unfinished tasks by queue
	name  string
	tries int // consecutive failures
}

func playProducer(p part) error {
	ctx := context.Background()
	log, err := openHistory(p.History)
	if err != nil {
		return err
	}
	engine, _, err := p.patiently(ctx)
	if err != nil {
		return err
	}
	dbs, err := p.pools()
	if err != nil {
		return err
	}
	config, _, err := p.config(ctx, engine)
	if err != nil {
		return err
	}
	client, err := tusk.NewClient(witnessed(engine, log), config)
	if err != nil {
		return err
	}
	go log.vitals()
	a := &producer{part: p, random: rand.New(rand.NewPCG(p.Seed, p.Seed)), client: client, log: log, dbs: dbs,
		name: fmt.Sprint(p.Seed % 1000)}
	for {
		a.round(ctx)
	}
}

// round does one thing. Errors do not matter here; the history shows what they leave open.
func (a *producer) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := a.count(ctx)
	if err == nil && a.left[queueOpen] > a.part.Backlog {
		time.Sleep(30 * time.Millisecond)
		return
	}
	if err == nil {
		err = a.act(ctx)
	}
	if err == nil {
		a.tries = 0
		time.Sleep(time.Duration(a.random.IntN(20)) * time.Millisecond)
		return
	}
	a.tries++
	quiet.Warn("produce", "error", err)
	time.Sleep(min(time.Duration(a.tries)*50*time.Millisecond, time.Second))
}

func (a *producer) count(ctx context.Context) error {
	counts, err := a.client.Store().Count(ctx)
	a.left = map[string]int64{}
	for _, c := range counts {
		a.left[c.Queue] += c.Tasks
	}
	return err
}

// crowded reports whether a queue with a limit has enough tasks. Such a queue runs a few at a time, however fast the
// others are, so its tasks would become the whole backlog.
func (a *producer) crowded(queue string) bool { return a.left[queue] > a.part.Backlog/10 }

func (a *producer) act(ctx context.Context) error {
	acts := []func(context.Context) error{a.many, a.many, a.many, a.alike, a.keyed, a.rerun, a.serial, a.limited, a.graph,
		a.inTx, a.cancel, a.reprioritize, a.fresh, a.large}
	if a.part.Engine == "postgres" {
		acts = append(acts, a.bySQL)
	}
	return acts[a.random.IntN(len(acts))](ctx)
}

// many enqueues a batch of tasks of all kinds.
func (a *producer) many(ctx context.Context) error {
	kinds := []string{doEcho, doEcho, doEcho, doEcho, doEffect, doEffect, doTx, doFlaky, doSlow, doSnooze, doPanic,
		doGoexit, doDoomed, doFamily, doSteps, doSteps}
	if a.random.IntN(100) == 0 {
		kinds = []string{doGarbage}
	}
	tasks := make([]tusk.NewTask, 1+a.random.IntN(60))
	for i := range tasks {
		kind := kinds[0]
		if a.random.IntN(3) == 0 {
			kind = kinds[a.random.IntN(len(kinds))]
		}
		o := a.options(queueOpen)
		o.Priority = int16(a.random.IntN(3))
		if a.random.IntN(20) == 0 {
			o.Delay = time.Duration(a.random.IntN(2000)) * time.Millisecond
		}
		tasks[i] = a.task(kind, o)
	}
	err := a.enqueue(ctx, tasks)
	if err == nil { // after an error, the last ones belong to another queue
		a.free = slices.Clone(a.recent[max(0, len(a.recent)-len(tasks)):])
	}
	return err
}

// alike enqueues many tasks that differ only in their args, so that an engine may store them together.
func (a *producer) alike(ctx context.Context) error {
	kinds := []string{doEcho, doEcho, doEcho, doEffect, doTx, doFlaky, doSnooze, doSlow}
	var tasks []tusk.NewTask
	for len(tasks) < 64 {
		kind, o := kinds[a.random.IntN(len(kinds))], a.options(queueOpen)
		for range 10 + a.random.IntN(40) {
			tasks = append(tasks, a.task(kind, o))
		}
	}
	err := a.enqueue(ctx, tasks)
	if err == nil {
		a.free = slices.Clone(a.recent[max(0, len(a.recent)-len(tasks)):])
	}
	return err
}

func (a *producer) enqueue(ctx context.Context, tasks []tusk.NewTask) error {
	results, err := a.client.EnqueueMany(ctx, tasks)
	for _, r := range results {
		a.recent = append(a.recent, r.ID)
	}
	a.recent = a.recent[max(0, len(a.recent)-200):]
	return err
}

func (a *producer) options(queue string) *tusk.Options {
	return &tusk.Options{Queue: queue, Backoff: tusk.ConstantBackoff(100 * time.Millisecond)}
}

func (a *producer) task(kind string, o *tusk.Options) tusk.NewTask {
	if kind == doTx && !a.part.transacts() {
		kind = doEcho
	}
	return tusk.NewTask{Args: kindOf{load{Version: time.Now().UnixNano(), Part: a.random.IntN(200)}, kind}, Options: o}
}

func (a *producer) keyed(ctx context.Context) error {
	o := a.options(queueKeyed)
	o.Key, o.OnConflict = fmt.Sprint("k", a.random.IntN(producerKeys)),
		[]tusk.OnConflict{tusk.Skip, tusk.Replace}[a.random.IntN(2)]
	return a.enqueue(ctx, []tusk.NewTask{a.task([]string{doEcho, doFlaky, doSlow, doSlow}[a.random.IntN(4)], o)})
}

// rerun enqueues newer versions of sources, and sometimes an older one.
func (a *producer) rerun(ctx context.Context) error {
	var tasks []tusk.NewTask
	for range 1 + a.random.IntN(4) {
		o := a.options(queueKeyed)
		o.Key, o.OnConflict = fmt.Sprint("source", a.random.IntN(4)), tusk.Rerun
		task := a.task(doRerun, o)
		args := task.Args.(kindOf)
		if a.random.IntN(6) == 0 {
			args.Version -= int64(3 * time.Second)
		}
		args.Version -= args.Version % 1000 // engines store microseconds
		o.SourceTime = time.Unix(0, args.Version)
		tasks = append(tasks, tusk.NewTask{Args: args, Options: o})
	}
	return a.enqueue(ctx, tasks)
}

// serial enqueues tasks one after another into its own partitions, so that their order is known.
func (a *producer) serial(ctx context.Context) error {
	if a.crowded(queueSerial) {
		return nil
	}
	kinds := []string{doEcho, doEcho, doEffect, doFlaky, doSlow, doSteps}
	var tasks []tusk.NewTask
	for range 1 + a.random.IntN(3) {
		o := a.options(queueSerial)
		o.Partition = a.name + "-" + fmt.Sprint(a.random.IntN(3))
		tasks = append(tasks, a.task(kinds[a.random.IntN(len(kinds))], o))
	}
	return a.enqueue(ctx, tasks)
}

func (a *producer) limited(ctx context.Context) error {
	if a.crowded(queueLimited) {
		return nil
	}
	kinds := []string{doEcho, doSlow, doFlaky}
	tasks := make([]tusk.NewTask, 1+a.random.IntN(6))
	for i := range tasks {
		o := a.options(queueLimited)
		o.Tenant = fmt.Sprint("tenant", a.random.IntN(3))
		tasks[i] = a.task(kinds[a.random.IntN(len(kinds))], o)
	}
	return a.enqueue(ctx, tasks)
}

// graph enqueues a workflow of two layers and a final task.
func (a *producer) graph(ctx context.Context) error {
	w := tusk.NewWorkflow()
	var last []*tusk.Node
	for layer, kinds := range [][]string{{doEcho, doFlaky}, {doEcho, doEffect, doSlow}, {doEcho}} {
		var nodes []*tusk.Node
		for i, kind := range kinds {
			task := a.task(kind, a.options(queueOpen))
			n := w.Task(fmt.Sprintf("n%d-%d", layer, i), task.Args, task.Options)
			nodes = append(nodes, n.After(last...))
		}
		last = nodes
	}
	_, err := a.client.EnqueueWorkflow(ctx, w)
	return err
}

// inTx enqueues inside a transaction that also writes a row, and rolls some of these transactions back. The history
// tells how each ended.
func (a *producer) inTx(ctx context.Context) error {
	if len(a.dbs) == 0 {
		return a.keyed(ctx)
	}
	tx, err := a.dbs[a.random.IntN(len(a.dbs))].BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	task := a.task(doEcho, a.options(queueOpen))
	task.Options.ID = tusk.NewID()
	id := task.Options.ID
	// On SQLite, all others would wait for the object store.
	if a.part.largely() && a.part.Engine != "sqlite" && a.random.IntN(4) == 0 {
		task.Args = a.bulky(id)
	}
	call := a.log.call(event{Op: opEnqueue, Text: "tx", Items: []item{{ID: id, Kind: task.Args.Kind(), Queue: queueOpen}}})
	answer := event{Op: opEnqueued, Call: call, Items: []item{{ID: id, State: store.Added.String()}}}
	_, err = tx.ExecContext(ctx, a.part.insert("storm_ledger"), id.String(), "")
	if err == nil {
		_, err = a.client.EnqueueManyTx(ctx, tx, []tusk.NewTask{task})
	}
	switch {
	case err != nil, a.random.IntN(4) == 0:
		answer.Err = errNone
		err = errors.Join(err, tx.Rollback())
	default:
		err = tx.Commit()
		answer.Err = doubt(err)
	}
	a.log.write(answer)
	return err
}

// bySQL enqueues like a program in another language. The id is known before the commit.
func (a *producer) bySQL(ctx context.Context) error {
	tx, err := a.dbs[0].BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var items []item
	for range 1 + a.random.IntN(6) {
		one := item{Kind: []string{doEcho, doSlow, doTx}[a.random.IntN(3)],
			Queue: []string{queueOpen, queueLimited}[a.random.IntN(2)]}
		const enqueue = "select tusk.enqueue($1, $2::json, queue => $3, tenant => $4, tags => array['by sql'])"
		args := fmt.Sprintf(`{"v": %d, "p": %d}`, time.Now().UnixNano(), 1+a.random.IntN(100))
		var id string
		if err := tx.QueryRowContext(ctx, enqueue, one.Kind, args, one.Queue, fmt.Sprint("tenant", a.random.IntN(3))).Scan(
			&id); err != nil {
			return err
		}
		if one.ID, err = tusk.ParseID(id); err != nil {
			return err
		}
		one.State = store.Added.String()
		items = append(items, one)
	}
	call := a.log.call(event{Op: opEnqueue, Text: "sql", Items: items})
	err = tx.Commit()
	a.log.write(event{Op: opEnqueued, Call: call, Err: doubt(err), Items: items})
	return err
}

// fresh enqueues with a priority that changes every few seconds. The database may have lost a new priority that
// processes already know.
func (a *producer) fresh(ctx context.Context) error {
	o := a.options(queueOpen)
	o.Priority = -100 - int16(time.Now().Unix()/4%1000)
	return a.enqueue(ctx, []tusk.NewTask{a.task(doEcho, o)})
}

func (a *producer) cancel(ctx context.Context) error {
	if len(a.recent) == 0 || a.random.IntN(2) == 0 {
		return nil
	}
	_, err := a.client.Edit(ctx, []tusk.ID{a.recent[a.random.IntN(len(a.recent))]},
		tusk.Change{Op: tusk.OpCancel, Reason: "by the storm"})
	return err
}

func (a *producer) reprioritize(ctx context.Context) error {
	if len(a.free) == 0 {
		return nil
	}
	_, err := a.client.Edit(ctx, a.free[:min(20, len(a.free))],
		tusk.Change{Op: tusk.OpReprioritize, Priority: int16(a.random.IntN(3))})
	return err
}
