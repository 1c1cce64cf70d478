package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// This file has the workers and the leader of a history.

// join adds a worker that has not sent a beat yet.
func (h *history) join() store.ID {
	h.workers = append(h.workers, named(h, "worker", NewID()))
	return h.workers[len(h.workers)-1]
}

func (h *history) beat(id store.ID, ttl time.Duration, notes ...store.Note) {
	h.Helper()
	w := store.Worker{ID: id, Host: "host", PID: len(h.workers), Queues: h.queues, Concurrency: 10, Version: "v"}
	stops, _ := ask(h, "extend", func(s store.Store, _ bool) ([]string, error) {
		stops, err := s.Extend(h.ctx, store.Beat{Worker: w, TTL: ttl, Notes: notes})
		lines := make([]string, len(stops))
		for i, stop := range stops {
			lines[i] = h.name(stop.ID) + " " + h.name(stop.Lease)
		}
		slices.Sort(lines)
		return lines, err
	})
	if ttl > 0 {
		h.same("stops", stops.model, stops.engine)
	}
}

func (h *history) beatOrLeave() {
	h.Helper()
	if h.seldom("join", 3) {
		h.beat(h.join(), time.Hour)
		return
	}
	id := pick(h, "worker", h.workers)
	var notes []store.Note
	for _, l := range h.leases {
		if l.model.Worker == id && h.seldom("note", 2) {
			notes = append(notes, *h.note(l))
		}
	}
	ttl := time.Hour
	if h.seldom("leave", 6) {
		ttl = 0
	}
	h.beat(id, ttl, notes...)
}

// note generates a note. It may arrive too late.
func (h *history) note(l *leased) *store.Note {
	h.made++
	n := &store.Note{ID: l.model.ID, Lease: l.token}
	if h.seldom("progress", 2) {
		n.Progress = &store.Progress{Percent: float64(h.made % 100), Message: fmt.Sprint("step ", h.made)}
	}
	if h.seldom("output", 2) {
		n.Output = fmt.Appendf(nil, `{"out": %d}`, h.made)
	}
	for i := range h.ints("lines", 0, 2) {
		n.Logs = append(n.Logs, store.LogLine{At: time.UnixMilli(int64(h.made)).UTC(), Attempt: l.model.Attempt,
			Level: "INFO", Text: fmt.Sprint("line ", h.made, ".", i)})
	}
	return n
}

// die makes a worker miss its beat. If there is a leader, the worker is usually declared dead; otherwise its next
// beat is late, and it stays alive.
func (h *history) die() {
	h.Helper()
	living, _ := h.model.Workers(h.ctx)
	if len(living) == 0 {
		return
	}
	id := pick(h, "worker", living).ID
	h.beat(id, time.Millisecond)
	time.Sleep(6 * time.Millisecond)
	if term, led := h.term(); led && !h.seldom("late", 4) {
		h.rescue(term)
	} else {
		h.beat(id, time.Hour)
	}
}

// claim requests tasks. If the limit would cut a lane that the engine may order as it likes, it requests the whole
// lane. If tasks are spread, it requests all, because then only the set of all tasks is determined.
func (h *history) claim() {
	h.Helper()
	r := store.ClaimRequest{Worker: pick(h, "worker", h.workers), Token: named(h, "lease", store.NewToken()),
		Limit: h.ints("limit", 1, 8)}
	first := h.ints("first queue", 0, 2)
	for i := range h.ints("queues", 1, 3) {
		r.Queues = append(r.Queues, h.queues[(first+i)%3])
	}
	if h.seldom("unheard", 8) {
		r.Again = true // as if the first request had never arrived
	}
	lanes := h.lanes(r.Queues)
	begin := 0
	for _, lane := range lanes {
		end := begin + len(lane)
		if begin < r.Limit && r.Limit < end &&
			slices.ContainsFunc(lane, func(t store.Task) bool { return h.unplaced[t.ID] }) {
			r.Limit = end
		}
		begin = end
	}
	if h.spread {
		r.Limit = store.MaxPage
	}
	tasks, err := ask(h, "claim", func(s store.Store, _ bool) ([]store.Task, error) { return s.Claim(h.ctx, r) })
	if err != nil {
		return
	}
	if !h.spread {
		h.same("order of lanes", laneLines(tasks.model), laneLines(tasks.engine))
		h.same("order within lanes", h.placedLines(tasks.model), h.placedLines(tasks.engine))
	}
	h.lent(tasks, r.Token)
}

// lanes returns the available tasks by lane, in the order in which they must be claimed.
func (h *history) lanes(queues []string) (lanes [][]store.Task) {
	for _, q := range queues {
		tasks, _ := h.model.List(h.ctx, store.Filter{Queues: []string{q}, States: []store.State{store.Available},
			Limit: store.MaxPage})
		slices.SortFunc(tasks, func(a, b store.Task) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), byTaskID(a, b))
		})
		for len(tasks) > 0 {
			n := 1
			for n < len(tasks) && tasks[n].Priority == tasks[0].Priority {
				n++
			}
			lanes = append(lanes, tasks[:n])
			tasks = tasks[n:]
		}
	}
	return lanes
}

