package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const holdKind = "archive-hold"

// Hold is a legal hold. What it holds is neither pruned nor erased. Empty fields match everything.
type Hold struct {
	Name   string    `json:"name"`
	Queue  string    `json:"queue,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	From   time.Time `json:"from,omitzero"`  // tasks that ended at this time or later
	Until  time.Time `json:"until,omitzero"` // tasks that ended before this time
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"` // when it was put, by the clock of the process that put it
}

// of returns how much of a file the hold covers, as far as the manifest tells.
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

// of returns how much of a file one of the holds covers: the largest share.
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

// PutHold adds a hold, or changes the hold with the same name. Once it has returned, no held task
// is deleted any more: it waits for changes to the archive that began earlier. ErrStillChanging
// says that the hold is in place, but such a change has not ended within patience.
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

// ErrStillChanging says that a hold is in place, but a process that began to delete before it has
// not ended. That process may still delete tasks that the hold covers.
var ErrStillChanging = errors.New(
	"the hold is put, but a process that deletes tasks began before it and has not ended: try again to know that it has")

// RemoveHold removes a hold. The error is ErrNoHold if there is none of that name.
func RemoveHold(ctx context.Context, s store.Recorder, name string) error {
	return change(ctx, s, holdKind, name, func(_ *Hold, exists bool) (*Hold, error) {
		if !exists {
			return nil, fmt.Errorf("hold %q: %w", name, ErrNoHold)
		}
		return nil, nil
	})
}

// ErrNoHold says that there is no hold with a given name.
var ErrNoHold = errors.New("there is no such hold")
