package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Historian = (*Store)(nil)

// A cursor consists of the cursors of all ledgers, in order. Ledgers that were added later start at the beginning.
const (
	cursorBreak = ","
	cursorStart = "0"
)

func cursorsOf(cursor string, ledgers int) []string {
	all := strings.Split(cursor, cursorBreak)
	for len(all) < ledgers {
		all = append(all, cursorStart)
	}
	return all
}

// Follow implements store.Historian.
func (s *Store) Follow(ctx context.Context, on bool) (string, error) {
	cursors, err := fromAll(ctx, s, ask, func(ctx context.Context, e *postgres.Store) (string, error) {
		return e.Follow(ctx, on)
	})
	return strings.Join(cursors, cursorBreak), err
}

// Ended implements store.Historian. It reports the ends in a ledger that is away once the ledger is back.
func (s *Store) Ended(ctx context.Context, cursor string, limit int) (store.Ends, error) {
	told := store.Ends{Missed: -1}
	all, err := s.ledgers(ctx)
	if err != nil {
		return told, err
	}
	cursors := cursorsOf(cursor, len(all))
	if len(cursors) > len(all) {
		return told, fmt.Errorf("ended: the cursor %q is none", cursor)
	}
	parts, errs := each(all, func(no int, l *ledger) (store.Ends, error) {
		return ask(ctx, l, func(ctx context.Context, e *postgres.Store) (store.Ends, error) {
			return e.Ended(ctx, cursors[no], max(limit/len(all), 1))
		})
	})
	for no, part := range parts {
		if errs[no] == nil {
			told.Ends, cursors[no] = append(told.Ends, part.Ends...), part.Cursor
		}
	}
	slices.SortStableFunc(told.Ends, func(a, b store.End) int { return a.At.Compare(b.At) })
	told.Cursor = strings.Join(cursors, cursorBreak)
	if failed := errors.Join(errs...); failed != nil && (len(told.Ends) == 0 || !errors.Is(failed, store.ErrUnavailable)) {
		return store.Ends{Missed: -1}, failed
	}
	return told, nil
}

// Forget implements store.Historian.
func (s *Store) Forget(ctx context.Context, cursor string) error {
	all, err := s.ledgers(ctx)
	if err != nil {
		return err
	}
	cursors := cursorsOf(cursor, len(all))
	_, errs := each(all, func(no int, l *ledger) (struct{}, error) {
		return ask(ctx, l, func(ctx context.Context, e *postgres.Store) (struct{}, error) {
			return struct{}{}, e.Forget(ctx, cursors[no])
		})
	})
	return errors.Join(errs...)
}
