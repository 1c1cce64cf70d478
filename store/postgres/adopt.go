package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

// Adopted is the result of adopting a term in a ledger.
type Adopted struct {
	Held bool      // the candidate holds its term here as well
	Term int64     // the term that is now valid here
	Now  time.Time // by the server's clock
}

// AdoptAll makes the term of a candidate valid in ledgers on one server, or gives it up if the TTL is zero, in one
// round trip and one transaction. The candidate has won the term by Lead in another ledger: if a queue has several
// ledgers, one elects the leader and the others adopt its term. The highest term wins. A new term begins when the
// chores of the previous one have ended. For several ledgers, AdoptAll waits for them only briefly.
func AdoptAll(ctx context.Context, all []*Store, c store.Candidate) ([]Adopted, error) {
	adopted, batch := make([]Adopted, len(all)), pgx.Batch{}
	if len(all) > 1 {
		batch.Queue(all[0].sql["wait_briefly"])
	}
	for i, s := range all {
		if c.TTL > 0 {
			err := s.stay(ctx)
			if errors.Is(err, store.ErrMoved) || neverStored(err) {
				err = fmt.Errorf("%w: %w", ErrNotTogether, err)
			}
			if err != nil {
				return nil, fmt.Errorf("adopt: %w", err)
			}
		}
		batch.Queue(s.sql["lock_adopt"], c.Term)
		batch.Queue(s.sql["adopt"], [16]byte(c.ID), c.Term, c.TTL.Microseconds()).Query(func(rows pgx.Rows) error {
			return eachRow(rows, func(raw [][]byte) error {
				adopted[i] = Adopted{Term: int64Of(raw[0]), Now: timeOf(raw[1]), Held: raw[2][0] != 0}
				return nil
			})
		})
	}
	if err := all[0].sendAll(ctx, &batch); err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	return adopted, nil
}
