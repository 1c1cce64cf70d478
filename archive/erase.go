package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const erasureKind = "archive-erasure"

// ErasureState is the state of an erasure.
type ErasureState string

// The states of an erasure.
const (
	ErasureWaiting ErasureState = "waiting" // for a process that archives, or until another one has finished
	ErasureHeld    ErasureState = "held"    // only held tasks are left; it continues when holds change
	ErasureDone    ErasureState = "done"    // none of the tenant's tasks that ended before is in the archive
)

// Erasure is a request to delete all tasks of a tenant that are in the archive at the time of the
// deletion.
type Erasure struct {
	ID     store.ID     `json:"id"`
	Tenant string       `json:"tenant"`
	State  ErasureState `json:"state"`
	By     string       `json:"by,omitempty"`
	At     time.Time    `json:"at"`               // when it was requested, by the requester's clock
	Done   time.Time    `json:"done_at,omitzero"` // by the database's clock
	Tasks  int64        `json:"tasks"`            // deleted
	Files  int          `json:"files"`            // deleted, or rewritten without them
	Held   int64        `json:"held"`             // tasks that holds kept
	Holds  string       `json:"holds,omitempty"`  // the holds in force
	Error  string       `json:"error,omitempty"`  // why it failed; it is retried
}

// RequestErasure asks for a tenant's tasks to be deleted. A process that archives carries it out,
// or Erase does.
func RequestErasure(ctx context.Context, s store.Recorder, id store.ID, tenant, by string) (Erasure, error) {
	e := Erasure{ID: id, Tenant: tenant, State: ErasureWaiting, By: by, At: time.Now().UTC()}
	return e, putErasure(ctx, s, e)
}

func putErasure(ctx context.Context, s store.Recorder, e Erasure) error {
	return change(ctx, s, erasureKind, e.ID.String(), func(*Erasure, bool) (*Erasure, error) { return &e, nil })
}

// Erasures returns all requests, the oldest first. They are kept forever, as a record of the
// erasures.
func Erasures(ctx context.Context, s store.Recorder) ([]Erasure, error) {
	return documents[Erasure](ctx, s, erasureKind)
}

// owned is a cut of all that belongs to a tenant and is not held.
type owned struct {
	tenant string
	holds  holds
}

// of implements cut.
func (o owned) of(f *File) share {
	if len(f.Tenants) > 0 && !f.has(o.tenant) {
		return none
	}
	held := o.holds.of(f)
	switch {
	case held == all && len(f.Tenants) == 1:
		return none
	case held == none && len(f.Tenants) == 1:
		return all
	}
	return some
}

// row implements cut.
func (o owned) row(f *File, r *Row) bool {
	return r.Tenant == o.tenant && !o.holds.row(f, r)
}

// forgets implements cut.
func (o owned) forgets() bool { return true }

func (f *File) has(tenant string) bool { return slices.Contains(f.Tenants, tenant) }

// Erase carries out a request. It waits while another process changes the archive. The error is
// ErrBusy if a rerun reads the archive.
func (r *Runner) Erase(ctx context.Context, e Erasure, tell func(done, of int, gone Gone)) (Erasure, error) {
	return patiently(ctx, r, func(ctx context.Context) (Erasure, error) { return r.erase(ctx, e, tell) })
}

func (r *Runner) erase(ctx context.Context, e Erasure, tell func(done, of int, gone Gone)) (Erasure, error) {
	var inForce []Hold
	var at time.Time
	gone, err := r.cut(ctx, func(now time.Time) (_ cut, err error) {
		at = now
		inForce, err = Holds(ctx, r.o.Store)
		return owned{e.Tenant, inForce}, err
	}, tell)
	e.Tasks, e.Files = e.Tasks+gone.Tasks, e.Files+gone.Files
	var left Counted
	if err == nil {
		left, err = r.shelf.Count(ctx, Query{Tenants: []string{e.Tenant}}, 0, nil)
	}
	if err != nil {
		if atWork(err) {
			return e, err
		}
		e.Error = err.Error()
		return e, errors.Join(err, putErasure(ctx, r.o.Store, e))
	}
	switch e.Error, e.Held = "", left.Tasks; {
	case left.Tasks == 0:
		e.State, e.Done = ErasureDone, at
	case len(inForce) == 0: // archived since
		return e, store.ErrConflict
	default:
		e.State = ErasureHeld
	}
	if e.Holds, err = holdsInForce(inForce); err != nil {
		return e, err
	}
	return e, putErasure(ctx, r.o.Store, e)
}

func holdsInForce(holds []Hold) (string, error) {
	if len(holds) == 0 {
		return "", nil
	}
	text, err := json.Marshal(holds)
	return string(text), err
}

// eraseAll carries out the waiting requests, and held ones if the holds have changed. Requests that
// have failed before are tried only if again is true. A request records why it fails, and does not
// delay the others; the error is the first one's.
func (r *Runner) eraseAll(ctx context.Context, again bool) (failed error) {
	erasures, err := Erasures(ctx, r.o.Store)
	if err != nil {
		return err
	}
	for _, e := range erasures {
		if e.State == ErasureDone || e.Error != "" && !again {
			continue
		}
		if e.State == ErasureHeld {
			holds, err := Holds(ctx, r.o.Store)
			if err != nil {
				return err
			}
			if now, err := holdsInForce(holds); err != nil || now == e.Holds {
				continue
			}
		}
		e, err = r.erase(ctx, e, nil)
		if atWork(err) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			err = fmt.Errorf("erase the tenant %q: %w", e.Tenant, err)
			r.o.Log.Warn("archive", "erasure", e.ID, "error", err)
			if failed == nil {
				failed = err
			}
			continue
		}
		r.o.Log.Info("erased", "erasure", e.ID, "tenant", e.Tenant, "state", e.State, "tasks", e.Tasks, "files", e.Files,
			"held", e.Held)
	}
	return failed
}

// Erasable returns what an erasure would delete now.
func (a *Archive) Erasable(ctx context.Context, s store.Recorder, tenant string) (Gone, error) {
	holds, err := Holds(ctx, s)
	if err != nil {
		return Gone{}, err
	}
	return a.would(ctx, owned{tenant, holds})
}

// patiently repeats do while another process works on the archive, and keeps the note alive
// meanwhile.
func patiently[T any](ctx context.Context, r *Runner, do func(context.Context) (T, error)) (done T, err error) {
	for {
		err = r.holding(ctx, func(ctx context.Context) (err error) {
			done, err = do(ctx)
			return err
		})
		if !errors.Is(err, store.ErrConflict) {
			return done, err
		}
		select {
		case <-ctx.Done():
			return done, errors.Join(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
