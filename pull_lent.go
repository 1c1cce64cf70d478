package tusk

import (
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
	if p.isClosed() { // the shutdown waits for claims in progress, and must not wait for new ones
		return nil, false, ErrShutdown
	}
	// If the caller disconnects, what was claimed for it must still be known.
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
	if now, _ := p.heart.Worker(); now != id { // the answer came late: no heartbeat extends these leases
		p.recall(lent)
		return nil, len(tasks) > 0, nil
	}
	return lent, len(tasks) > 0, err
}

// recall ends loans that nobody has received yet. The sweep hands the tasks back.
func (p *Puller) recall(lent []Lent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range lent {
		if l := p.lent[lent[i].Receipt]; l != nil { // otherwise it was given up with the identity
			l.Stop(ErrShutdown)
			l.until = time.Time{}
		}
	}
}

// ask records whether a claim is in progress.
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

// lend records who has which task. Tasks that are too late to start, or whose worker has disconnected in the
// meantime, are finished or handed back at once.
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
