package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/store"
)

// Standing is the state of a worker. SQL engines store these numbers for known workers.
type Standing int

const (
	Unheard   Standing = iota - 1 // it never sent a beat
	Living                        // it sent a beat, and has neither signed off nor died since
	Dead                          // it was declared dead
	SignedOff                     // it has signed off
)

// Beat reports whether a heartbeat counts, given the standing of its worker and the number of the last beat. A beat
// that signs off a worker that is unknown or has already signed off changes nothing. A dead worker stays dead: the
// error is ErrWorkerDead. A beat that arrives after a later one does not count: the error is ErrLate.
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

// NoteApart stores notes one by one and returns the error of each. After an error that would also affect the other
// notes, it does not try them, and returns that error for each of them.
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

// Lines returns the log lines of a task in order, each line once. If the answer to a note was lost, the note is
// stored again with the next beat or with the attempt's end.
func Lines(stored []store.LogLine) (lines []store.LogLine) {
	seen := make(map[store.LogLine]bool, len(stored))
	for _, l := range stored {
		same := l
		same.At = l.At.UTC()
		if !seen[same] {
			seen[same] = true
			lines = append(lines, l)
		}
	}
	return lines
}

// hopeless reports whether an error would affect every other call too.
func hopeless(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil)
}

// Noted returns the error of a beat whose notes had these errors. The beat counts nevertheless, and a HeldError names
// the tasks whose notes are not stored.
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
