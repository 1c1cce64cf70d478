package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

const (
	foldLeast = 500         // the fewest flushes that are summed up
	foldRows  = 5000        // rows in one transaction
	foldTime  = time.Second // after this time the rest is left to the next round
)

// foldSpans are the spans of time for which there are sums of statistics, in minutes.
var foldSpans = []int{1, 60, 24 * 60}

// foldKey names a row of sums.
type foldKey struct {
	at      time.Time
	minutes int
}

// foldStats sums up the statistics of flushes, so that readers need not read a row for each
// flush. It skips rows that cannot be read, and returns an error for them.
func (s *Store) foldStats(ctx context.Context, term int64) error {
	var damaged damage
	for begun := time.Now(); time.Since(begun) < foldTime; {
		rows, err := s.foldOnce(ctx, term, &damaged)
		if err != nil || rows < foldRows {
			return errors.Join(err, damaged.err())
		}
	}
	return damaged.err()
}

// damage counts rows that cannot be read.
type damage struct {
	rows  int
	first error
}

func (d *damage) add(err error) {
	if d.rows++; d.rows == 1 {
		d.first = err
	}
}

func (d *damage) err() error {
	if d.rows == 0 {
		return nil
	}
	return fmt.Errorf("%d rows of statistics cannot be read and are left out: %w", d.rows, d.first)
}

func (s *Store) foldOnce(ctx context.Context, term int64, damaged *damage) (rows int, err error) {
	err = s.ownTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		var upto int64
		var here string // the snapshot whose flushes are summed up
		if err := tx.QueryRow(ctx, s.sql["stat_end"]).Scan(&upto, &here); err != nil {
			return err
		}
		sums := map[foldKey]*stats{}
		err := eachIn(ctx, tx, s.sql["next_stats"], func(raw [][]byte) error {
			rows, upto = rows+1, max(upto, int64Of(raw[0])+1)
			foldInto(sums, timeOf(raw[1]), raw[2], damaged)
			return nil
		}, upto, foldRows, foldLeast, here)
		if err != nil {
			return err
		}
		err = eachIn(ctx, tx, s.sql["loose_stats"], func(raw [][]byte) error {
			foldInto(sums, timeOf(raw[0]), raw[1], damaged)
			return nil
		}, foldRows)
		if err != nil || len(sums) == 0 {
			return err
		}
		if err := s.putSums(ctx, tx, sums, damaged); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql["end_stats"], upto, here); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql["hold_lead"], term)
		return err
	})
	return rows, err
}

// putSums adds sums to the stored ones.
func (s *Store) putSums(ctx context.Context, tx pgx.Tx, sums map[foldKey]*stats, damaged *damage) error {
	var at []time.Time
	var minutes []int32
	for key := range sums {
		at, minutes = append(at, key.at), append(minutes, int32(key.minutes))
	}
	err := eachIn(ctx, tx, s.sql["take_stats"], func(raw [][]byte) error {
		sums[foldKey{timeOf(raw[0]), int(int32Of(raw[1]))}].addRow(raw[2], damaged)
		return nil
	}, at, minutes)
	if err != nil {
		return err
	}
	rows := make([][]byte, len(at))
	for i := range at {
		rows[i] = sums[foldKey{at[i], int(minutes[i])}].encode()
	}
	_, err = tx.Exec(ctx, s.sql["put_stats"], at, minutes, rows)
	return err
}

// eachIn reads the rows of a query in a transaction.
func eachIn(ctx context.Context, tx pgx.Tx, text string, row func(raw [][]byte) error, args ...any) error {
	rows, err := tx.Query(ctx, text, append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)...)
	if err != nil {
		return err
	}
	return eachRow(rows, row)
}

// foldInto adds the row of a flush to the sums of the minutes, hours and days in which its
// attempts ended.
func foldInto(sums map[foldKey]*stats, at time.Time, row []byte, damaged *damage) {
	var list []statJSON
	if err := json.Unmarshal(row, &list); err != nil {
		damaged.add(err)
		return
	}
	for i := range list {
		ended := at.Add(-time.Duration(list[i].Ago) * time.Second)
		for _, minutes := range foldSpans {
			key := foldKey{ended.Truncate(time.Duration(minutes) * time.Minute), minutes}
			if sums[key] == nil {
				sums[key] = newStats()
			}
			sums[key].add(&list[i])
		}
	}
}

// addRow adds a row of sums.
func (s *stats) addRow(row []byte, damaged *damage) {
	var list []statJSON
	if err := json.Unmarshal(row, &list); err != nil {
		damaged.add(err)
	}
	for i := range list {
		s.add(&list[i])
	}
}

func (s *stats) add(one *statJSON) {
	key := statKey{queue: one.Queue, kind: one.Kind}
	if s.sums[key] == nil {
		s.sums[key] = &store.Stat{Queue: one.Queue, Kind: one.Kind}
	}
	one.addTo(s.sums[key])
}

// foldedIn returns which sums to read for a span of time: of how many minutes, from when to
// when. The rest of the span is read by the minute.
func foldedIn(bucket time.Duration, from, until time.Time) (minutes int, since, end time.Time) {
	minutes, since, end = 1, from, until
	for _, m := range foldSpans[1:] {
		span := time.Duration(m) * time.Minute
		first, last := from.Add(span-1).Truncate(span), until.Truncate(span)
		if bucket%span == 0 && first.Before(last) {
			minutes, since, end = m, first, last
		}
	}
	return minutes, since, end
}
