package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// budget is how long Compare generates new histories. The flag -rapid.checks, if set, gives their number instead.
const budget = 20 * time.Second

// Compare applies the same generated histories to an engine and to the store in memory, and fails at the first answer
// that differs. It ignores differences where the contract leaves the engine a choice.
//
// All histories share one database and use distinct names, until one fails. After that, each attempt to shorten the
// failing history gets a new database.
func Compare(t *testing.T, e Engine) {
	var both *pair
	counted := false
	flag.Visit(func(f *flag.Flag) { counted = counted || f.Name == "rapid.checks" })
	end := time.Now().Add(budget)
	failed := false
	rapid.Check(t, func(rt *rapid.T) {
		if !counted && !failed && time.Now().After(end) {
			return
		}
		if both == nil {
			both = &pair{model: memory.New(), engine: e.New(t)(), spread: e.Spread}
		}
		h := newHistory(rt, both)
		whole := false
		defer func() {
			if !whole { // the two databases differ now: no other history may use them
				both, failed = nil, true
			}
		}()
		rt.Repeat(h.steps())
		h.settle()
		whole = true
	})
}

// pair is two databases that have gone through the same histories.
type pair struct {
	model, engine store.Store
	spread        bool // as in Engine
	histories     int
}

// twins are a value from the model and the corresponding one from the engine.
type twins[V any] struct{ model, engine V }

func (t twins[V]) of(engine bool) V {
	if engine {
		return t.engine
	}
	return t.model
}

// ask makes a call to both stores and fails unless they return the same kind of error.
func ask[V any](
	h *history, what string, question func(s store.Store, engine bool) (V, error),
) (answer twins[V], err error) {
	h.Helper()
	var theirs error
	answer.model, err = question(h.model, false)
	answer.engine, theirs = question(h.engine, true)
	if classOf(err) != classOf(theirs) {
		h.Logf("%s: in memory: %v; the engine: %v", what, err, theirs)
		h.Fatalf("%s: the errors differ", what)
	}
	return answer, err
}

func classOf(err error) string {
	for _, class := range []error{store.ErrWorkerDead, store.ErrNotLeader, store.ErrConflict} {
		if errors.Is(err, class) {
			return class.Error()
		}
	}
	return fmt.Sprint(err)
}

// same fails unless two answers have the same lines. It logs the difference separately, because rapid shortens a
// history only as long as it fails with the same message.
func (h *history) same(what string, model, engine []string) {
	h.Helper()
	if slices.Equal(model, engine) {
		return
	}
	left := slices.Clone(engine)
	var b strings.Builder
	for _, line := range model {
		if i := slices.Index(left, line); i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		fmt.Fprintf(&b, "\n in memory: %s", line)
	}
	for _, line := range left {
		fmt.Fprintf(&b, "\nthe engine: %s", line)
	}
	if len(model) < 10 || b.Len() == 0 {
		fmt.Fprintf(&b, "\nin full\n in memory: %q\nthe engine: %q", model, engine)
	}
	h.Logf("%s differ:%s", what, b.String())
	h.Fatalf("%s differ", what)
}

// agree compares everything that can be read.
func (h *history) agree() {
	h.Helper()
	tasks, _ := ask(h, "list", func(s store.Store, _ bool) ([]store.Task, error) {
		return s.List(h.ctx, store.Filter{Queues: h.queues, Limit: store.MaxPage, Detail: true})
	})
	h.same("tasks", h.lines(tasks.model), h.lines(tasks.engine))
	if len(h.tasks) > 0 {
		named, _ := ask(h, "list by ids", func(s store.Store, _ bool) ([]store.Task, error) {
			return s.List(h.ctx, store.Filter{IDs: h.tasks, Limit: store.MaxPage, Detail: true})
		})
		h.same("tasks by their ids", h.lines(named.model), h.lines(named.engine))
	}
	flow, _ := ask(h, "list a workflow", func(s store.Store, _ bool) ([]store.Task, error) {
		return s.List(h.ctx, store.Filter{Workflow: h.workflow, Limit: store.MaxPage})
	})
	h.same("tasks of a workflow", h.lines(flow.model), h.lines(flow.engine))
	counts, _ := ask(h, "count", func(s store.Store, _ bool) ([]string, error) { return countLines(h.ctx, s) })
	h.same("counts", counts.model, counts.engine)
	workers, _ := ask(h, "workers", func(s store.Store, _ bool) ([]string, error) { return h.workerLines(s) })
	h.same("workers", workers.model, workers.engine)
	records, _ := ask(h, "records", func(s store.Store, engine bool) ([]string, error) {
		all, err := s.Records(h.ctx, store.RecordFilter{Kind: h.kind})
		lines := make([]string, len(all))
		for i, r := range all {
			known := h.versions[r.Name].of(engine) == r.Version
			lines[i] = fmt.Sprintf("%s %s, version as it was returned: %v", r.Name, r.Body, known)
		}
		return lines, err
	})
	h.same("records", records.model, records.engine)
}

// agreeInTotal compares sums.
func (h *history) agreeInTotal() {
	h.Helper()
	for _, q := range h.queues {
		stats, _ := ask(h, "stats", func(s store.Store, _ bool) ([]string, error) { return statLines(h.ctx, s, q) })
		h.same("stats", stats.model, stats.engine)
		groups, _ := ask(h, "errors", func(s store.Store, _ bool) ([]string, error) { return groupLines(h.ctx, s, q) })
		h.same("error groups", groups.model, groups.engine)
	}
}

