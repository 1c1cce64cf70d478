package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// List implements store.Reader. If no single statement finds the tasks without reading many
// others, List searches for them.
func (s *Store) List(ctx context.Context, f store.Filter) (tasks []store.Task, err error) {
	if listed(&f) {
		return s.list(ctx, f)
	}
	f.Limit = pageOf(f.Limit)
	for limit := f.Limit; ; {
		page, last, err := s.Search(ctx, f, math.MaxInt)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		tasks = append(tasks, page...)
		if f.Before, f.Limit = last, limit-len(tasks); last.IsZero() || f.Limit == 0 {
			return tasks, nil
		}
	}
}

// pageOf returns the maximum number of tasks of a page for the limit of a filter.
func pageOf(limit int) int {
	if limit <= 0 {
		limit = 100
	}
	return min(limit, store.MaxPage)
}

// list is List by one statement.
func (s *Store) list(ctx context.Context, f store.Filter) ([]store.Task, error) {
	where, args := s.where(&f)
	var tasks []store.Task
	list := step{text: s.listText(&f, where, pageOf(f.Limit)), args: args, row: func(raw [][]byte) error {
		var t store.Task
		readTask(&t, raw)
		t.Lease, t.Queue = idOf(raw[17]), string(raw[19])
		t.State, t.Reason, t.FinishedAt = stateOf(raw[20]), string(raw[21]), timeOf(raw[22])
		if worker := idOf(raw[18]); t.State == store.Running {
			t.Worker = worker
		} else if worker != (store.ID{}) && f.Detail {
			t.Detail = completedBy(&t, worker)
		}
		tasks = append(tasks, t)
		return nil
	}}
	steps := []step{list}
	if len(f.IDs) > 0 {
		steps = s.pinned(list)
	}
	err := s.read(ctx, steps)
	if err == nil && f.Detail && len(tasks) > 0 {
		err = s.addDetails(ctx, tasks, f.NoStates)
	}
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return tasks, nil
}

// places are the views of tasks, with the states that tasks have there.
var places = []struct {
	view   string
	states []store.State
}{
	{"waiting_tasks", []store.State{store.Scheduled, store.Pending, store.Retryable}},
	// completed tasks are here if more than the completion has to be kept
	{"dead_tasks", []store.State{store.Completed, store.Cancelled, store.Discarded}},
	{"running_tasks", []store.State{store.Running}},
	{"available_tasks", []store.State{store.Available}},
	{"completed_tasks", []store.State{store.Completed}},
}

// manyIDs is the number of ids from which several tasks may have been completed by one flush.
const manyIDs = 16

// listText returns SQL that reads the newest tasks of each place that may have
// tasks of the filter's states, and takes the newest of these. Tasks that the
// filter names are read one by one.
func (s *Store) listText(f *store.Filter, where string, limit int) string {
	end := "\norder by id desc\nlimit " + strconv.Itoa(limit)
	list := strings.TrimSpace(s.sql["list"])
	if f.NoArgs {
		list = strings.Replace(list, "s.args", "null::bytea as args", 1)
	}
	if len(f.IDs) > 0 {
		of := "list_of_few"
		if len(f.IDs) >= manyIDs {
			of = "list_of_many"
		}
		return list + " " + s.sql[of] + " s" + where + end
	}
	var parts []string
	for _, p := range places {
		if len(f.States) == 0 || slices.ContainsFunc(f.States, func(state store.State) bool {
			return slices.Contains(p.states, state)
		}) {
			parts = append(parts, "("+list+" "+s.program+"."+p.view+" s"+where+end+")")
		}
	}
	return "select * from (\n" + strings.Join(parts, "\nunion all\n") + ") s" + end
}

// where returns the conditions of a filter as a clause, and the arguments.
func (s *Store) where(f *store.Filter) (text string, args []any) {
	var c conditions
	if len(f.IDs) > 0 {
		c.arg(uuidsOf(f.IDs))
	}
	c.of(f)
	return c.text(), c.args
}

// conditions are the conditions of one part of a statement.
type conditions struct {
	args []any // of the whole statement
	list []string
}

// text returns the where clause.
func (c *conditions) text() string {
	if len(c.list) == 0 {
		return ""
	}
	return "\nwhere " + strings.Join(c.list, "\n  and ")
}

// add appends a condition, in which ? stands for the argument.
func (c *conditions) add(condition string, arg any) {
	c.list = append(c.list, strings.ReplaceAll(condition, "?", c.arg(arg)))
}

// arg adds an argument to the statement, and returns its name.
func (c *conditions) arg(arg any) string {
	c.args = append(c.args, arg)
	return "$" + strconv.Itoa(len(c.args))
}

