package tusk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// How a puller handles the tasks that it has lent.

// Limits of one Claim: about pullBytes of args, requested pullStep tasks at a time.
const (
	pullBytes = 8 << 20
	pullStep  = 64
)

// claim lends up to r.Limit tasks, or fewer if they are large. It may find tasks and lend none.
func (p *Puller) claim(ctx context.Context, r Pull) (all []Lent, found bool, err error) {
	size, step := 0, r
	for step.Limit = min(r.Limit, pullStep/2); step.Limit > 0; {
		lent, some, err := p.claimSome(ctx, step)
		found = found || some
		for i := range lent {
			size += len(lent[i].Args) + 500
		}
		if all = append(all, lent...); len(all) == 0 {
			return nil, found, err
		}
		if err != nil || len(lent) < step.Limit {
			break // keep what was lent so far; the error will occur again
		}
		step.Limit = min(r.Limit-len(all), pullStep, (pullBytes-size)*len(all)/size)
	}
	return all, found, nil
}

func (p *Puller) claimSome(ctx context.Context, r Pull) (lent []Lent, found bool, err error) {
	id, alive := p.heart.Worker()
	r.Queues = p.open(r.Queues)
	r.Limit = min(r.Limit, MaxLent-p.Lent())
	if !alive || len(r.Queues) == 0 || r.Limit <= 0 || ctx.Err() != nil {
		return nil, false, nil
	}
	if n := rand.IntN(len(r.Queues)); n > 0 { // each queue gets its turn at being first
		r.Queues = append(append([]string{}, r.Queues[n:]...), r.Queues[:n]...)
	}
	request := store.ClaimRequest{Worker: id, Queues: r.Queues, Limit: r.Limit, Token: store.NewToken(),
		Running: p.Lent()}
	p.ask(request.Token, true)
	defer p.ask(request.Token, false)
	// The caller may go away, but what was claimed for it must be known.
	sure, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	tasks, err := p.client.store.Claim(sure, request)
	switch {
	case errors.Is(err, store.ErrWorkerDead):
		p.heart.Renew(id)
		return nil, false, nil
	case err != nil:
		request.Again = true
		p.mu.Lock()
		p.lost = append(p.lost, request)
		p.mu.Unlock()
		return nil, false, err
	}
	lent, err = p.lend(sure, ctx, tasks, r.Lease)
	return lent, len(tasks) > 0, err
}

// ask records that a claim is in progress or has ended.
func (p *Puller) ask(token store.Token, underWay bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if underWay {
		p.asked[token] = true
	} else {
		delete(p.asked, token)
	}
}

// holds returns the leases of all tasks that are lent, requested, or possibly claimed.
func (p *Puller) holds() []store.Token {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := maps.Clone(p.asked)
	for _, r := range p.lost {
		all[r.Token] = true
	}
	for r := range p.lent {
		all[r.Lease] = true
	}
	return slices.Collect(maps.Keys(all))
}

// lend records who has which task. Tasks that are too late to start, or whose worker has gone in the meantime, are
// finished or handed back at once.
func (p *Puller) lend(sure, asker context.Context, tasks []store.Task, span time.Duration) ([]Lent, error) {
	var lent []Lent
	var outcomes []store.Outcome
	waits := p.client.awaitRuns(sure, tasks)
	now := time.Now()
	for i := range tasks {
		t := &tasks[i]
		var info TaskInfo
		err := errors.Join(lifecycle.Damaged(t), info.read(t))
		if ring := p.client.config.KeyRing; err == nil && ring != nil && !payload.Reserved(t.Args) {
			info.Args, err = ring.unseal(t.Args, t.Kind, t.Key, t.ID)
		}
		switch {
		case expired(t):
			outcomes = append(outcomes, lifecycle.Expired(t))
		case err == nil && late(t, info.Deadline):
			outcomes = append(outcomes, lifecycle.Late(t))
		case asker.Err() != nil || p.isClosed():
			outcomes = append(outcomes, lifecycle.After(t, lifecycle.Settings{}, lifecycle.End{Err: ErrShutdown}, 0))
		case err != nil:
			outcomes = append(outcomes, p.judge(t, Verdict{Err: err}))
		case waits[i] != nil:
			outcomes = append(outcomes, p.judge(t, Verdict{Err: waits[i]}))
		default:
			kept := *t
			kept.Args = nil // the holder of the lease has them
			l := &loan{Attempt: &run.Attempt{Task: &kept}, begun: now}
			if info.Timeout > 0 {
				l.end = now.Add(info.Timeout)
				l.over = fmt.Errorf("%w after %s", ErrTimeout, duration.Text(info.Timeout))
			}
			if !info.Deadline.IsZero() {
				if end := now.Add(info.Deadline.Sub(t.ClaimedAt)); l.end.IsZero() || end.Before(l.end) {
					l.end, l.over = end, ErrDeadline
				}
			}
			l.until = l.bound(now.Add(span))
			r := Receipt{ID: t.ID, Lease: t.Lease}
			p.mu.Lock()
			p.lent[r] = l
			p.mu.Unlock()
			lent = append(lent, Lent{TaskInfo: info, Receipt: r, Until: l.until})
		}
	}
	if len(outcomes) > 0 {
		if _, err := p.client.store.Finish(sure, outcomes); err != nil {
			p.keep(outcomes, now)
			return lent, nil
		}
	}
	return lent, nil
}

