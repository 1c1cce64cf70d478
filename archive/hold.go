package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const holdKind = "archive-hold"

// Hold is a legal hold: what it holds is neither pruned nor erased. What is empty holds all.
type Hold struct {
	Name   string    `json:"name"`
	Queue  string    `json:"queue,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	From   time.Time `json:"from,omitzero"`  // tasks that ended then or later
	Until  time.Time `json:"until,omitzero"` // tasks that ended before
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"` // when it was put; by the clock of who put it
}

// of returns how much of a file a hold holds, as far as the manifest tells.
func (h *Hold) of(f *File) share {
	switch {
	case h.Queue != "" && h.Queue != f.Queue, !h.Until.IsZero() && !f.From.Before(h.Until), !h.From.IsZero() &&
		f.Until.Before(h.From):
		return none
	case h.Tenant != "" && len(f.Tenants) > 0 && !f.has(h.Tenant):
		return none
	case h.Tenant != "" && (len(f.Tenants) != 1 || f.Tenants[0] != h.Tenant):
		return some
	case !h.From.IsZero() && f.From.Before(h.From), !h.Until.IsZero() && !f.Until.Before(h.Until):
		return some
	}
	return all
}

func (h *Hold) row(f *File, r *Row) bool {
	end := instant(r.FinishedAt)
	return (h.Queue == "" || h.Queue == f.Queue) && (h.Tenant == "" || h.Tenant == r.Tenant) &&
		(h.From.IsZero() || !end.Before(h.From)) && (h.Until.IsZero() || end.Before(h.Until))
}

type holds []Hold

// of returns how much of a file is held: by one of the holds, or by all of them together.
func (h holds) of(f *File) (most share) {
	for i := range h {
		most = max(most, h[i].of(f))
	}
	return most
}

// row reports whether a row is held.
func (h holds) row(f *File, r *Row) bool {
	for i := range h {
		if h[i].row(f, r) {
			return true
		}
	}
	return false
}

// Holds returns all holds, by name.
func Holds(ctx context.Context, s store.Recorder) ([]Hold, error) {
	return documents[Hold](ctx, s, holdKind)
}

// PutHold puts a hold, or changes the one of that name. When it returns, nothing that is held is
// deleted any more: a change to the archive that began before is waited for. The error
// ErrStillChanging says that the hold is put, and such a change has not ended within patience.
func PutHold(ctx context.Context, s store.Recorder, h Hold, patience time.Duration) error {
	err := change(ctx, s, holdKind, h.Name, func(before *Hold, exists bool) (*Hold, error) {
		if exists {
			h.At = before.At
		}
		return &h, nil
	})
	if err != nil {
		return err
	}
	begun, _, err := document[Note](ctx, s, recordKind, noteName)
	for now, end := begun, time.Now().Add(patience); err == nil && now.Change && now.Batch == begun.Batch; {
		if time.Now().After(end) {
			return ErrStillChanging
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		now, _, err = document[Note](ctx, s, recordKind, noteName)
	}
	return err
}

// ErrStillChanging says that a hold is put, and that a process which began to delete before has
// not ended: what it had begun with may still go.
var ErrStillChanging = errors.New(
	"the hold is put, but a process that deletes tasks began before it and has not ended: try again to know that it has")

// RemoveHold ends a hold. The error is ErrNoHold.
func RemoveHold(ctx context.Context, s store.Recorder, name string) error {
	return change(ctx, s, holdKind, name, func(_ *Hold, exists bool) (*Hold, error) {
		if !exists {
			return nil, fmt.Errorf("hold %q: %w", name, ErrNoHold)
		}
		return nil, nil
	})
}

// ErrNoHold says that there is no hold of a name.
var ErrNoHold = errors.New("there is no such hold")