// of appends the conditions of a filter.
func (c *conditions) of(f *store.Filter) {
	if len(f.Queues) > 0 {
		c.add("s.lane >> 16 = any(?)", hashesOf(f.Queues))
	}
	if len(f.Kinds) > 0 {
		c.add("s.kind = any(?)", f.Kinds)
	}
	if len(f.Tenants) > 0 {
		c.add("coalesce(s.tenant, '') = any(?)", f.Tenants)
	}
	if len(f.States) > 0 {
		c.add("s.state = any(?)", numbersOf(f.States))
	}
	if len(f.Tags) > 0 {
		c.add("s.tags operator(pg_catalog.@>) ?::text[]", f.Tags)
	}
	if f.Key != "" {
		c.add("s.key = ?", f.Key)
	}
	if !f.Workflow.IsZero() {
		c.add("s.workflow = ?", [16]byte(f.Workflow))
	}
	if f.Fingerprint != "" {
		c.add("s.failure = ?", f.Fingerprint)
	}
	if !f.From.IsZero() {
		c.add("s.enqueued_at >= ?", f.From)
	}
	if !f.Until.IsZero() {
		c.add("s.enqueued_at < ?", f.Until)
	}
	if !f.Before.IsZero() {
		c.add("s.id < ?", [16]byte(f.Before))
	}
}

func hashesOf(queues []string) []int64 {
	hashes := make([]int64, len(queues))
	for i, queue := range queues {
		hashes[i] = hashOf(queue)
	}
	return hashes
}

func numbersOf(states []store.State) []int16 {
	numbers := make([]int16, len(states))
	for i, state := range states {
		numbers[i] = int16(state)
	}
	return numbers
}

// addDetails fills in the details of tasks. If a task already has details, they are its completion, the latest of
// its attempts.
func (s *Store) addDetails(ctx context.Context, tasks []store.Task, noStates bool) error {
	page := sync.OnceValue(func() map[store.ID]*store.Task { // most pages have no details to read
		byID := make(map[store.ID]*store.Task, len(tasks))
		for i := range tasks {
			byID[tasks[i].ID] = &tasks[i]
		}
		return byID
	})
	ids, completed := make(uuids, len(tasks)), make([]*store.Detail, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Detail == nil {
			t.Detail = &store.Detail{}
		} else {
			completed = append(completed, t.Detail)
		}
		ids[i] = t.ID
	}
	if len(ids) == 0 {
		return nil
	}
	first, last := ids[0], ids[0]
	for _, id := range ids {
		if bytes.Compare(id[:], first[:]) < 0 {
			first = id
		}
		if bytes.Compare(id[:], last[:]) > 0 {
			last = id
		}
	}
	row := func(raw [][]byte) error { return readDetail(page(), raw) }
	if err := s.query(ctx, "details", row, ids, first, last, noStates); err != nil {
		return err
	}
	for _, d := range completed {
		if last := d.Attempts[0]; len(d.Attempts) > 1 {
			d.Attempts = append(d.Attempts[1:], last)
		}
	}
	return nil
}

// completedBy returns the details of a completed task that its completion provides.
func completedBy(t *store.Task, worker store.ID) *store.Detail {
	var d struct { // one allocation for both
		store.Detail
		last [1]store.Attempt
	}
	d.last[0] = store.Attempt{Number: t.Attempt, Worker: worker, StartedAt: t.ClaimedAt, EndedAt: t.FinishedAt,
		Outcome: store.Completed}
	d.Attempts = d.last[:]
	return &d.Detail
}

// readDetail reads a row of the statement details into its task of the page. The first column says what the row
// holds.
func readDetail(page map[store.ID]*store.Task, raw [][]byte) error {
	d := page[idOf(raw[1])].Detail
	switch int32Of(raw[0]) {
	case 1:
		d.Attempts = append(d.Attempts, store.Attempt{
			Number: int(int32Of(raw[3])), Worker: idOf(raw[5]), StartedAt: timeOf(raw[6]), EndedAt: timeOf(raw[7]),
			Outcome: stateOf(raw[4]), Error: string(raw[8]), Trace: string(raw[9]), Fingerprint: string(raw[10]),
		})
	case 2:
		d.Output = bytesOf(raw[12])
		if raw[16] != nil {
			d.Changed = &store.LastChange{At: timeOf(raw[16]), How: store.How(raw[17])}
		}
		if raw[11] != nil {
			if err := json.Unmarshal(jsonb(raw[11]), &d.Progress); err != nil {
				return err
			}
		}
		if raw[13] != nil {
			if err := json.Unmarshal(jsonb(raw[13]), &d.Logs); err != nil {
				return err
			}
			d.Logs = rules.Lines(d.Logs)
		}
	case 3:
		n := store.NeedState{Need: store.Need{Task: idOf(raw[14]), OnFailure: store.OnFailure(stateOf(raw[15]))}}
		if parent := page[n.Task]; parent != nil {
			n.State = parent.State
		} else if raw[4] != nil {
			n.State = stateElsewhere(int16(stateOf(raw[4])))
		}
		d.Needs = append(d.Needs, n)
	case 4:
		d.CancelRequested = true
	}
	return nil
}

