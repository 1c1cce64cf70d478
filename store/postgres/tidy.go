package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

// tidyFor limits the time that a round of maintenance spends on lanes, because it has other work.
const tidyFor = 20 * time.Second

// tidy adds new rows to the tallies of lanes, trims the old positions of lanes, and advances idle lanes past old
// segments. It also closes tasks that users' transactions have finished.
func (s *Store) tidy(ctx context.Context, term int64) error {
	lanes, err := s.untidy(ctx, term, keepPositions, idleXids)
	rand.Shuffle(len(lanes), func(i, j int) { lanes[i], lanes[j] = lanes[j], lanes[i] }) // if time is short
	began := time.Now()
	for _, lane := range lanes {
		if err == nil && time.Since(began) < tidyFor {
			err = s.tidyLane(ctx, term, lane, keepPositions, idleXids)
		}
	}
	if err != nil {
		return err
	}
	return s.closeLeases(ctx)
}

// untidy returns the lanes that need tidying.
func (s *Store) untidy(ctx context.Context, term int64, positions, idle int) (lanes []int64, err error) {
	err = s.read(ctx, []step{s.do("pin_each"), s.do("leads_still", term),
		s.do("untidy_lanes", positions, idle).into(func(raw [][]byte) error {
			lanes = append(lanes, int64Of(raw[0]))
			return nil
		})})
	return lanes, err
}

// tallyRows is how many rows of the log are counted in one transaction. It holds the lane's lock, so no claim
// succeeds in the meantime.
const tallyRows = 10_000

// tidyLane tidies a lane unless another session holds its lock.
func (s *Store) tidyLane(ctx context.Context, term, lane int64, positions, idle int) error {
	for more := true; more; {
		more = false // another session may hold the lock
		err := s.underLane(ctx, term, lane, func(tx pgx.Tx) error {
			more = false
			var batch pgx.Batch
			batch.Queue(s.sql["pin_each"])
			batch.Queue(s.sql["tally_lane"], lane, idle, tallyRows).Query(func(rows pgx.Rows) error {
				return eachRow(rows, func(raw [][]byte) error {
					more = raw[0][0] != 0
					return nil
				})
			})
			batch.Queue(s.sql["trim_lane"], lane, positions)
			batch.Queue(s.sql["move_lane"], lane, idle)
			return tx.SendBatch(ctx, &batch).Close()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// underLane calls do in a transaction that holds the lock of a lane. It does nothing if another session holds the lock.
func (s *Store) underLane(ctx context.Context, term, lane int64, do func(tx pgx.Tx) error) error {
	return s.repeat(ctx, func() error {
		return translate(s.ownTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			var mine bool
			var batch pgx.Batch
			batch.Queue(s.sql["leads_still"], term)
			batch.Queue(s.sql["try_lane"], lane).QueryRow(func(row pgx.Row) error { return row.Scan(&mine) })
			if err := tx.SendBatch(ctx, &batch).Close(); err != nil || !mine {
				return err
			}
			return do(tx)
		}))
	})
}

// closeLeases closes the tasks that users' transactions have finished, lease by lease.
func (s *Store) closeLeases(ctx context.Context) error {
	type lease struct {
		token store.Token
		lane  int64
	}
	var all []lease
	err := s.read(ctx, []step{s.do("pin_each"), s.do("unclosed_leases").into(func(raw [][]byte) error {
		all = append(all, lease{idOf(raw[0]), int64Of(raw[1])})
		return nil
	})})
	for _, one := range all {
		if err == nil {
			err = s.write(ctx, []step{s.do("close_lease", [16]byte(one.token), one.lane)})
		}
	}
	if err != nil {
		return err
	}
	return s.write(ctx, []step{s.do("pin_each"), s.do("drop_finished"), s.do("drop_stops")})
}

// forgetLanes forgets lanes that have had no task for long. Each call checks some of the lanes.
func (s *Store) forgetLanes(ctx context.Context, term int64) error {
	var last int64
	var woken, fresh, ripe, over []int64
	err := s.read(ctx, s.pinned(s.do("leads_still", term),
		s.do("lanes_after", s.laneHand.Load(), lanesAtOnce, s.idleLane.Microseconds()).into(func(raw [][]byte) error {
			last = int64Of(raw[0])
			idle, marked, unmarked, long, gone := raw[1][0] != 0, raw[2][0] != 0, raw[3][0] != 0, raw[4][0] != 0,
				raw[5][0] != 0
			for _, list := range []struct {
				lanes *[]int64
				is    bool
			}{{&woken, !idle && marked}, {&fresh, idle && unmarked}, {&ripe, idle && long}, {&over, idle && gone}} {
				if list.is {
					*list.lanes = append(*list.lanes, last)
				}
			}
			return nil
		})))
	if err == nil && len(woken)+len(fresh)+len(ripe) > 0 {
		err = s.write(ctx, s.pinned(s.do("hold_lead", term), s.do("wake_lanes", woken),
			s.do("mark_lanes", ripe, s.idleLane.Microseconds()), s.do("idle_lanes", fresh)))
	}
	for _, lane := range over {
		if err == nil {
			err = s.forgetLane(ctx, term, lane)
		}
	}
	if err == nil {
		s.laneHand.Store(last)
	}
	return err
}

// forgetLane forgets a lane if it is still idle. Nobody can claim from it while its lock is held.
func (s *Store) forgetLane(ctx context.Context, term, lane int64) error {
	return s.underLane(ctx, term, lane, func(tx pgx.Tx) error {
		var idle bool
		if err := tx.QueryRow(ctx, s.sql["is_idle"], lane).Scan(&idle); err != nil || !idle {
			return err
		}
		var batch pgx.Batch
		batch.Queue(s.sql["hold_lead"], term)
		batch.Queue(s.sql["forget_lane"], lane)
		batch.Queue(s.sql["forget_positions"], lane)
		batch.Queue(s.sql["forget_tally"], lane)
		return tx.SendBatch(ctx, &batch).Close()
	})
}
