package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tuskqueue/tusk/store"
)

// history is a generated sequence of events that is applied to both databases.
type history struct {
	*rapid.T
	*pair
	ctx    context.Context
	queues []string
	kind   string // of its records
	made   int
	names  map[fmt.Stringer]string // of ids and tokens, for messages

	tasks []store.ID // all that were ever enqueued
	// The position of an unplaced task in its lane is the engine's choice.
	unplaced map[store.ID]bool
	related  map[store.ID]bool // needs other tasks, or is needed
	workflow store.ID
	rerun    map[string]bool // keys that were enqueued with Rerun
	leases   []*leased
	workers  []store.ID
	leaders  []store.ID
	terms    map[store.ID]twins[int64]
	past     []twins[int64] // terms that are over
	versions map[string]twins[int64]
	stale    map[string]twins[int64] // the previous version
}

// leased is a task as both stores leased it. It may have been finished since.
type leased struct {
	twins[store.Task]
	token store.Token
}

func newHistory(rt *rapid.T, both *pair) *history {
	both.histories++
	name := fmt.Sprint("h", both.histories)
	h := &history{T: rt, pair: both, ctx: context.Background(), kind: name, names: map[fmt.Stringer]string{},
		queues:   []string{name + "-a", name + "-b", name + "-c"},
		unplaced: map[store.ID]bool{}, related: map[store.ID]bool{}, rerun: map[string]bool{},
		terms: map[store.ID]twins[int64]{}, versions: map[string]twins[int64]{}, stale: map[string]twins[int64]{}}
	h.workflow = named(h, "workflow", NewID())
	for range 3 {
		h.leaders = append(h.leaders, named(h, "candidate", NewID()))
	}
	h.beat(h.join(), time.Hour)
	h.lead(h.leaders[0], time.Hour)
	return h
}

// steps are the events that may happen. Rapid repeats them in an order of its choice, and runs the one without a name
// after each.
func (h *history) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":             func(*rapid.T) { h.agree() },
		"enqueue":      func(*rapid.T) { h.enqueue(h.newTasks(1, 4)) },
		"enqueue more": func(*rapid.T) { h.enqueue(h.newTasks(1, 4)) },
		"enqueue many": func(*rapid.T) { h.enqueue(h.alikeTasks(2, 7)) },
		"claim":        func(*rapid.T) { h.claim() },
		"claim more":   func(*rapid.T) { h.claim() },
		"claim again":  func(*rapid.T) { h.claimAgain() },
		"finish":       func(*rapid.T) { h.finish() },
		"finish more":  func(*rapid.T) { h.finish() },
		"beat":         func(*rapid.T) { h.beatOrLeave() },
		"die":          func(*rapid.T) { h.die() },
		"lead":         func(*rapid.T) { h.leadOrResign() },
		"admit":        func(*rapid.T) { h.admit() },
		"rescue":       func(*rapid.T) { h.rescue(h.someTerm()) },
		"grant":        func(*rapid.T) { h.grant() },
		"prune":        func(*rapid.T) { h.prune() },
		"edit":         func(*rapid.T) { h.edit() },
		"edit more":    func(*rapid.T) { h.edit() },
		"put record":   func(*rapid.T) { h.putRecord() },
	}
}

// settle ends everything that is still in progress, so that the next history begins with two idle databases. Then it
// compares the totals.
func (h *history) settle() {
	h.Helper()
	for h.running() > 0 {
		var outcomes twins[[]store.Outcome]
		for _, l := range h.open() {
			outcomes.model = append(outcomes.model, to(store.Completed, &l.model))
			outcomes.engine = append(outcomes.engine, to(store.Completed, &l.engine))
		}
		h.end(outcomes)
	}
	for _, id := range h.workers {
		h.beat(id, 0)
	}
	for _, id := range h.leaders {
		h.lead(id, 0)
	}
	h.agree()
	h.agreeInTotal()
	all, _ := h.model.List(h.ctx, store.Filter{Queues: h.queues, Limit: store.MaxPage})
	h.change(store.Change{Op: store.Delete}, idsOfTasks(all))
	h.agree()
}

// named gives an id or a token a name, which is the same whenever the history is repeated.
func named[V fmt.Stringer](h *history, kind string, v V) V {
	h.names[v] = fmt.Sprintf("%s-%d", kind, len(h.names))
	return v
}

