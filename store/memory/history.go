package memory

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Historian = (*Store)(nil)

// ends are the ends of tasks that readers have not read yet.
type ends struct {
	on   bool
	past int64 // how many came before the first one in list
	list []store.End
}

func (e *ends) add(end store.End) {
	if !e.on {
		return
	}
	e.list = append(e.list, end)
	e.forget(e.past + int64(len(e.list)) - store.MostEnds)
}

func (e *ends) forget(upto int64) {
	if n := min(upto-e.past, int64(len(e.list))); n > 0 {
		e.list, e.past = e.list[n:], e.past+n
	}
}

// Follow implements store.Historian.
func (s *Store) Follow(ctx context.Context, on bool) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends.on = on; !on {
		s.ends.forget(s.ends.past + int64(len(s.ends.list)))
	}
	return strconv.FormatInt(s.ends.past+int64(len(s.ends.list)), 10), ctx.Err()
}

// Ended implements store.Historian.
func (s *Store) Ended(ctx context.Context, cursor string, limit int) (store.Ends, error) {
	at, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return store.Ends{}, fmt.Errorf("ended: the cursor %q is none", cursor)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	told := store.Ends{Missed: max(s.ends.past-at, 0)}
	from := min(max(at-s.ends.past, 0), int64(len(s.ends.list)))
	upto := min(from+int64(limit), int64(len(s.ends.list)))
	told.Ends = append(told.Ends, s.ends.list[from:upto]...)
	told.Cursor = strconv.FormatInt(s.ends.past+upto, 10)
	return told, ctx.Err()
}

// Forget implements store.Historian.
func (s *Store) Forget(ctx context.Context, cursor string) error {
	at, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return fmt.Errorf("forget: the cursor %q is none", cursor)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends.forget(at)
	return ctx.Err()
}
