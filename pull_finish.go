package tusk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Finish ends attempts and returns, in the same order, nil, ErrLeaseLost or an *InvalidError for each. After an
// *InvalidError the task stays lent: it cannot follow a GoTo, a child cannot be enqueued, or Wait has no children.
// Repeating a verdict is not an error and enqueues no child twice, so repeat the call if it returns an error itself. A
// verdict that was accepted before is not validated again.
func (p *Puller) Finish(ctx context.Context, verdicts []Verdict) ([]error, error) {
	if len(verdicts) > MaxPull {
		return nil, invalid("leases", "batch_too_large", "has %d leases, at most %d are allowed", len(verdicts),
			MaxPull)
	}
	receipts := make([]Receipt, len(verdicts))
	for i, v := range verdicts {
		receipts[i] = v.Receipt
	}
	tasks, err := p.Find(ctx, receipts)
	if err != nil {
		return nil, err
	}
	if err := p.pass(ctx, verdicts, tasks); err != nil {
		return nil, err
	}
	results := make([]error, len(verdicts))
	var outcomes []store.Outcome
	first := map[Receipt]int{} // the verdict that ends each attempt; later ones in the same call repeat it
	for i, v := range verdicts {
		if _, repeats := first[v.Receipt]; repeats || tasks[i] == nil {
			continue
		}
		out, err := p.decide(ctx, tasks[i], v)
		if errors.Is(err, ErrInvalid) {
			results[i] = err
			continue
		} else if err != nil {
			return nil, fmt.Errorf("finish: %w", err)
		}
		outcomes, first[v.Receipt] = append(outcomes, out), i
	}
	done, err := p.turn(ctx, receipts)
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	defer done()
	for i, v := range verdicts {
		if tasks[i] == nil {
			results[i] = p.again(v)
		}
	}
	if len(outcomes) == 0 {
		return results, p.recognize(ctx, verdicts, results)
	}
	// If the caller disconnects, the ended leases must still be known when it repeats the verdict.
	end := time.Now().Add(10 * time.Second)
	if asked, ok := ctx.Deadline(); ok && asked.After(end) {
		end = asked
	}
	sure, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	lost, err := p.client.store.Finish(sure, outcomes)
	held := new(store.HeldError)
	some := errors.As(err, &held) // the others are written
	if err != nil && !errors.Is(err, store.ErrNotCommitted) {
		for i := range outcomes {
			if o := &outcomes[i]; !some || slices.Contains(held.Tasks, o.Task.ID) {
				p.remember(verdicts[first[Receipt{o.Task.ID, o.Task.Lease}]], unsureOf(o))
			}
		}
	}
	if err != nil && !some {
		return nil, err
	}
	gone := map[ID]bool{}
	for _, id := range lost {
		gone[id] = true
	}
	for _, id := range held.Tasks {
		gone[id] = true
	}
	p.client.ended(outcomes, gone)
	for i, v := range verdicts {
		if tasks[i] == nil || results[i] != nil || slices.Contains(held.Tasks, v.Receipt.ID) {
			continue
		}
		if gone[v.Receipt.ID] || first[v.Receipt] != i {
			results[i] = p.again(v)
		} else {
			p.remember(v, nil)
		}
		p.forget(v.Receipt)
		p.guests.drop(v.Receipt)
	}
	if err != nil {
		return nil, err
	}
	return results, p.recognize(ctx, verdicts, results)
}

// decide returns the outcome for a verdict. A completed stage of a pipeline moves on. An *InvalidError is about the
// GoTo, the output or the children. Any other error comes from the caller's stream, from the database, or from a hook
// after the caller has disconnected; the outcome is then unknown.
func (p *Puller) decide(ctx context.Context, t *store.Task, v Verdict) (store.Outcome, error) {
	goes := errors.As(v.Err, new(*goTo))
	if goes {
		if _, _, err := p.client.follows(ctx, t.Kind, v.Err); err != nil {
			return store.Outcome{}, err
		}
	}
	completes := v.Err == nil || goes
	if completes && v.Stream != nil {
		var err error
		if v.Output, err = p.client.readOutput(ctx, v.Receipt.ID, v.Stream); err != nil {
			return store.Outcome{}, err
		}
	}
	a := &run.Attempt{Task: t}
	if completes || errors.Is(v.Err, lifecycle.ErrWait) {
		var info TaskInfo
		err := info.read(t)
		if err == nil {
			err = p.addChildren(ctx, a, &info, v)
		}
		if errors.Is(err, ErrInvalid) {
			return store.Outcome{}, err
		}
		if err == nil && completes {
			var then []store.NewTask
			then, err = p.client.forward(ctx, &info, v.Output, v.Err)
			a.SetNext(then)
		}
		ends := errors.As(err, new(*lifecycle.StopError)) || errors.As(err, new(*hookError))
		if err != nil && (!ends || ctx.Err() != nil) {
			return store.Outcome{}, err
		}
		if err != nil || completes {
			v.Err = err
		}
	}
	out := p.judge(t, v)
	addTasks(&out, a)
	return out, nil
}

// judge converts a verdict into the outcome of the attempt.
func (p *Puller) judge(t *store.Task, v Verdict) store.Outcome {
	settings, problem := lifecycle.DecodeSettings(t.Settings)
	if v.Err == nil {
		v.Err = problem
	}
	end := lifecycle.End{Err: v.Err, Trace: v.Trace, Ran: max(time.Since(t.ClaimedAt), 0), Children: len(v.Children) > 0}
	p.mu.Lock()
	l := p.lent[v.Receipt]
	p.mu.Unlock()
	if l != nil {
		end.Ran = time.Since(l.begun)
	}
	out := lifecycle.After(t, settings, end, rand.Float64())
	if a := p.attempt(v.Receipt); a != nil {
		out.Note = noteOf(a, out.State)
	}
	if len(v.Output) > 0 {
		if out.Note == nil {
			out.Note = &store.Note{}
		}
		out.Note.Output = v.Output
	}
	return out
}

// turn waits until no other call of Finish ends one of the leases. Later calls wait until done is called.
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