// jsonb strips the version from the binary form of a jsonb value.
func jsonb(raw []byte) []byte { return raw[1:] }

// Count implements store.Reader.
func (s *Store) Count(ctx context.Context) ([]store.Count, error) {
	now := time.Time{}
	var counts []store.Count
	err := s.read(ctx, s.pinned(s.do("count").into(func(raw [][]byte) error {
		c := store.Count{Queue: string(raw[0]), State: store.State(int32Of(raw[1])), Tasks: int64Of(raw[2])}
		now = timeOf(raw[4])
		if raw[3] != nil {
			c.Oldest = max(now.Sub(timeOf(raw[3])), 0)
		}
		if c.Tasks > 0 {
			counts = append(counts, c)
		}
		return nil
	})))
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	slices.SortFunc(counts, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return counts, nil
}

// Stats implements store.Reader. A row of the database is the sum of a flush or of a span of time. Stats divides
// them into buckets.
func (s *Store) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	type slice struct {
		at          int64
		queue, kind string
	}
	bucket := max(f.Bucket, time.Minute)
	from := f.From.Truncate(time.Minute)
	sums := map[slice]*store.Stat{}
	begins, ends := lower(from), upper(f.Until)
	minutes, since, end := foldedIn(bucket, begins, ends)
	err := s.queryPinned(ctx, s.sql["stats"], func(raw [][]byte) error {
		var list []statJSON
		if err := json.Unmarshal(raw[1], &list); err != nil {
			return nil // maintenance reports it
		}
		for _, one := range list {
			minute := timeOf(raw[0]).Add(-time.Duration(one.Ago) * time.Second).Truncate(time.Minute)
			if minute.Before(from) || !f.Until.IsZero() && !minute.Before(f.Until) ||
				f.Queue != "" && f.Queue != one.Queue || f.Kind != "" && f.Kind != one.Kind {
				continue
			}
			at := minute.Truncate(bucket)
			sum := sums[slice{at.Unix(), one.Queue, one.Kind}]
			if sum == nil {
				sum = &store.Stat{At: at, Queue: one.Queue, Kind: one.Kind}
				sums[slice{at.Unix(), one.Queue, one.Kind}] = sum
			}
			one.addTo(sum)
		}
		return nil
	}, begins, ends, since, end, minutes, ends.Add(late))
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	var list []store.Stat
	for _, sum := range sums {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b store.Stat) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return list, nil
}

func (one *statJSON) addTo(sum *store.Stat) {
	sum.Completed += one.Completed
	sum.Failed += one.Failed
	sum.Discarded += one.Discarded
	sum.Cancelled += one.Cancelled
	one.Waited.addTo(&sum.Waited)
	one.Ran.addTo(&sum.Ran)
}

// late is how long after the end of an attempt its flush may be written.
const late = 24 * time.Hour

// lower and upper limit times to a range that the database can store.
func lower(from time.Time) time.Time {
	if from.Year() < 2000 {
		return time.Unix(epoch, 0).UTC()
	}
	return from
}

func upper(until time.Time) time.Time {
	if until.IsZero() || until.Year() > 9000 {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return until
}

// Errors implements store.Reader.
func (s *Store) Errors(ctx context.Context, f store.ErrorFilter) ([]store.ErrorGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	var groups []store.ErrorGroup
	err := s.queryPinned(ctx, s.sql["errors"], func(raw [][]byte) error {
		groups = append(groups, store.ErrorGroup{
			Fingerprint: string(raw[0]), Kind: string(raw[2]), Count: int64Of(raw[3]), First: timeOf(raw[4]),
			Last:   timeOf(raw[5]),
			Sample: string(raw[6]), SampleTask: idOf(raw[7]), Queue: string(raw[8]), Waiting: int64Of(raw[9]),
			Dead: int64Of(raw[10]),
		})
		return nil
	}, f.Queue, hashOf(f.Queue), f.Kind, lower(f.Since), limit)
	if err != nil {
		return nil, fmt.Errorf("errors: %w", err)
	}
	return groups, nil
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	var workers []store.Worker
	err := s.queryPinned(ctx, s.sql["workers"], func(raw [][]byte) error {
		var w store.Worker
		if err := json.Unmarshal(jsonb(raw[1]), &w); err != nil {
			w = store.Worker{Host: "(cannot be read)"}
		}
		w.ID, w.StartedAt, w.BeatAt, w.ExpiresAt = idOf(raw[0]), timeOf(raw[2]), timeOf(raw[3]), timeOf(raw[4])
		w.Running = int(int64Of(raw[5]))
		workers = append(workers, w)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	return workers, nil
}
