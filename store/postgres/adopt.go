package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Adopted is what became of a term that was won in another ledger.
type Adopted struct {
	Held bool      // the candidate holds its term here as well
	Term int64     // the one that is valid here now
	Now  time.Time // by the server's clock
}

// Adopt makes the term of a candidate valid in this ledger, or (with a TTL of zero) gives
// it up. The term was won by Lead in another ledger: of several ledgers of one queue one
// elects, and the others adopt. The highest term wins.
func (s *Store) Adopt(ctx context.Context, c store.Candidate) (a Adopted, err error) {
	err = s.query(ctx, "adopt", func(raw [][]byte) error {
		a = Adopted{Term: int64Of(raw[0]), Now: timeOf(raw[1]), Held: raw[2][0] != 0}
		return nil
	}, [16]byte(c.ID), c.Term, c.TTL.Microseconds())
	if err != nil {
		return Adopted{}, fmt.Errorf("adopt: %w", err)
	}
	return a, nil
}