// name returns the name of an id or a token, or "none" for a zero one.
func (h *history) name(v fmt.Stringer) string {
	name, known := h.names[v]
	switch {
	case known:
		return name
	case v == fmt.Stringer(store.ID{}) || v == fmt.Stringer(store.Token{}):
		return "none"
	}
	return "unknown " + v.String()
}

// ints draws a number. Rapid prefers the lowest one.
func (h *history) ints(label string, from, to int) int {
	return rapid.IntRange(from, to).Draw(h.T, label)
}

// seldom is true once in n times.
func (h *history) seldom(label string, n int) bool { return h.ints(label, 1, n) == n }

func pick[V any](h *history, label string, of []V) V { return of[h.ints(label, 0, len(of)-1)] }

// newTasks generates between from and to tasks.
func (h *history) newTasks(from, to int) []store.NewTask {
	tasks := make([]store.NewTask, h.ints("tasks", from, to))
	for i := range tasks {
		tasks[i] = h.newTask()
	}
	return tasks
}

// alikeTasks generates tasks that an engine may store together: they differ only in ids and args, and may run at
// once.
func (h *history) alikeTasks(from, to int) []store.NewTask {
	n := store.NewTask{Kind: pick(h, "kind", []string{"k1", "k2"}), Queue: pick(h, "queue", h.queues),
		Priority: pick(h, "priority", []int16{0, 1})}
	if h.seldom("labels", 3) {
		n.Tags, n.Settings, n.ExpiresAt = []string{"t1", "t2"}, []byte(`{"max_attempts":3}`),
			time.Now().Add(2*time.Hour).UTC().Truncate(time.Millisecond)
	}
	tasks := make([]store.NewTask, h.ints("tasks", from, to))
	for i := range tasks {
		h.made++
		tasks[i] = n
		tasks[i].ID, tasks[i].Args = named(h, "task", NewID()), fmt.Appendf(nil, `{"n":%d}`, h.made)
	}
	return tasks
}

func (h *history) newTask() store.NewTask {
	h.made++
	n := store.NewTask{ID: named(h, "task", NewID()), Args: fmt.Appendf(nil, `{"n":%d}`, h.made),
		Kind: pick(h, "kind", []string{"k1", "k2"}), Queue: pick(h, "queue", h.queues),
		Priority: pick(h, "priority", []int16{0, -1, 1})}
	switch h.ints("due", 1, 8) {
	case 5:
		n.RunAt = time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	case 6:
		n.RunAt = time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	case 7, 8:
		n.Delay = time.Hour
	}
	if h.seldom("labels", 4) {
		n.Tags, n.Tenant, n.Settings, n.ExpiresIn = []string{"t1", "t2"}, "acme", []byte(`{"max_attempts":3}`), 2*time.Hour
	}
	h.adorn(&n)
	if n.Key = pick(h, "key", []string{"", "", "a", "b"}); n.Key == "" {
		return n
	}
	n.OnConflict = pick(h, "on conflict", []store.OnConflict{store.Skip, store.Replace, store.Rerun, store.Rerun,
		store.Once})
	if n.OnConflict == store.Rerun && !h.seldom("newest", 8) {
		source(int64(h.ints("source", 1, 30)))(&n)
	}
	return n
}

func (h *history) enqueue(tasks []store.NewTask) {
	h.Helper()
	results, _ := ask(h, "enqueue", func(s store.Store, _ bool) ([]store.Enqueued, error) {
		return s.Enqueue(h.ctx, tasks)
	})
	h.enqueued(tasks, results)
}

// enqueued compares the results of an enqueue and records the tasks.
func (h *history) enqueued(tasks []store.NewTask, results twins[[]store.Enqueued]) {
	h.Helper()
	h.same("results", h.resultLines(results.model), h.resultLines(results.engine))
	for i, r := range results.model {
		n := &tasks[i]
		if n.OnConflict == store.Rerun {
			h.rerun[n.Queue+n.Key] = true
		}
		if r.ID == n.ID {
			h.tasks = append(h.tasks, n.ID)
		}
		if r.Result != store.Added || n.Delay > 0 || n.RunAt.After(time.Now()) {
			h.unplaced[r.ID] = true
		}
	}
}

