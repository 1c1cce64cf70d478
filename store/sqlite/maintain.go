package sqlite

import (
	"context"
)

// Maintain implements store.Maintainer. It copies the content of the write-ahead log into the database, independently
// of the writer, so that the log stays short even if there is always a reader and the writer's own attempts fail.
func (s *Store) Maintain(ctx context.Context, term int64) error {
	if err := s.inPlace(); err != nil {
		return wrap("maintain", err)
	}
	err := s.read(ctx, func(ctx context.Context, c session) error {
		return leads(ctx, c, term, s.clock.now())
	})
	if err == nil {
		_, err = s.db.ExecContext(ctx, "pragma wal_checkpoint(passive)")
	}
	return wrap("maintain", explain(err))
}
