package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// pair does the same to the engine and to the plainest one, and compares.
type pair struct {
	t       *testing.T
	r       *rand.Rand
	a, b    store.Store
	ids     []store.ID
	workers []store.ID
	held    []held
	term    int64
	step    int
}

// held is a task that both engines have lent out.
type held struct{ a, b store.Task }

func TestItDoesWhatTheMemoryEngineDoes(t *testing.T) {
	runs := 2
	if n, err := strconv.Atoi(os.Getenv("TUSK_TEST_RUNS")); err == nil {
		runs = n
	}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, _ := fresh(t)
			p := &pair{t: t, r: rand.New(rand.NewPCG(uint64(seed), uint64(time.Now().UnixNano()))), a: memory.New(), b: s}
			p.run(400)
		})
	}
}

func (p *pair) run(steps int) {
	ctx := context.Background()
	for i := range 2 {
		id := newID()
		p.workers = append(p.workers, id)
		for _, s := range []store.Store{p.a, p.b} {
			if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: id, Host: fmt.Sprint(i)}, TTL: time.Hour}); err != nil {
				p.t.Fatal(err)
			}
			l, err := s.Lead(ctx, store.Candidate{ID: p.workers[0], TTL: time.Hour})
			if err != nil || l.Term != 1 {
				p.t.Fatal(l, err)
			}
		}
	}
	p.term = 1
	for p.step = range steps {
		switch n := p.r.IntN(20); {
		case n < 7:
			p.enqueue(ctx)
		case n < 12:
			p.claim(ctx)
		case n < 16:
			p.finish(ctx)
		case n < 19:
			p.edit(ctx)
		default:
			p.admit(ctx)
		}
		if p.t.Failed() {
			return
		}
		p.compare(ctx)
		if p.t.Failed() {
			return
		}
	}
}

func (p *pair) queue() string { return []string{"a", "b"}[p.r.IntN(2)] }

func (p *pair) enqueue(ctx context.Context) {
	tasks := make([]store.NewTask, 1+p.r.IntN(4))
	for i := range tasks {
		t := &tasks[i]
		*t = store.NewTask{ID: newID(), Kind: []string{"x", "y"}[p.r.IntN(2)], Queue: p.queue(), Priority: int16(p.r.IntN(3) - 1), Args: fmt.Appendf(nil, "%d", p.step)}
		if p.r.IntN(2) == 0 {
			t.Key = fmt.Sprint("k", p.r.IntN(4))
			t.OnConflict = store.OnConflict(p.r.IntN(3))
			if t.OnConflict == store.Rerun && p.r.IntN(3) > 0 {
				t.SourceTime = time.Now().Add(time.Duration(p.r.IntN(1000)-500) * time.Hour).Truncate(time.Millisecond)
			}
		}
		if p.r.IntN(5) == 0 {
			t.Delay = time.Hour
		}
		if p.r.IntN(5) == 0 {
			t.RunAt = time.Now().Add(-time.Hour)
		}
		if p.r.IntN(4) == 0 {
			t.Tags, t.Tenant, t.Settings = []string{"t1", "t2"}, "acme", []byte{1}
		}
		p.adorn(t)
		p.ids = append(p.ids, t.ID)
	}
	a, errA := p.a.Enqueue(ctx, tasks)
	b, errB := p.b.Enqueue(ctx, tasks)
	if errA != nil || errB != nil || !slices.Equal(a, b) {
		p.t.Errorf("step %d: enqueue %+v:\n%v %v\n%v %v", p.step, tasks, a, errA, b, errB)
	}
}

// adorn gives a task what few have: needs, a workflow, a turn.
func (p *pair) adorn(t *store.NewTask) {
	if p.r.IntN(4) == 0 {
		t.Needs = p.needs()
	}
	if p.r.IntN(4) == 0 {
		t.Workflow = p.workers[0]
	}
	if p.r.IntN(4) == 0 {
		t.Turn, t.Partition = true, []string{"", "p"}[p.r.IntN(2)]
	}
}

// needs are one or two of the tasks that were enqueued last.
func (p *pair) needs() (needs []store.Need) {
	for range 1 + p.r.IntN(2) {
		n := store.Need{OnFailure: store.OnFailure(p.r.IntN(3))}
		if n.Task = newID(); len(p.ids) > 0 && p.r.IntN(8) > 0 {
			n.Task = p.ids[len(p.ids)-1-p.r.IntN(min(len(p.ids), 10))]
		}
		if len(needs) == 0 || needs[0].Task != n.Task {
			needs = append(needs, n)
		}
	}
	return needs
}

