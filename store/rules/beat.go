package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Standing is what an engine knows of a worker. Engines in SQL keep the number of one
// that is known.
type Standing int

const (
	Unheard   Standing = iota - 1 // it has never beaten
	Living                        // it has beaten, and neither left nor died since
	Dead                          // it was declared dead
	SignedOff                     // it has said that it leaves
)

// Beat says whether a beat changes anything, by how its worker stands and which was its last
// beat: one that signs off and is not known, or has signed off before, changes nothing. A
// worker that is dead stays so, and no beat counts that was overtaken by a later one.
func Beat(b *store.Beat, is Standing, last int64) (counts bool, err error) {
	leaves := b.TTL <= 0
	switch {
	case leaves && (is == Unheard || is == SignedOff):
		return false, nil
	case is == Dead || is == SignedOff:
		return false, store.ErrWorkerDead
	case is == Living && b.Seq > 0 && b.Seq <= last:
		return false, store.ErrLate
	}
	return true, nil
}

// NoteApart stores notes one by one, and returns the error of each. After one that the others would
// meet as well they are not tried, and have the same.
func NoteApart(ctx context.Context, notes []store.Note, write func(n *store.Note) error) []error {
	errs := make([]error, len(notes))
	for i := range notes {
		if i > 0 && hopeless(ctx, errs[i-1]) {
			errs[i] = errs[i-1]
			continue
		}
		errs[i] = write(&notes[i])
	}
	return errs
}

// hopeless reports whether an error is one of all that is asked for now.
func hopeless(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil)
}

// Noted is what a beat that counts answers when its notes met these errors: it counts all the same,
// and a HeldError names the tasks of those that are not stored.
func Noted(notes []store.Note, errs []error) error {
	var first error
	var held []store.ID
	for i, err := range errs {
		if err != nil {
			first = cmp.Or(first, err)
			held = append(held, notes[i].ID)
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("notes: %w: %w", first, &store.HeldError{Tasks: held})
}
