package tusk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

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
	lost, err := p.client.store.Finish(ctx, outcomes)
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
			if !slices.Contains(lost, o.Task.ID) {
				p.disprove(r)
			}
			p.forget(r)
		}
	}
	p.client.ended(ended, nil)
	return nil // locked tasks are retried, without delaying others
}

// giveBack lets a loan be extended again, because its attempt could not be ended.
func (p *Puller) giveBack(r Receipt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lent[r]; l != nil {
		l.taken = false
	}
}

// handBack returns all lent tasks, and those of claims in progress, without counting the attempts. It tries until ctx
// ends.
func (p *Puller) handBack(ctx context.Context) error {
	for len(p.holds()) > 0 {
		before := p.stopAll()
		_, err := p.sweepOnce(ctx)
		if err == nil && p.Lent() < before {
			continue
		}
		select { // a claim has no answer yet, tasks are held, or the database failed
		case <-ctx.Done():
			return fmt.Errorf("hand back: %w", cmp.Or(err, ctx.Err()))
		case <-time.After(handBackAgain):
		}
	}
	return nil
}

// stopAll makes all loans overdue and returns their number.
func (p *Puller) stopAll() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lent {
		l.Stop(ErrShutdown)
		l.until = time.Time{}
	}
	return len(p.lent)
}