func (p *pair) claim(ctx context.Context) {
	r := store.ClaimRequest{Worker: p.workers[p.r.IntN(2)], Queues: []string{p.queue(), p.queue()}, Limit: 1 + p.r.IntN(5), Token: store.NewToken()}
	a, errA := p.a.Claim(ctx, r)
	b, errB := p.b.Claim(ctx, r)
	if errA != nil || errB != nil || len(a) != len(b) {
		p.t.Errorf("step %d: claim: %d %v, %d %v", p.step, len(a), errA, len(b), errB)
		return
	}
	if p.r.IntN(4) == 0 {
		r.Again = true
		again, err := p.b.Claim(ctx, r)
		if err != nil || len(b) > 0 && len(again) != len(b) {
			p.t.Errorf("step %d: claim again: %d of %d, %v", p.step, len(again), len(b), err)
		}
		if len(b) == 0 && len(again) > 0 {
			p.t.Errorf("step %d: claim again found more", p.step)
		}
	}
	for i := range a {
		p.same(&a[i], &b[i])
		p.held = append(p.held, held{a[i], b[i]})
	}
}

func (p *pair) finish(ctx context.Context) {
	var as, bs []store.Outcome
	p.r.Shuffle(len(p.held), func(i, j int) { p.held[i], p.held[j] = p.held[j], p.held[i] })
	n := min(len(p.held), 1+p.r.IntN(6))
	for _, h := range p.held[:n] {
		o := store.Outcome{State: store.Completed, Attempt: h.a.Attempt, Ran: time.Millisecond}
		switch p.r.IntN(8) {
		case 0:
			o.State, o.Delay, o.Error, o.Fingerprint = store.Retryable, time.Hour, "broken", "f1"
		case 1:
			o.State, o.Delay, o.Attempt = store.Scheduled, time.Hour, h.a.Attempt-1
		case 2:
			o.State, o.Crashes = store.Available, 1
		case 3:
			o.State, o.Error, o.Fingerprint, o.Reason = store.Discarded, "broken\x00", "f2", "gave up"
		case 4:
			o.State, o.Reason = store.Cancelled, "told so"
		case 5:
			o.State, o.Attempt = store.Pending, h.a.Attempt-1
			if p.r.IntN(2) == 0 {
				o.Needs = p.needs()
			}
		}
		o.KeepTurn = p.r.IntN(2) == 0
		for range p.r.IntN(3) / 2 {
			n := store.NewTask{ID: newID(), Kind: "x", Queue: p.queue(), Args: []byte("0")}
			p.adorn(&n)
			p.ids = append(p.ids, n.ID)
			o.Then = append(o.Then, n)
			if o.State == store.Pending {
				o.Needs = append(o.Needs, store.Need{Task: n.ID, OnFailure: store.ContinueOnFailure})
			}
		}
		if p.r.IntN(3) == 0 {
			o.Note = &store.Note{Output: []byte(`{"a":1}`), Logs: []store.LogLine{{Level: "info", Text: "hi", Attempt: 1}}}
		}
		a, b := h.a, h.b
		oa, ob := o, o
		oa.Task, ob.Task = &a, &b
		as, bs = append(as, oa), append(bs, ob)
	}
	for _, o := range as {
		if (o.Task.Key != "" || o.State == store.Available || o.State == store.Pending || len(o.Then) > 0) && len(as) > 1 { // no order is promised of what follows
			as, bs = as[:1], bs[:1]
			break
		}
	}
	if p.r.IntN(3) > 0 {
		p.held = p.held[len(as):]
	}
	a, errA := p.a.Finish(ctx, as)
	b, errB := p.b.Finish(ctx, bs)
	byID := func(x, y store.ID) int { return bytes.Compare(x[:], y[:]) }
	slices.SortFunc(a, byID)
	slices.SortFunc(b, byID)
	if errA != nil || errB != nil || !slices.Equal(a, b) {
		p.t.Errorf("step %d: finish: %v %v, %v %v", p.step, a, errA, b, errB)
	}
}

func (p *pair) edit(ctx context.Context) {
	if len(p.ids) == 0 {
		return
	}
	e := store.Edit{Change: store.Change{Op: store.Op(1 + p.r.IntN(6)), Priority: int16(p.r.IntN(3) - 1), Queue: p.queue(), Reason: "why"}}
	if p.r.IntN(2) == 0 {
		e.Change.Delay = time.Hour
	}
	for range 1 + p.r.IntN(3) {
		e.IDs = append(e.IDs, p.ids[p.r.IntN(len(p.ids))])
	}
	slices.SortFunc(e.IDs, func(x, y store.ID) int { return bytes.Compare(x[:], y[:]) })
	e.IDs = slices.Compact(e.IDs)
	a, errA := p.a.Edit(ctx, e)
	b, errB := p.b.Edit(ctx, e)
	if errA != nil || errB != nil || !slices.Equal(a, b) {
		p.t.Errorf("step %d: edit %+v:\n%v %v\n%v %v", p.step, e, a, errA, b, errB)
	}
}