func laneLines(tasks []store.Task) []string {
	lines := make([]string, len(tasks))
	for i, t := range tasks {
		lines[i] = fmt.Sprintf("%d: %s %d", i, t.Queue, t.Priority)
	}
	return lines
}

// placedLines describes the tasks whose order is determined: those that were only enqueued.
func (h *history) placedLines(tasks []store.Task) (lines []string) {
	for _, t := range tasks {
		if !h.unplaced[t.ID] {
			lines = append(lines, fmt.Sprintf("%s %d %s", t.Queue, t.Priority, h.name(t.ID)))
		}
	}
	return lines
}

// lent compares claimed tasks and records their leases.
func (h *history) lent(tasks twins[[]store.Task], token store.Token) {
	h.Helper()
	slices.SortFunc(tasks.model, byTaskID)
	slices.SortFunc(tasks.engine, byTaskID)
	h.same("claimed tasks", h.lines(tasks.model), h.lines(tasks.engine))
	for i := range tasks.model {
		h.leases = append(h.leases, &leased{twins: twins[store.Task]{tasks.model[i], tasks.engine[i]}, token: token})
	}
}

// claimAgain repeats a claim that still has open leases.
func (h *history) claimAgain() {
	h.Helper()
	open := h.open()
	if len(open) == 0 {
		h.claim()
		return
	}
	l := pick(h, "lease", open)
	r := store.ClaimRequest{Worker: l.model.Worker, Queues: h.queues, Token: l.token, Limit: 100, Again: true}
	tasks, _ := ask(h, "claim again", func(s store.Store, _ bool) ([]store.Task, error) { return s.Claim(h.ctx, r) })
	slices.SortFunc(tasks.model, byTaskID)
	slices.SortFunc(tasks.engine, byTaskID)
	h.same("tasks claimed again", h.lines(tasks.model), h.lines(tasks.engine))
}

// open returns the leases that are open in the model.
func (h *history) open() (open []*leased) {
	running, _ := h.model.List(h.ctx, store.Filter{Queues: h.queues, States: []store.State{store.Running},
		Limit: store.MaxPage})
	for _, l := range h.leases {
		if slices.ContainsFunc(running, func(t store.Task) bool { return t.ID == l.model.ID && t.Lease == l.token }) {
			open = append(open, l)
		}
	}
	return open
}

func (h *history) running() int { return len(h.open()) }

func (h *history) finish() {
	h.Helper()
	if len(h.leases) == 0 {
		return
	}
	open := h.open()
	var outcomes twins[[]store.Outcome]
	seen := map[*leased]bool{}
	for range h.ints("outcomes", 1, 5) {
		l := pick(h, "lease", h.leases)
		if len(open) > 0 && !h.seldom("any lease", 5) {
			l = pick(h, "open lease", open)
		}
		if seen[l] {
			continue
		}
		seen[l] = true
		o := h.outcome(l)
		if alone := len(o.Then) > 0 || o.State == store.Pending; alone && len(outcomes.model) > 0 {
			continue // the contract does not say in which order they follow
		}
		model, engine := l.model, l.engine
		if h.seldom("forged", 10) {
			model.Lease = store.NewToken()
			engine.Lease = model.Lease
		}
		for range 1 + h.ints("twice", 1, 8)/8 {
			o.Task = &model
			outcomes.model = append(outcomes.model, o)
			o.Task = &engine
			outcomes.engine = append(outcomes.engine, o)
		}
		if !o.State.Finished() {
			h.unplaced[model.ID] = true
		}
		if len(o.Then) > 0 || o.State == store.Pending {
			break
		}
	}
	h.end(outcomes)
}

// outcome generates an outcome.
func (h *history) outcome(l *leased) store.Outcome {
	o := to(store.State(0), &l.model)
	o.State = pick(h, "state", []store.State{store.Completed, store.Retryable, store.Available, store.Scheduled,
		store.Discarded, store.Cancelled, store.Pending})
	o.Crashes = h.ints("crashes", 0, 2)
	if h.seldom("refund", 3) {
		o.Attempt--
	}
	if h.seldom("error", 2) {
		o.Error, o.Trace = pick(h, "text", []string{"broken", "torn: 'it\"s' %"}), "trace"
		o.Fingerprint = "fp-" + o.Error[:1]
	}
	if h.seldom("note", 3) {
		o.Note = h.note(l)
	}
	switch o.State {
	case store.Retryable, store.Scheduled:
		o.Delay = pick(h, "delay", []time.Duration{0, time.Hour})
	case store.Discarded, store.Cancelled:
		o.Reason = pick(h, "reason", []string{"", "gave up"})
	}
	h.follow(&o)
	return o
}

