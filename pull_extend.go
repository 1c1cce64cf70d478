package tusk

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// Extension requests more time for a task and reports the worker's progress.
type Extension struct {
	Receipt  Receipt
	Lease    time.Duration   // from now; default: 30 s
	Progress *store.Progress // optional
	Logs     []string
}

// Extended is the answer to an Extension.
type Extended struct {
	Until     time.Time // the new end of the lease
	Cancelled bool      // the task has been cancelled
	// Err is nil, ErrLeaseLost or an *InvalidError. For a task that another process lent, it may also be
	// ErrLentElsewhere or an error of the database; then extend again.
	Err error
}

// Extend gives workers more time for their tasks, and answers in the same order. Another process of the same database
// may have lent them. If such a loan is extended in several processes, the latest end counts.
func (p *Puller) Extend(ctx context.Context, extensions ...Extension) []Extended {
	results := make([]Extended, len(extensions))
	var others []Extension
	var index []int
	for i := range extensions {
		e := &extensions[i]
		if results[i].Err = pullLease(&e.Lease); results[i].Err != nil {
			continue
		}
		var own bool
		if results[i], own = p.extend(e); !own {
			others, index = append(others, *e), append(index, i)
		}
	}
	if len(others) > 0 {
		for n, answer := range p.extendGuests(ctx, others) {
			results[index[n]] = answer
		}
	}
	return results
}

// extend extends a loan, if it is one of this puller's.
func (p *Puller) extend(e *Extension) (answer Extended, own bool) {
	p.mu.Lock()
	l := p.lent[e.Receipt]
	taken := l != nil && l.ending()
	if l != nil && !taken {
		l.until = l.bound(time.Now().Add(e.Lease))
		answer.Until = l.until
	}
	p.mu.Unlock()
	switch {
	case l == nil:
		return answer, false
	case taken:
		return Extended{Err: ErrLeaseLost}, true
	}
	e.note(l.Attempt)
	answer.Cancelled = errors.Is(l.Stopped(), ErrCancelled)
	return answer, true
}

func (e *Extension) note(a *run.Attempt) {
	if e.Progress != nil {
		a.SetProgress(store.Progress{Percent: e.Progress.Percent,
			Message: lifecycle.Clean(e.Progress.Message, 1<<10)})
	}
	for _, line := range e.Logs {
		a.Log(time.Now(), "INFO", lifecycle.Clean(line, 8<<10))
	}
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
