package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Historian = (*Store)(nil)

// Follow implements store.Historian. Nothing is stored for readers: ends are read from the
// ledger, up to the oldest open transaction.
func (s *Store) Follow(ctx context.Context, _ bool) (cursor string, err error) {
	err = s.query(ctx, "follow", func(raw [][]byte) error {
		cursor = string(raw[0])
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("follow: %w", err)
	}
	return cursor, nil
}

// Ended implements store.Historian.
func (s *Store) Ended(ctx context.Context, cursor string, limit int) (store.Ends, error) {
	told := store.Ends{Missed: -1}
	if _, err := strconv.ParseUint(cursor, 10, 63); err != nil {
		return told, fmt.Errorf("ended: the cursor %q is none", cursor)
	}
	err := s.read(ctx, s.pinned(s.do("ended", cursor, limit).into(func(raw [][]byte) error {
		told.Cursor = string(raw[0])
		if raw[1] == nil {
			return nil
		}
		e := store.End{Task: idOf(raw[1]), Queue: string(raw[2]), State: stateOf(raw[3]), At: timeOf(raw[4]),
			Rescued: raw[5][0] != 0}
		told.Ends = append(told.Ends, e)
		if e.Rescued && e.State.Finished() { // a quarantined task is both at once
			e.Rescued = false
			told.Ends = append(told.Ends, e)
		}
		return nil
	})))
	if err != nil {
		return told, fmt.Errorf("ended: %w", err)
	}
	return told, nil
}

// Forget implements store.Historian.
func (s *Store) Forget(ctx context.Context, _ string) error { return ctx.Err() }