func (h *history) end(outcomes twins[[]store.Outcome]) {
	h.Helper()
	lost, _ := ask(h, "finish", func(s store.Store, engine bool) ([]string, error) {
		lost, err := finish(h.ctx, s, outcomes.of(engine))
		lines := make([]string, len(lost))
		for i, id := range lost {
			lines[i] = h.name(id)
		}
		slices.Sort(lines)
		return lines, err
	})
	h.same("lost outcomes", lost.model, lost.engine)
}

func (h *history) lead(id store.ID, ttl time.Duration) {
	h.Helper()
	held := h.terms[id]
	term, _ := ask(h, "lead", func(s store.Store, engine bool) (int64, error) {
		l, err := s.Lead(h.ctx, store.Candidate{ID: id, Term: held.of(engine), TTL: ttl})
		return l.Term, err
	})
	if (term.model == 0) != (term.engine == 0) || (term.model == held.model) != (term.engine == held.engine) {
		h.Logf("lead: %v after %v", term, held)
		h.Fatal("terms differ")
	}
	for _, old := range h.past {
		if term.engine != 0 && term.engine <= old.engine {
			h.Logf("lead: term %d after %d", term.engine, old.engine)
			h.Fatal("a term did not grow")
		}
	}
	if held != term && held.model != 0 {
		h.past = append(h.past, held)
	}
	h.terms[id] = term
}

func (h *history) leadOrResign() {
	h.Helper()
	id, ttl := pick(h, "candidate", h.leaders), time.Hour
	if h.seldom("resign", 3) {
		ttl = 0
	}
	h.lead(id, ttl)
}

// term returns the current term.
func (h *history) term() (twins[int64], bool) {
	for _, id := range h.leaders {
		if term := h.terms[id]; term.model != 0 {
			return term, true
		}
	}
	return twins[int64]{}, false
}

// someTerm returns the current term or, rarely, one that is over.
func (h *history) someTerm() twins[int64] {
	term, led := h.term()
	switch {
	case led && !h.seldom("stale term", 6):
		return term
	case len(h.past) > 0:
		return pick(h, "past term", h.past)
	}
	return twins[int64]{1e9, 1e9}
}

func (h *history) admit() {
	h.Helper()
	term, limit := h.someTerm(), pick(h, "limit", []int{1000, 1, 2})
	time.Sleep(3 * time.Millisecond) // what was due at once is due by now
	did, _ := ask(h, "admit", func(s store.Store, engine bool) (string, error) {
		count, cancelled, queues := 0, 0, []string{}
		for {
			did, err := s.Admit(h.ctx, term.of(engine), limit)
			count, cancelled, queues = count+did.Count, cancelled+did.Cancelled, append(queues, did.Queues...)
			if err != nil || did.Count < limit && did.Cancelled < limit {
				slices.Sort(queues)
				return fmt.Sprint(count, cancelled, slices.Compact(queues), did.Next < 0), err
			}
		}
	})
	h.same("admitted, cancelled, their queues, nothing waits", []string{did.model}, []string{did.engine})
}

func (h *history) rescue(term twins[int64]) {
	h.Helper()
	limit := 1000
	if h.seldom("few", 5) {
		limit = 1
	}
	tasks, _ := ask(h, "rescue", func(s store.Store, engine bool) ([]store.Task, error) {
		tasks, err := s.Rescue(h.ctx, term.of(engine), limit)
		slices.SortFunc(tasks, byTaskID)
		return tasks, err
	})
	if limit == 1 {
		h.same("rescued", []string{fmt.Sprint(len(tasks.model))}, []string{fmt.Sprint(len(tasks.engine))})
		return // the engine chooses which one
	}
	h.same("rescued", h.lines(tasks.model), h.lines(tasks.engine))
	for i, t := range tasks.model {
		for _, l := range h.leases {
			if l.model.ID == t.ID && l.token == t.Lease {
				l.model, l.engine = t, tasks.engine[i] // from now on as its rescuer knows it
			}
		}
	}
}

func (h *history) prune() {
	h.Helper()
	term, limit := h.someTerm(), pick(h, "limit", []int{1000, 1, 3})
	retention := func() (r store.Retention) {
		for _, kept := range []*time.Duration{&r.Completed, &r.Cancelled, &r.Discarded} {
			if h.seldom("over", 2) {
				*kept = time.Nanosecond
			}
		}
		return r
	}
	keep := retention()
	if h.seldom("own", 2) {
		keep.Queues = map[string]store.Retention{h.queues[0]: retention()}
	}
	time.Sleep(6 * time.Millisecond)
	deleted, _ := ask(h, "prune", func(s store.Store, engine bool) (deleted int, err error) {
		for {
			n, err := s.Prune(h.ctx, term.of(engine), keep, limit)
			if deleted += n; err != nil || n < limit {
				return deleted, err
			}
		}
	})
	h.same("pruned", []string{fmt.Sprint(deleted.model)}, []string{fmt.Sprint(deleted.engine)})
}