// keep marks tasks that could not be handed back as overdue, so that the sweep tries again.
func (p *Puller) keep(outcomes []store.Outcome, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range outcomes {
		l := &loan{Attempt: &run.Attempt{Task: o.Task}, begun: now, until: now}
		l.Stop(ErrShutdown)
		p.lent[Receipt{ID: o.Task.ID, Lease: o.Task.Lease}] = l
	}
}

func (l *loan) bound(until time.Time) time.Time {
	if !l.end.IsZero() && until.After(l.end) {
		return l.end
	}
	return until
}

// decide returns the outcome for a verdict. A completed stage of a pipeline moves on. An error comes from the
// database, or from a hook after the caller has gone away; the outcome is then unknown.
func (p *Puller) decide(ctx context.Context, t *store.Task, v Verdict) (store.Outcome, error) {
	var then []store.NewTask
	jump := new(goTo)
	if jumps := errors.As(v.Err, &jump); v.Err == nil || jumps {
		var info TaskInfo
		err := info.read(t)
		if err == nil {
			then, err = p.client.forward(ctx, &info, v.Output, v.Err)
		}
		ends := errors.As(err, new(*lifecycle.StopError)) || errors.As(err, new(*hookError))
		if err != nil && (!ends || ctx.Err() != nil) {
			return store.Outcome{}, err
		}
		v.Err = err
	}
	out := p.judge(t, v)
	if out.State == store.Completed {
		out.Then = then
	}
	return out, nil
}

// judge converts a verdict into the outcome of the attempt.
func (p *Puller) judge(t *store.Task, v Verdict) store.Outcome {
	settings, problem := lifecycle.DecodeSettings(t.Settings)
	if v.Err == nil {
		v.Err = problem
	}
	end := lifecycle.End{Err: v.Err, Trace: v.Trace, Ran: max(time.Since(t.ClaimedAt), 0)}
	p.mu.Lock()
	l := p.lent[v.Receipt]
	p.mu.Unlock()
	var note *store.Note
	if l != nil {
		end.Ran = time.Since(l.begun)
		note = l.Final()
	} else if a := p.guests.attempt(v.Receipt); a != nil {
		note = a.Final()
	}
	if len(v.Output) > 0 {
		if note == nil {
			note = &store.Note{}
		}
		note.Output = v.Output
	}
	out := lifecycle.After(t, settings, end, rand.Float64())
	out.Note = note
	return out
}

func (p *Puller) sweepOnce(ctx context.Context) (time.Duration, error) {
	const every = 250 * time.Millisecond
	if err := p.settle(ctx); err != nil {
		return 0, err
	}
	p.guests.expire()
	if p.overdue() {
		if err := p.heed(ctx); err != nil {
			return 0, err
		}
	}
	return every, p.end(ctx, p.takeBack())
}

// overdue reports whether the time of a loan is over.
func (p *Puller) overdue() bool {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lent {
		if now.After(l.until) {
			return true
		}
	}
	return false
}

// takeBack returns the outcomes of loans whose time is over. From then on they cannot be extended.
func (p *Puller) takeBack() (outcomes []store.Outcome) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lent {
		if now.After(l.until) && len(outcomes) < MaxPull {
			l.taken = true
			outcomes = append(outcomes, overdue(l))
		}
	}
	return outcomes
}

func overdue(l *loan) store.Outcome {
	settings, _ := lifecycle.DecodeSettings(l.Task.Settings)
	end := lifecycle.End{Err: errOverdue, Ran: time.Since(l.begun)}
	if cause := l.Stopped(); cause != nil {
		end.Err = cause
	} else if l.over != nil && !l.until.Before(l.end) {
		end.Err = l.over
	}
	out := lifecycle.After(l.Task, settings, end, rand.Float64())
	out.Note = l.Final()
	return out
}

