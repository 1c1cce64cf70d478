package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk"
)

// Scenarios that compare a queue with limits to one without.
const (
	benchTenants = "tenants"
	benchFair    = "fair"
	benchBeside  = "beside"
	benchPinned  = "tenants-held"

	benchHeavyKind  = "bench.heavy"
	benchManyTenant = 1000
	benchLights     = 50

	benchRest = 40 * time.Second // in which the engine's housekeeping removes what it can
)

// limitScenarios are these scenarios, with the bar that each has to reach.
var limitScenarios = map[string]struct {
	bar    float64
	passes func(report *barReport) bool
	run    func(r *benchRun, ctx context.Context, report *barReport) error
}{
	benchTenants: {0.7, (*barReport).ratioReached, (*benchRun).tenantsScenario},
	benchFair:    {250, (*barReport).withinBar, (*benchRun).fairScenario},
	benchBeside:  {0.9, (*barReport).ratioReached, (*benchRun).besideScenario},
	benchPinned:  {0.9, (*barReport).cleanAndFast, (*benchRun).pinnedScenario},
}

// barReport compares two measurements.
type barReport struct {
	Engine   string `json:"engine" col:"ENGINE"`
	Scenario string `json:"scenario" col:"SCENARIO"`
	Tasks    int    `json:"tasks" col:"TASKS"`
	Batch    int    `json:"batch" col:"BATCH"`
	Workers  int    `json:"workers" col:"WORKERS"`
	Unit     string `json:"unit" col:"UNIT"`
	Without  figure `json:"without" col:"WITHOUT"`
	With     figure `json:"with" col:"WITH"`
	// The CPU time of this process and, if known, of the database server.
	CPUWithout figure `json:"cpu_us_per_task_without" col:"CPU_US_PER_TASK_WITHOUT"`
	CPUWith    figure `json:"cpu_us_per_task_with" col:"CPU_US_PER_TASK_WITH"`
	// DeadRows is how many dead rows the measurement with limits left in the tables of tasks, after housekeeping.
	DeadRows figure `json:"dead_rows" col:"DEAD_ROWS"`
	Ratio    figure `json:"ratio" col:"RATIO"`
	Bar      figure `json:"bar" col:"BAR"`
	Verdict  string `json:"verdict" col:"VERDICT"`
}

func (r *barReport) ratioReached() bool { return r.Ratio >= r.Bar }
func (r *barReport) withinBar() bool    { return r.With <= r.Bar }

// cleanAndFast allows one dead row per hundred tasks, for chores.
func (r *barReport) cleanAndFast() bool {
	return r.ratioReached() && !(r.DeadRows > figure(r.Tasks)/100)
}

// bar measures a scenario with limits.
func (r *benchRun) bar(ctx context.Context) (*barReport, error) {
	b := r.flags
	s := limitScenarios[b.scenario]
	report := &barReport{Scenario: b.scenario, Tasks: b.tasks, Batch: b.batch, Workers: b.workers, Unit: "tasks_per_s",
		Bar: figure(s.bar), Verdict: "MISS", CPUWithout: unknown, CPUWith: unknown, DeadRows: unknown}
	if err := s.run(r, ctx, report); err != nil {
		return nil, err
	}
	report.Ratio = report.With / report.Without
	if s.passes(report) {
		report.Verdict = "PASS"
	}
	return report, nil
}

// speed measures how fast tasks are stored and run at the same time, and their CPU cost.
func (r *benchRun) speed(ctx context.Context) (perSecond, cpu figure, err error) {
	costs := benchReport{Tasks: r.flags.tasks, CPU: unknown}
	before := processCPU()
	took, err := r.produceConsume(ctx, &costs)
	if spent := processCPU() - before; spent > 0 {
		cpu = figure(spent.Microseconds()) / figure(r.flags.tasks+r.warmUp())
	}
	if costs.CPU.known() && !r.embedded {
		cpu += costs.CPU
	}
	return figure(float64(r.flags.tasks) / took.Seconds()), cpu, err
}

// limited sets limits on the run's queue while do runs.
func (r *benchRun) limited(ctx context.Context, l tusk.Limits, do func() error) error {
	if err := r.client.SetLimits(ctx, r.flags.queue, l); err != nil {
		return err
	}
	err := do()
	return errors.Join(err, r.client.RemoveLimits(context.WithoutCancel(ctx), r.flags.queue))
}

// tenantsScenario compares a queue with very many tenants, each with limits, to the same queue without limits.
func (r *benchRun) tenantsScenario(ctx context.Context, report *barReport) (err error) {
	r.tenants = benchManyTenant
	if report.Without, report.CPUWithout, err = r.speed(ctx); err != nil {
		return err
	}
	return r.limited(ctx, tusk.Limits{PerTenant: 10}, func() error {
		report.With, report.CPUWith, err = r.speed(ctx)
		return err
	})
}

