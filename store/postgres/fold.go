package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

// foldAtOnce is how many rows of statistics one round of maintenance sums up.
const foldAtOnce = 5000

// foldStats sums up the statistics of flushes that are pruned, so that a minute
// takes a few rows and not one for each flush.
func (s *Store) foldStats(ctx context.Context, term int64) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.sql["take_stats"], foldAtOnce)
		if err != nil {
			return err
		}
		minutes := map[time.Time]*stats{}
		err = eachRow(rows, func(raw [][]byte) error { return foldInto(minutes, timeOf(raw[0]), raw[1]) })
		if err != nil || len(minutes) == 0 {
			return err
		}
		var at []time.Time
		var sums [][]byte
		for minute, sum := range minutes {
			at, sums = append(at, minute), append(sums, sum.encode())
		}
		if _, err := tx.Exec(ctx, s.sql["put_stats"], at, sums); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql["hold_lead"], term)
		return err
	})
}

// foldInto adds a row of statistics to those of the minutes that it tells of.
func foldInto(minutes map[time.Time]*stats, at time.Time, row []byte) error {
	var list []statJSON
	if err := json.Unmarshal(row, &list); err != nil {
		return err
	}
	for i := range list {
		one := &list[i]
		minute := at.Add(-time.Duration(one.Ago) * time.Second).Truncate(time.Minute)
		if minutes[minute] == nil {
			minutes[minute] = newStats()
		}
		key := statKey{queue: one.Queue, kind: one.Kind}
		sum := minutes[minute].sums[key]
		if sum == nil {
			sum = &store.Stat{Queue: one.Queue, Kind: one.Kind}
			minutes[minute].sums[key] = sum
		}
		one.addTo(sum)
	}
	return nil
}