func countLines(ctx context.Context, s store.Store) (lines []string, err error) {
	counts, err := s.Count(ctx)
	for _, c := range counts {
		if c.Tasks != 0 {
			lines = append(lines, fmt.Sprintf("%s %v: %d", c.Queue, c.State, c.Tasks))
		}
	}
	slices.Sort(lines)
	return lines, err
}

func (h *history) workerLines(s store.Store) (lines []string, err error) {
	workers, err := s.Workers(h.ctx)
	for _, w := range workers {
		lines = append(lines, fmt.Sprintf("%s %s %d holds %d", h.name(w.ID), w.Host, w.PID, w.Running))
	}
	slices.Sort(lines)
	return lines, err
}

// statLines sums over the slices of time, because a minute may end between the calls to the two stores.
func statLines(ctx context.Context, s store.Store, queue string) (lines []string, err error) {
	stats, err := s.Stats(ctx, store.StatsFilter{Bucket: time.Hour, Queue: queue})
	sums := map[string]*[6]int64{}
	for _, t := range stats {
		if sums[t.Kind] == nil {
			sums[t.Kind] = &[6]int64{}
		}
		for i, n := range [6]int64{t.Completed, t.Failed, t.Discarded, t.Cancelled, t.Waited.Count, t.Ran.Count} {
			sums[t.Kind][i] += n
		}
	}
	for kind, sum := range sums {
		lines = append(lines, fmt.Sprintf("%s %s: completed, failed, discarded, cancelled, waited, ran: %d", queue,
			kind, *sum))
	}
	slices.Sort(lines)
	return lines, err
}

func groupLines(ctx context.Context, s store.Store, queue string) (lines []string, err error) {
	groups, err := s.Errors(ctx, store.ErrorFilter{Queue: queue})
	for _, g := range groups {
		lines = append(lines, fmt.Sprintf("%s %s %s: %d, waiting %d, dead %d", g.Queue, g.Kind, g.Fingerprint, g.Count,
			g.Waiting, g.Dead))
	}
	slices.Sort(lines)
	return lines, err
}

// lines describes tasks by everything that the contract determines.
func (h *history) lines(tasks []store.Task) []string {
	h.Helper()
	lines := make([]string, len(tasks))
	for i := range tasks {
		lines[i] = h.line(&tasks[i])
	}
	return lines
}

func (h *history) line(t *store.Task) string {
	h.Helper()
	due := t.RunAt.Sub(t.EnqueuedAt).Round(time.Hour)
	if t.State == store.Pending {
		due = 0 // not decided yet
	}
	h.inOrder(t)
	return fmt.Sprintf(
		"%s: %s %s %q %d %s %q key %q %q: %v, attempt %d, %d crashes, reason %q, due after %v, expires %v, claimed %v, "+
			"finished %v, %s of %s, of %s, turn %v %q%s", h.name(t.ID), t.Kind, t.Queue, t.Tenant, t.Priority, t.Args, t.Tags,
		t.Key, t.Settings, t.State, t.Attempt, t.Crashes, t.Reason,
		due, !t.ExpiresAt.IsZero(), !t.ClaimedAt.IsZero(), !t.FinishedAt.IsZero(), h.name(t.Lease), h.name(t.Worker),
		h.name(t.Workflow), t.Turn, t.Partition,
		h.detailLine(t.Detail))
}

func (h *history) detailLine(d *store.Detail) string {
	if d == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, ", output %s, stop %v", d.Output, d.CancelRequested)
	if d.Progress != nil {
		fmt.Fprintf(&b, ", %v%% %s", d.Progress.Percent, d.Progress.Message)
	}
	for _, l := range d.Logs {
		fmt.Fprintf(&b, ", logged %v %d %s %s", l.At.UnixMilli(), l.Attempt, l.Level, l.Text)
	}
	for _, n := range d.Needs {
		fmt.Fprintf(&b, ", needs %s, on failure %d: %v", h.name(n.Task), n.OnFailure, n.State)
	}
	if c := d.Changed; c != nil {
		fmt.Fprintf(&b, ", %s, at a time %v", c.How, !c.At.IsZero())
	}
	for i, a := range d.Attempts {
		if a.Error == "" && i < len(d.Attempts)-1 {
			continue // an engine may keep it or not
		}
		fmt.Fprintf(&b, ", attempt %d by %s: %v %q %q %q", a.Number, h.name(a.Worker), a.Outcome, a.Error, a.Trace,
			a.Fingerprint)
	}
	return b.String()
}

// inOrder fails if something happened before its cause.
func (h *history) inOrder(t *store.Task) {
	h.Helper()
	const rounding = 2 * time.Millisecond
	before := func(a, b time.Time) bool { return !a.IsZero() && !b.IsZero() && a.Before(b.Add(-rounding)) }
	if t.EnqueuedAt.IsZero() || t.RunAt.IsZero() && t.State != store.Pending ||
		before(t.ClaimedAt, t.EnqueuedAt) || before(t.FinishedAt, t.EnqueuedAt) || t.State.Finished() &&
		before(t.FinishedAt, t.ClaimedAt) {
		h.Fatalf("instants of %s out of order", h.name(t.ID))
	}
}

func byTaskID(a, b store.Task) int { return slices.Compare(a.ID[:], b.ID[:]) }
