package sqlite

import (
	"context"
)

// Maintain implements store.Maintainer: it copies what the write-ahead log holds
// into the database, beside the writer, so that the log stays short even when
// somebody reads all the time and the writer's own attempts come to nothing.
func (s *Store) Maintain(ctx context.Context, term int64) error {
	err := s.read(ctx, func(ctx context.Context, c session) error {
		return leads(ctx, c, term, s.clock.now())
	})
	if err == nil {
		_, err = s.db.ExecContext(ctx, "pragma wal_checkpoint(passive)")
	}
	return wrap("maintain", explain(err))
}