func (h *history) resultLines(results []store.Enqueued) []string {
	lines := make([]string, len(results))
	for i, r := range results {
		lines[i] = fmt.Sprintf("%d: %s %v", i, h.name(r.ID), r.Result)
	}
	return lines
}

func (h *history) putRecord() {
	h.Helper()
	name := pick(h, "name", []string{"x", "y"})
	at, before := h.versions[name], h.stale[name]
	p := store.PutRecord{Record: store.Record{Kind: h.kind, Name: name}, Tasks: h.newTasks(0, 2)}
	if at.model == 0 || !h.seldom("delete", 4) {
		h.made++
		p.Record.Body = fmt.Appendf(nil, `{"n": %d}`, h.made)
	}
	var term twins[int64]
	switch h.ints("fault", 1, 8) {
	case 6, 7:
		term = h.someTerm()
	case 8:
		at = before
	}
	results := twins[[]store.Enqueued]{}
	version, err := ask(h, "put record", func(s store.Store, engine bool) (int64, error) {
		q := p
		q.Record.Version, q.Term = at.of(engine), term.of(engine)
		version, tasks, err := s.PutRecord(h.ctx, q)
		if engine {
			results.engine = tasks
		} else {
			results.model = tasks
		}
		return version, err
	})
	if err != nil {
		return
	}
	if (version.model == 0) != (version.engine == 0) || version.engine != 0 && version.engine == at.engine {
		h.Logf("put record: version %+v after %+v", version, at)
		h.Fatal("versions differ")
	}
	h.stale[name], h.versions[name] = at, version
	h.enqueued(p.Tasks, results)
}

func (h *history) edit() {
	h.Helper()
	c := store.Change{Op: store.Op(h.ints("op", int(store.Cancel), int(store.Reschedule))), Reason: "why"}
	switch c.Op {
	case store.Reprioritize:
		c.Priority = pick(h, "priority", []int16{0, -1, 1})
	case store.Move:
		c.Queue = pick(h, "queue", h.queues)
	case store.Reschedule:
		c.Delay = time.Hour // without a delay it may become available now or at the next Admit
	}
	var ids []store.ID
	keys := map[string]bool{}
	for range h.ints("ids", 1, 4) {
		id := named(h, "nothing", NewID())
		if len(h.tasks) > 0 && !h.seldom("unknown", 8) {
			id = pick(h, "id", h.tasks)
		}
		if slices.Contains(ids, id) || !h.mayChange(id, c.Op, keys) {
			continue
		}
		ids = append(ids, id)
	}
	if slices.ContainsFunc(ids, func(id store.ID) bool { return h.related[id] }) {
		ids = ids[:1] // an edit of one may affect another
	}
	h.change(c, ids)
}

// mayChange reports whether the contract determines what an edit does. It does not determine the order of the edits
// of one call, whether a cancelled rerun can be seen afterwards, which source time a key keeps after its tasks were
// moved or deleted, or the error group of a failed task that was moved.
func (h *history) mayChange(id store.ID, op store.Op, keys map[string]bool) bool {
	found, _ := h.model.List(h.ctx, store.Filter{IDs: []store.ID{id}, Detail: true})
	if len(found) == 0 {
		return true
	}
	t := &found[0]
	if op == store.Move && slices.ContainsFunc(t.Detail.Attempts, func(a store.Attempt) bool { return a.Error != "" }) {
		return false
	}
	if t.Key == "" {
		return true
	}
	if t.State == store.Pending {
		return op != store.Cancel
	}
	if (op == store.Move || op == store.Delete) && h.rerun[t.Queue+t.Key] {
		return false
	}
	if keys[t.Key] {
		return false
	}
	keys[t.Key] = true
	return true
}

func (h *history) change(c store.Change, ids []store.ID) {
	h.Helper()
	edited, _ := ask(h, c.Op.String(), func(s store.Store, _ bool) ([]string, error) {
		edited, err := s.Edit(h.ctx, store.Edit{IDs: ids, Change: c})
		lines := make([]string, len(edited))
		for i, e := range edited {
			if c.Op == store.Delete && e.Result == store.Changed {
				e.State = 0
			}
			lines[i] = fmt.Sprintf("%s %v %v", h.name(e.ID), e.Result, e.State)
		}
		return lines, err
	})
	h.same("edits", edited.model, edited.engine)
	for _, id := range ids {
		h.unplaced[id] = true
	}
}