// settle repeats claims whose answer was lost, and hands back the tasks that they had claimed.
func (p *Puller) settle(ctx context.Context) error {
	for {
		p.mu.Lock()
		if len(p.lost) == 0 {
			p.mu.Unlock()
			return nil
		}
		request := p.lost[0]
		p.mu.Unlock()
		tasks, err := p.client.store.Claim(ctx, request)
		if err != nil && !errors.Is(err, store.ErrWorkerDead) {
			return err
		}
		var outcomes []store.Outcome
		for i := range tasks {
			end := lifecycle.End{Err: ErrShutdown}
			outcomes = append(outcomes, lifecycle.After(&tasks[i], lifecycle.Settings{}, end, 0))
		}
		p.keep(outcomes, time.Now())
		p.mu.Lock()
		p.lost = slices.DeleteFunc(p.lost, func(r store.ClaimRequest) bool { return r.Token == request.Token })
		p.mu.Unlock()
	}
}

func (p *Puller) end(ctx context.Context, outcomes []store.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	_, err := p.client.store.Finish(ctx, outcomes)
	held := new(store.HeldError)
	if err != nil && !errors.As(err, &held) {
		return err
	}
	var ended []store.Outcome
	for _, o := range outcomes {
		if r := (Receipt{ID: o.Task.ID, Lease: o.Task.Lease}); slices.Contains(held.Tasks, o.Task.ID) {
			p.giveBack(r)
		} else {
			ended = append(ended, o)
			p.forget(r)
		}
	}
	p.client.ended(ended, nil)
	return nil // what is held is tried again, and holds up no other
}

// giveBack lets a loan be extended again, because its attempt could not be ended.
func (p *Puller) giveBack(r Receipt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lent[r]; l != nil {
		l.taken = false
	}
}

// handBack returns all lent tasks, without counting the attempts. It tries until ctx ends.
func (p *Puller) handBack(ctx context.Context) error {
	p.mu.Lock()
	for _, l := range p.lent {
		l.Stop(ErrShutdown)
		l.until = time.Time{}
	}
	p.mu.Unlock()
	for before := p.Lent(); before > 0; before = p.Lent() {
		_, err := p.sweepOnce(ctx)
		if err == nil && p.Lent() < before {
			continue
		}
		select { // the others are held, or the database failed
		case <-ctx.Done():
			return fmt.Errorf("hand back: %w", cmp.Or(err, ctx.Err()))
		case <-time.After(handBackAgain):
		}
	}
	return nil
}

func (p *Puller) forget(r Receipt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lent, r)
}

// forgetAll drops leases that are lost together with the worker that held them.
func (p *Puller) forgetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.lent)
	p.lost = nil
}

const (
	rememberedVerdicts = 10000
	handBackAgain      = 100 * time.Millisecond // between tries to hand back tasks
)

func (p *Puller) remember(v Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.order) == rememberedVerdicts {
		delete(p.ended, p.order[0])
		p.order = p.order[1:]
	}
	p.ended[v.Receipt] = fmt.Sprintf("%T %v", v.Err, v.Err)
	p.order = append(p.order, v.Receipt)
}

// turn waits until no other call of Finish ends one of the leases. It keeps later ones waiting until done is called.
func (p *Puller) turn(ctx context.Context, receipts []Receipt) (done func(), err error) {
	mine := make(chan struct{})
	for {
		p.mu.Lock()
		var other chan struct{}
		for _, r := range receipts {
			if other = p.ending[r]; other != nil {
				break
			}
		}
		if other == nil {
			for _, r := range receipts {
				p.ending[r] = mine
			}
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				for _, r := range receipts {
					delete(p.ending, r)
				}
				close(mine)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// again judges a verdict on a lease that has ended.
func (p *Puller) again(v Verdict) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, known := p.ended[v.Receipt]; known && before == fmt.Sprintf("%T %v", v.Err, v.Err) {
		return nil
	}
	return ErrLeaseLost
}

func (p *Puller) notes() []store.Note {
	var notes []store.Note
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lent {
		if n := l.Interim(); n != nil {
			notes = append(notes, *n)
		}
	}
	for _, a := range p.guests.attempts() {
		if n := a.Interim(); n != nil {
			notes = append(notes, *n)
		}
	}
	return notes
}

func (p *Puller) noted(notes []store.Note) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range notes {
		if l := p.lent[Receipt{ID: notes[i].ID, Lease: notes[i].Lease}]; l != nil {
			l.Noted(&notes[i])
		} else if a := p.guests.attempt(Receipt{ID: notes[i].ID, Lease: notes[i].Lease}); a != nil {
			a.Noted(&notes[i])
		}
	}
}

func (p *Puller) stop(stops []store.Stop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range stops {
		if l := p.lent[Receipt{ID: s.ID, Lease: s.Lease}]; l != nil {
			l.Stop(ErrCancelled)
		}
	}
}

func (p *Puller) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// open returns the queues that are not paused. Until the settings are known, it returns none.
func (p *Puller) open(queues []string) []string {
	p.queues.mu.Lock()
	defer p.queues.mu.Unlock()
	if p.queues.paused == nil {
		return nil
	}
	var open []string
	for _, q := range queues {
		if !p.queues.paused[q] {
			open = append(open, q)
		}
	}
	return open
}
