package ledgers

import "github.com/jackc/pgx/v5/pgxpool"

// PinAll has each queue in one ledger.
func (s *Store) PinAll() { s.pinned = func(string) bool { return true } }

// Pool is that of the first server.
func Pool(s *Store) *pgxpool.Pool { return s.servers[0].pool }