// pinnedScenario compares the speed of a queue with limits while a transaction is held open, which keeps the engine
// from cleaning up, to its speed without such a transaction. The first run has small indexes and is faster for that
// reason alone, so it is not counted.
func (r *benchRun) pinnedScenario(ctx context.Context, report *barReport) error {
	r.tenants = benchManyTenant
	return r.limited(ctx, tusk.Limits{PerTenant: 10}, func() (err error) {
		for range 2 {
			if report.Without, report.CPUWithout, err = r.speed(ctx); err != nil {
				return err
			}
		}
		before, err := r.deadRows(ctx)
		if err != nil {
			return err
		}
		release, err := hold(ctx, r.where)
		if err != nil {
			return err
		}
		defer release()
		if report.With, report.CPUWith, err = r.speed(ctx); err != nil {
			return err
		}
		after, err := r.deadRows(ctx)
		report.DeadRows = max(0, after-before)
		return err
	})
}

// deadRows returns how many dead rows are left after the engine's housekeeping, which the leader does, if the engine
// can tell.
func (r *benchRun) deadRows(ctx context.Context) (figure, error) {
	if m := r.meter(ctx); m == nil || m.DeadRows < 0 {
		return unknown, nil
	}
	stop, err := r.work(ctx, 1, 1)
	if err != nil {
		return unknown, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(benchRest):
	}
	if err := stop(); err != nil {
		return unknown, err
	}
	if m := r.meter(ctx); m != nil {
		return figure(m.DeadRows), nil
	}
	return unknown, nil
}

// fairScenario compares how long the tasks of light tenants wait next to a heavy tenant with how long they wait
// alone.
func (r *benchRun) fairScenario(ctx context.Context, report *barReport) error {
	report.Unit = "p99_ms"
	lights := *r.flags
	lights.tasks, lights.scenario = 10*benchLights, benchProduceConsume
	heavy := r.flags.tasks
	r.flags, r.tenants = &lights, benchLights
	return r.limited(ctx, tusk.Limits{}, func() (err error) {
		if report.Without, err = r.wait(ctx, 0); err == nil {
			report.With, err = r.wait(ctx, heavy)
		}
		return err
	})
}

// wait returns the 99th percentile of the time that tasks of light tenants wait next to a heavy tenant.
func (r *benchRun) wait(ctx context.Context, heavy int) (figure, error) {
	if err := r.enqueueHeavy(ctx, r.flags.queue, "heavy", heavy); err != nil {
		return unknown, err
	}
	r.heavy.Store(0)
	stop, err := r.work(ctx, r.flags.workers, r.flags.batch)
	if err != nil {
		return unknown, err
	}
	r.reset()
	if err := awaitCount(ctx, &r.heavy, min(heavy, max(1, heavy/20))); err != nil {
		return unknown, errors.Join(err, stop())
	}
	if err := r.produce(ctx, r.flags.tasks, true); err != nil {
		return unknown, errors.Join(err, stop())
	}
	err = r.awaitAll(ctx, r.flags.tasks)
	return quantile(r.starts.list(), 99), errors.Join(err, stop())
}

// besideScenario compares the speed of a queue without limits, next to another queue with limits and very many tasks
// that wait for their turn, with its speed alone.
func (r *benchRun) besideScenario(ctx context.Context, report *barReport) (err error) {
	if report.Without, report.CPUWithout, err = r.speed(ctx); err != nil {
		return err
	}
	other := &benchRun{client: r.client, base: r.base, pad: r.pad, tenants: benchLights}
	flags := *r.flags
	flags.queue += ".limited"
	other.flags = &flags
	if err := other.ready(ctx); err != nil {
		return err
	}
	return other.limited(ctx, tusk.Limits{PerTenant: 1}, func() error {
		if err := other.enqueueHeavy(ctx, flags.queue, "", min(r.flags.tasks, 10_000)); err != nil {
			return err
		}
		report.With, report.CPUWith, err = r.speed(ctx)
		return errors.Join(err, other.clear(ctx))
	})
}

// enqueueHeavy stores tasks of one tenant, or of many tenants if tenant is empty.
func (r *benchRun) enqueueHeavy(ctx context.Context, queue, tenant string, n int) error {
	const batch = 1000
	for from := 0; from < n; from += batch {
		tasks := make([]tusk.NewTask, min(batch, n-from))
		for i := range tasks {
			o := &tusk.Options{Queue: queue, Tenant: tenant}
			if tenant == "" {
				o.Tenant = fmt.Sprint("t", (from+i)%r.tenants)
			}
			tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: benchHeavyKind, JSON: []byte(`{}`)}, Options: o}
		}
		if _, err := r.client.EnqueueMany(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}

// awaitCount waits until a counter has reached n.
func awaitCount(ctx context.Context, count *atomic.Int64, n int) error {
	began := time.Now()
	for count.Load() < int64(n) {
		if time.Since(began) > benchPatience {
			return fmt.Errorf("bench: %d of %d tasks in %v", count.Load(), n, benchPatience)
		}
		if !sleep(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}
