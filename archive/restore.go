package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const restoreKind = "archive-restore"

// RestoreState is the state of a restore.
type RestoreState string

// The states of a restore.
const (
	RestoreWaiting   RestoreState = "waiting" // for a process that archives, or until another one has finished
	RestoreDone      RestoreState = "done"
	RestoreCancelled RestoreState = "cancelled"
)

// Restore is a request to put finished tasks of the archive back into the database, under their own
// ids: named tasks, or all that match a query. They then leave the archive.
type Restore struct {
	ID    store.ID     `json:"id"`
	State RestoreState `json:"state"`
	IDs   []store.ID   `json:"ids,omitempty"` // empty if Query selects them
	Query Query        `json:"query"`

	By  string `json:"by,omitempty"`
	Via string `json:"via,omitempty"`

	Expected int64  `json:"expected,omitempty"` // how many tasks were counted before; 0 if unknown
	Restored int64  `json:"restored"`
	Skipped  int64  `json:"skipped"`        // skipped: the database has them, or a hold covers them
	Left     []Left `json:"left,omitempty"` // the first skipped tasks, at most 20

	At              time.Time `json:"at"`               // when it was requested, by the requester's clock
	Done            time.Time `json:"done_at,omitzero"` // by the database's clock
	CancelRequested bool      `json:"cancel_requested,omitempty"`
	Error           string    `json:"error,omitempty"`  // why it failed; it is retried
	Counted         store.ID  `json:"counted,omitzero"` // the last change to the archive that Restored includes
}

// Left is a skipped task, and why.
type Left struct {
	ID  store.ID `json:"id"`
	Why string   `json:"why"`
}

// Ended reports whether the restore has ended.
func (t *Restore) Ended() bool { return t.State != RestoreWaiting }

const (
	mostLeft  = 20
	keepEnded = 200 // ended restores
)

// MostNamed is how many tasks a restore may name.
const MostNamed = 1000

// ErrNoRestore says that an engine cannot take tasks back.
var ErrNoRestore = errors.New("the database's engine takes no tasks back from an archive: run them again instead")

// CanRestore checks whether a database can take tasks back. The error is ErrNoRestore.
func CanRestore(s store.Store) error {
	if _, ok := store.As[store.Restorer](s); !ok {
		return ErrNoRestore
	}
	return nil
}

// RequestRestore asks for tasks to be restored. It sets State and the counts. A process that
// archives carries it out, or Runner.Restore does. The error is ErrNoRestore if the engine cannot
// take tasks back.
func RequestRestore(ctx context.Context, s store.Store, t Restore) (Restore, error) {
	if err := CanRestore(s); err != nil {
		return t, err
	}
	if len(t.IDs) > MostNamed {
		return t, fmt.Errorf("%d tasks are named: a restore takes %d at most", len(t.IDs), MostNamed)
	}
	slices.SortFunc(t.IDs, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	t.IDs = slices.Compact(t.IDs)
	t.State, t.At, t.CancelRequested = RestoreWaiting, time.Now().UTC(), false
	t.Restored, t.Skipped, t.Left = 0, 0, nil
	return t, change(ctx, s, restoreKind, t.ID.String(), func(*Restore, bool) (*Restore, error) { return &t, nil })
}

// Restores returns the unfinished requests and the latest ended ones, oldest first.
func Restores(ctx context.Context, s store.Recorder) ([]Restore, error) {
	return documents[Restore](ctx, s, restoreKind)
}

// ReadRestore returns a request. The error is ErrNoSuchRestore if it does not exist.
func ReadRestore(ctx context.Context, s store.Recorder, id store.ID) (Restore, error) {
	t, r, err := document[Restore](ctx, s, restoreKind, id.String())
	if err == nil && r.Version == 0 {
		err = fmt.Errorf("restore %v: %w", id, ErrNoSuchRestore)
	}
	return t, err
}

// ErrNoSuchRestore says that there is no restore with a given id.
var ErrNoSuchRestore = errors.New("there is no such restore")

// CancelRestore makes a restore stop after its current tasks. The tasks that it has put back stay.
// The error is ErrNoSuchRestore if it does not exist.
func CancelRestore(ctx context.Context, s store.Recorder, id store.ID) error {
	return changeRestore(ctx, s, id, func(t *Restore) { t.CancelRequested = !t.Ended() })
}

func changeRestore(ctx context.Context, s store.Recorder, id store.ID, edit func(*Restore)) error {
	return change(ctx, s, restoreKind, id.String(), func(t *Restore, exists bool) (*Restore, error) {
		if !exists {
			return nil, fmt.Errorf("restore %v: %w", id, ErrNoSuchRestore)
		}
		edit(t)
		return t, nil
	})
}
