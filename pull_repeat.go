package tusk

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// How pullers and workers recognize an end that the store has accepted in a call whose answer was lost.

const (
	rememberedVerdicts = 10000
	handBackAgain      = 100 * time.Millisecond // between tries to hand back tasks
	recognizeWithin    = 2 * time.Second        // for the reads of a worker
)

// given is a verdict that Finish has passed to the store.
type given struct {
	said string
	// unsure is what the store was to write, if its answer is not known; nil if it has accepted the verdict.
	unsure *unsure
}

// unsure is an end of an attempt that may have been stored.
type unsure struct {
	task    ID
	worker  ID
	claimed time.Time
	state   State
	text    string // the error
	forget  bool   // the task is deleted
}

func unsureOf(o *store.Outcome) *unsure {
	return &unsure{o.Task.ID, o.Task.Worker, o.Task.ClaimedAt, o.State, o.Error, o.Forget}
}

// said tells verdicts on a lease apart.
func said(v Verdict) string {
	text := fmt.Sprintf("%T %v", v.Err, v.Err)
	if len(v.Children) > 0 {
		children, _ := json.Marshal(v.Children) // children that cannot be encoded are refused
		text += fmt.Sprintf(" %x", sha256.Sum256(children))
	}
	return text
}

func (p *Puller) remember(v Verdict, u *unsure) {
	latest := given{said(v), u}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.ended[v.Receipt]; !known {
		if len(p.order) == rememberedVerdicts {
			delete(p.ended, p.order[0])
			p.order = p.order[1:]
		}
		p.order = append(p.order, v.Receipt)
	}
	p.ended[v.Receipt] = latest
}

// before returns the verdict that Finish has passed to the store, if v repeats it.
func (p *Puller) before(v Verdict) (given, bool) {
	p.mu.Lock()
	before, known := p.ended[v.Receipt]
	p.mu.Unlock()
	return before, known && before.said == said(v) // not under the lock: the children may be large
}

// again judges a verdict on a lease that has ended.
func (p *Puller) again(v Verdict) error {
	if before, repeats := p.before(v); repeats && before.unsure == nil {
		return nil
	}
	return ErrLeaseLost
}

// recognize corrects the results of verdicts that were refused because the store had accepted them before, in a call
// that failed. It returns an error if it cannot find out.
func (p *Puller) recognize(ctx context.Context, verdicts []Verdict, results []error) error {
	accepted, err := p.accepted(ctx, verdicts, func(i int) bool { return errors.Is(results[i], ErrLeaseLost) })
	for _, i := range accepted {
		results[i] = nil
	}
	return err
}

// pass sets to nil the tasks whose ends the store has accepted before, in a call that failed. A repeated verdict is
// not validated again: its children may be refused by now.
func (p *Puller) pass(ctx context.Context, verdicts []Verdict, tasks []*store.Task) error {
	accepted, err := p.accepted(ctx, verdicts, func(i int) bool { return tasks[i] != nil })
	for _, i := range accepted {
		r := verdicts[i].Receipt
		for n := range verdicts {
			if verdicts[n].Receipt == r {
				tasks[n] = nil
			}
		}
		p.forget(r)
		p.guests.drop(r)
	}
	return err
}

// accepted returns which of some verdicts repeat one that the store has accepted in a call that failed.
func (p *Puller) accepted(ctx context.Context, verdicts []Verdict, some func(i int) bool) (repeats []int, err error) {
	doubts := map[int]*unsure{}
	for i, v := range verdicts {
		if !some(i) {
			continue
		}
		if before, repeats := p.before(v); repeats && before.unsure != nil {
			doubts[i] = before.unsure
		}
	}
	stored, err := p.client.stored(ctx, slices.Collect(maps.Values(doubts)))
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	for i, u := range doubts {
		if stored[u] {
			p.remember(verdicts[i], nil)
			repeats = append(repeats, i)
		}
	}
	return repeats, nil
}

// disprove records that the store has not accepted an earlier verdict on a lease. Once another attempt has completed an
// ephemeral task, the task is deleted, and the database no longer shows which attempt that was.
func (p *Puller) disprove(r Receipt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.ended[r]; known {
		p.ended[r] = given{}
	}
}

// refused returns the tasks in lost whose outcomes the store has not accepted before either, in a call whose answer was
// lost.
func (c *Client) refused(outcomes []store.Outcome, lost map[ID]bool) map[ID]bool {
	var doubts []*unsure
	for i := range outcomes {
		if o := &outcomes[i]; lost[o.Task.ID] && o.Error != errUnproved.Error() {
			u := unsureOf(o)
			u.forget = u.forget && o.State == store.Completed // only a completion deletes the task
			doubts = append(doubts, u)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), recognizeWithin)
	defer cancel()
	stored, err := c.stored(ctx, doubts)
	if err != nil || len(stored) == 0 {
		return lost
	}
	lost = maps.Clone(lost)
	for u := range stored {
		delete(lost, u.task)
	}
	return lost
}

// stored returns the ends that are in the history of their tasks.
func (c *Client) stored(ctx context.Context, ends []*unsure) (map[*unsure]bool, error) {
	stored := map[*unsure]bool{}
	for some := range slices.Chunk(ends, guestDetail) {
		f := store.Filter{NoArgs: true, Detail: true, Limit: len(some)}
		for _, u := range some {
			f.IDs = append(f.IDs, u.task)
		}
		tasks, err := c.store.List(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, u := range some {
			at := slices.IndexFunc(tasks, func(t store.Task) bool { return t.ID == u.task })
			if at < 0 && u.forget || at >= 0 && u.in(tasks[at].Detail) {
				stored[u] = true
			}
		}
	}
	return stored, nil
}

// in reports whether the history of the task has this end. A task that would have run again may have been cancelled
// instead.
func (u *unsure) in(d *store.Detail) bool {
	return d != nil && slices.ContainsFunc(d.Attempts, func(a store.Attempt) bool {
		cancelled := a.Outcome == store.Cancelled && !u.state.Finished()
		return a.Worker == u.worker && a.StartedAt.Equal(u.claimed) && a.Error == u.text &&
			(a.Outcome == u.state || cancelled)
	})
}
