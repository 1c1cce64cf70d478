package sqlite

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Historian = (*Store)(nil)

// Follow implements store.Historian. Triggers record the ends of tasks; they exist only while there are followers.
// One connection writes at a time, so the numbers of ends have the order of their commits.
func (s *Store) Follow(ctx context.Context, on bool) (cursor string, err error) {
	err = s.write(ctx, true, func(w *work) error {
		steps := []string{"end.trigger", "end.trigger_died"}
		if !on {
			steps = []string{"end.untrigger", "end.untrigger_died"}
		}
		for _, step := range steps {
			if _, err := w.run(step); err != nil {
				return err
			}
		}
		r, err := w.one("end.last")
		if err != nil {
			return err
		}
		cursor = strconv.FormatInt(r.int(0), 10)
		return nil
	})
	if err == nil && !on {
		err = s.Forget(context.WithoutCancel(ctx), cursor) // nobody else deletes the rest
	}
	return cursor, wrap("follow", err)
}

// Ended implements store.Historian.
func (s *Store) Ended(ctx context.Context, cursor string, limit int) (told store.Ends, err error) {
	at, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return told, fmt.Errorf("ended: the cursor %q is none", cursor)
	}
	err = s.read(ctx, func(ctx context.Context, c session) error {
		first, err := one(ctx, c, "end.first")
		if err != nil {
			return err
		}
		told.Missed = max(first.int(0)-1-at, 0)
		return c.each(ctx, "end.list", func(r row) error {
			at = r.int(0)
			told.Ends = append(told.Ends, store.End{Task: r.id(1), Queue: r.text(2), State: store.State(r.int(3)), At: r.time(4),
				Rescued: r.int(5) != 0})
			return nil
		}, at, limit)
	})
	told.Cursor = strconv.FormatInt(at, 10)
	return told, wrap("ended", err)
}

// Forget implements store.Historian.
func (s *Store) Forget(ctx context.Context, cursor string) error {
	at, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return fmt.Errorf("forget: the cursor %q is none", cursor)
	}
	for n := int64(rowsAtOnce); err == nil && n == rowsAtOnce; {
		err = s.write(ctx, false, func(w *work) (err error) {
			n, err = w.run("end.forget", at, rowsAtOnce)
			return err
		})
	}
	return wrap("forget", err)
}
