package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table is the contents of a view.
type table struct {
	columns []column
	rows    []row
	none    string // text to show if there are no rows
}

// column is a heading. The wide column takes the remaining width, or shrinks.
type column struct {
	head        string
	right, wide bool
}

// row is one line, and the place that enter opens.
type row struct {
	key   string
	cells []string
	opens place
}

// table returns the table of the current place.
func (s *screen) table() table {
	if !s.loaded {
		return table{none: "looking …"}
	}
	p := s.at()
	switch p.view {
	case kindsView:
		return s.kinds()
	case workersView:
		return s.workers()
	case errorsView:
		return s.errors()
	case runningView:
		return s.running("")
	case tasksView:
		if p.worker != "" {
			return s.running(p.worker)
		}
		return s.tasks()
	case taskView:
		return s.task()
	}
	return s.queues()
}

func (s *screen) queues() table {
	t := table{none: "no queue has an unfinished task or a setting",
		columns: []column{{head: "QUEUE", wide: true}, {head: "STATE"},
			number("AVAIL"), number("RUN"), number("RETRY"), number("SCHED"), number("PEND"), number("OLDEST"), number("IN/M"),
			number("OUT/M"), number("FAIL/M")}}
	ended := perQueue(s.data.Stats, s.data.At)
	for _, q := range s.data.Queues {
		state := ""
		if q.Paused {
			state = "paused"
		}
		in := "-"
		if rate, known := s.arrivals[q.Name]; known {
			in = count(int64(rate + 0.5))
		}
		n := q.Tasks
		t.rows = append(t.rows, row{q.Name, []string{q.Name, state, count(n["available"]), count(n["running"]),
			count(n["retryable"]), count(n["scheduled"]), count(n["pending"]), s.seconds(q.Oldest), in,
			count(ended[q.Name].Ran.Count), count(ended[q.Name].Failed)}, place{view: tasksView, filter: Filter{Queue: q.Name}}})
	}
	return t
}

// perQueue sums up the last full minute by queue. Quantiles cannot be added, so they are left out.
func perQueue(stats []Stat, now time.Time) map[string]Stat {
	sums := map[string]Stat{}
	for _, s := range stats {
		if s.At.Equal(statsFrom(now)) {
			sum := sums[s.Queue]
			sum.Ran.Count += s.Ran.Count
			sum.Failed += s.Failed
			sums[s.Queue] = sum
		}
	}
	return sums
}