func (p *pair) admit(ctx context.Context) {
	a, errA := p.a.Admit(ctx, p.term, 100)
	b, errB := p.b.Admit(ctx, p.term, 100)
	if errA != nil || errB != nil || a.Count != b.Count || a.Cancelled != b.Cancelled || a.Next < 0 != (b.Next < 0) {
		p.t.Errorf("step %d: admit: %v %v, %v %v", p.step, a, errA, b, errB)
	}
	p.grant(ctx)
	if p.r.IntN(5) == 0 {
		keep := store.Retention{Completed: time.Nanosecond, Queues: map[string]store.Retention{"b": {Discarded: time.Nanosecond}}}
		keep.Completed, keep.Cancelled = time.Microsecond, time.Microsecond
		time.Sleep(2 * time.Millisecond)
		n, errA := p.a.Prune(ctx, p.term, keep, 1000)
		m, errB := p.b.Prune(ctx, p.term, keep, 1000)
		if errors.Join(errA, errB) != nil || n != m {
			p.t.Errorf("step %d: prune: %d %v, %d %v", p.step, n, errA, m, errB)
		}
	}
}

func (p *pair) grant(ctx context.Context) {
	a, errA := p.a.Turns(ctx, p.term, 100, 100)
	b, errB := p.b.Turns(ctx, p.term, 100, 100)
	if errA != nil || errB != nil || fmt.Sprint(a) != fmt.Sprint(b) {
		p.t.Errorf("step %d: turns:\n%v %v\n%v %v", p.step, a, errA, b, errB)
		return
	}
	var ids []store.ID
	for _, g := range a {
		ids = append(ids, g.Waiting[:len(g.Waiting)-p.r.IntN(len(g.Waiting)+1)]...)
	}
	n, errA := p.a.Grant(ctx, p.term, ids)
	m, errB := p.b.Grant(ctx, p.term, ids)
	if errA != nil || errB != nil || n != m || n != len(ids) {
		p.t.Errorf("step %d: granted %d %v, %d %v of %d", p.step, n, errA, m, errB, len(ids))
	}
}

func (p *pair) compare(ctx context.Context) {
	f := store.Filter{Limit: 1000, Detail: true}
	a, errA := p.a.List(ctx, f)
	b, errB := p.b.List(ctx, f)
	if errA != nil || errB != nil || len(a) != len(b) {
		p.t.Errorf("step %d: list: %d %v, %d %v", p.step, len(a), errA, len(b), errB)
		for _, x := range a {
			if !slices.ContainsFunc(b, func(y store.Task) bool { return x.ID == y.ID }) {
				p.t.Errorf("missing %+v", x)
			}
		}
		return
	}
	for i := range a {
		p.same(&a[i], &b[i])
	}
	ca, errA := p.a.Count(ctx)
	cb, errB := p.b.Count(ctx)
	for i := range ca {
		ca[i].Oldest = 0
	}
	for i := range cb {
		cb[i].Oldest = 0
	}
	if errA != nil || errB != nil || !slices.Equal(ca, cb) {
		p.t.Errorf("step %d: count: %v %v, %v %v", p.step, ca, errA, cb, errB)
	}
	ea, errA := p.a.Errors(ctx, store.ErrorFilter{})
	eb, errB := p.b.Errors(ctx, store.ErrorFilter{})
	if errA != nil || errB != nil || len(ea) != len(eb) {
		p.t.Errorf("step %d: errors: %v %v, %v %v", p.step, ea, errA, eb, errB)
	}
}

func (p *pair) same(a, b *store.Task) {
	strip := func(t store.Task) string {
		var detail string
		if d := t.Detail; d != nil {
			var latest store.Attempt
			failed := 0
			for _, at := range d.Attempts {
				if at.Error != "" {
					failed++
				}
				latest = at
			}
			detail = fmt.Sprintf("%d failed, latest %d %v %q, output %q, %d logs, stop %v, needs %v", failed, latest.Number, latest.Outcome, latest.Fingerprint,
				d.Output, len(d.Logs), d.CancelRequested, d.Needs)
		}
		near := func(at time.Time) string {
			if at.IsZero() {
				return "-"
			}
			return at.Round(time.Minute * 30).Format(time.TimeOnly)
		}
		return fmt.Sprint(t.ID, t.Kind, t.Queue, t.Tenant, t.Priority, string(t.Args), t.Tags, t.Key, t.Settings, t.State, t.Attempt, t.Crashes, t.Reason,
			t.Workflow, t.Turn, t.Partition,
			near(t.EnqueuedAt), near(t.RunAt), t.ClaimedAt.IsZero(), t.FinishedAt.IsZero(), t.Lease, t.Worker, detail)
	}
	if x, y := strip(*a), strip(*b); x != y {
		p.t.Errorf("step %d: not the same:\n%s\n%s", p.step, x, y)
	}
}