func (s *screen) kinds() table {
	t := table{none: "no attempt has ended in the last two minutes",
		columns: []column{{head: "KIND", wide: true}, {head: "QUEUE"},
			number("OUT/M"), number("FAIL/M"), number("WAIT50"), number("WAIT95"), number("RUN50"), number("RUN95")}}
	last, seen := statsFrom(s.data.At), map[string]Stat{}
	for _, stat := range s.data.Stats {
		key := stat.Kind + " " + stat.Queue
		if stat.At.Equal(last) {
			seen[key] = stat
		} else if _, known := seen[key]; !known { // of the current minute, which is not over
			seen[key] = Stat{Kind: stat.Kind, Queue: stat.Queue}
		}
	}
	for key, k := range seen {
		t.rows = append(t.rows, row{key, []string{k.Kind, k.Queue, count(k.Ran.Count), count(k.Failed),
			s.seconds(k.Waited.P50), s.seconds(k.Waited.P95), s.seconds(k.Ran.P50), s.seconds(k.Ran.P95)},
			place{view: tasksView, filter: Filter{Queue: k.Queue, Kind: k.Kind}}})
	}
	slices.SortFunc(t.rows, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	return t
}

func (s *screen) workers() table {
	t := table{none: "no worker is alive", columns: []column{{head: "WORKER"}, number("RUN"), number("OF"), {head: "BEAT"},
		{head: "QUEUES"}, {head: "RUNS", wide: true}}}
	for _, w := range s.data.Workers {
		t.rows = append(t.rows, row{w.ID, []string{w.Host + ":" + strconv.Itoa(w.PID), strconv.Itoa(w.Running),
			strconv.Itoa(w.Concurrency), s.ago(w.BeatAt), strings.Join(w.Queues, ","), runs(s.data.Tasks, w.ID)},
			place{view: tasksView, worker: w.ID}})
	}
	return t
}

// runs describes what a worker is running, by kind.
func runs(tasks []Task, worker string) string {
	kinds := map[string]int{}
	var names []string
	for _, t := range tasks {
		if t.Worker == worker {
			if kinds[t.Kind]++; kinds[t.Kind] == 1 {
				names = append(names, t.Kind)
			}
		}
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s×%d", name, kinds[name])
	}
	return strings.Join(names, " ")
}

func (s *screen) errors() table {
	t := table{none: "no attempt has failed in the last 24 hours",
		columns: []column{{head: "LAST"}, {head: "QUEUE"}, {head: "KIND"},
			number("COUNT"), number("WAITING"), number("DEAD"), {head: "ERROR", wide: true}}}
	for _, g := range s.data.Errors {
		t.rows = append(t.rows, row{g.Fingerprint + " " + g.Queue + " " + g.Kind,
			[]string{s.ago(g.Last), g.Queue, g.Kind, count(g.Count), count(g.Waiting), count(g.Dead), g.Sample},
			place{view: tasksView, filter: Filter{Queue: g.Queue, Kind: g.Kind, Fingerprint: g.Fingerprint}}})
	}
	return t
}

// running lists running tasks: all of them, or one worker's.
func (s *screen) running(worker string) table {
	t := table{none: "nothing runs", columns: []column{{head: "KIND"}, {head: "QUEUE"}, {head: "ATTEMPT"}, number("FOR"),
		{head: "WORKER"}, {head: "TASK", wide: true}}}
	names := map[string]string{}
	for _, w := range s.data.Workers {
		names[w.ID] = w.Host + ":" + strconv.Itoa(w.PID)
	}
	for _, task := range s.data.Tasks {
		if worker == "" || task.Worker == worker {
			t.rows = append(t.rows, row{task.ID, []string{task.Kind, task.Queue, attempts(task), s.since(task.ClaimedAt),
				cmp.Or(names[task.Worker], task.Worker), task.ID}, place{view: taskView, task: task.ID}})
		}
	}
	return t
}

func (s *screen) tasks() table {
	t := table{none: "no task matches", columns: []column{{head: "STATE"}, {head: "KIND"}, {head: "ATTEMPT"},
		{head: "ENQUEUED"},
		{head: "REASON"}, {head: "TASK", wide: true}}}
	for _, task := range s.data.Tasks {
		t.rows = append(t.rows, row{task.ID, []string{task.State, task.Kind, attempts(task), s.ago(task.EnqueuedAt),
			task.Reason, task.ID}, place{view: taskView, task: task.ID}})
	}
	return t
}

func attempts(t Task) string { return fmt.Sprintf("%d of %d", t.Attempt, t.MaxAttempts) }

// task lists what is known about a task. The reasons why it does not run come first.
func (s *screen) task() table {
	t := table{none: "looking …", columns: []column{{}, {wide: true}}}
	d := s.data.Task
	if d == nil {
		return t
	}
	add := func(name, text string) {
		if text != "" {
			t.rows = append(t.rows, row{key: strconv.Itoa(len(t.rows)), cells: []string{name, text}})
		}
	}
	add("task", d.ID)
	add("state", strings.TrimSpace(d.State+" "+d.Reason))
	for _, r := range d.Reasons {
		add("why", r.Code+": "+r.Text)
		add("change it with", r.Fix)
	}
	add("kind", d.Kind)
	add("queue", d.Queue)
	add("tenant", d.Tenant)
	add("attempt", attempts(d.Task))
	add("priority", strconv.Itoa(int(d.Priority)))
	if d.Progress != nil {
		add("progress", fmt.Sprintf("%.0f %% %s", d.Progress.Percent, d.Progress.Message))
	}
	add("enqueued", s.ago(d.EnqueuedAt))
	add("due", s.ago(d.RunAt))
	if d.Changed != nil {
		add("changed", d.Changed.How+" "+s.ago(d.Changed.At))
	}
	add("claimed", s.ago(d.ClaimedAt))
	add("finished", s.ago(d.FinishedAt))
	add("worker", d.Worker)
	for i := range d.Attempts {
		a := d.Attempts[len(d.Attempts)-1-i]
		add("attempt "+strconv.Itoa(a.Number),
			strings.TrimSpace(fmt.Sprintf("%s %s, after %s %s", a.Outcome, s.ago(a.EndedAt),
				s.text.Words(a.EndedAt.Sub(a.StartedAt)), a.Error)))
	}
	return t
}

func number(head string) column { return column{head: head, right: true} }

// count formats a number with at most five characters.
func count(n int64) string {
	switch {
	case n < 100_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		return strconv.FormatInt(n/1000, 10) + "k"
	case n < 10_000_000_000:
		return strconv.FormatInt(n/1_000_000, 10) + "M"
	}
	return strconv.FormatInt(n/1_000_000_000, 10) + "G"
}

func (s *screen) seconds(n float64) string {
	return s.text.Words(time.Duration(n * float64(time.Second)))
}

// since formats how long ago a time is, without the word "ago".
func (s *screen) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return s.text.Words(max(s.data.At.Sub(t), 0))
}

func (s *screen) ago(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(s.data.At):
		return "in " + s.text.Words(t.Sub(s.data.At))
	}
	return s.since(t) + " ago"
}
