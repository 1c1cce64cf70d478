package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// The tables that are partitioned by day, by the place of their tasks.
var cut = []string{"tusk_task", "tusk_attempt", "tusk_note", "tusk_need", "tusk_label"}

const (
	daysAhead = 4              // partitions that are made in advance
	day       = 24 * time.Hour // the period of a partition

	// slack is how much longer than its retention a task is kept if the retention is a day or more, so that it can be
	// dropped with its day instead of being deleted separately.
	slack = 36 * time.Hour

	// The pause before a day that could not be created or dropped is retried.
	lookEvery = 10 * time.Minute
)

// partition is a day of a table.
type partition struct {
	name  string
	until int64 // the first place after it; 0 if it has no end
}

// partitions returns the days of a table, oldest first.
func (s *Store) partitions(ctx context.Context, table string) (all []partition, err error) {
	err = s.query(ctx, func(rows *sql.Rows) error {
		var p partition
		var until string
		err := rows.Scan(&p.name, &until)
		p.until, _ = strconv.ParseInt(until, 10, 64) // "MAXVALUE" has no end
		all = append(all, p)
		return err
	}, `select partition_name, partition_description from information_schema.partitions
		where table_schema = database() and table_name = ? and partition_name is not null
		order by partition_ordinal_position`, table)
	return all, err
}

// makeDays splits partitions for today and the coming days off the last one, which is empty at that time. A
// transaction that has been open for long may be in the way. makeDays then retries later, and waits for no lock until
// tomorrow's partition is due.
func (s *Store) makeDays(ctx context.Context) error {
	for _, table := range cut {
		have, err := s.partitions(ctx, table)
		if err != nil {
			return err
		}
		last := int64(0)
		for _, p := range have {
			last = max(last, p.until)
		}
		today := time.UnixMilli(s.places.next()>>placeShift + placeEpoch).UTC().Truncate(day)
		var parts []string
		for i := range daysAhead {
			end := today.Add(time.Duration(i+1) * day)
			if placeAt(end) > last {
				parts = append(parts, fmt.Sprintf("partition p%s values less than (%d)",
					today.Add(time.Duration(i)*day).Format("20060102"), placeAt(end)))
			}
		}
		if len(parts) == 0 {
			continue
		}
		text := "alter table " + table + " reorganize partition pmax into (" + strings.Join(parts, ", ") +
			", partition pmax values less than maxvalue)"
		wait := 0
		if last < placeAt(today.Add(2*day)) {
			wait = 1
		}
		if err := s.alter(ctx, wait, text); err != nil && codeOf(err) != codeSamePartition {
			return err
		}
	}
	return nil
}

// alter changes a table, unless it would have to wait longer than wait seconds. While it waits, all others wait, too.
// With a wait of 0 it succeeds only at a moment when no transaction is open, which may never come on a busy server.
// MySQL has no wait below a second.
func (s *Store) alter(ctx context.Context, wait int, text string) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	limit := fmt.Sprintf("set @tusk_wait = @@session.lock_wait_timeout, session lock_wait_timeout = "+
		"if(version() like '%%MariaDB%%', %d, 1)", wait)
	if _, err := conn.ExecContext(ctx, limit); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, text)
	_, end := conn.ExecContext(context.WithoutCancel(ctx), "set session lock_wait_timeout = @tusk_wait")
	if end != nil {
		abandon(ctx, conn, end)
	}
	return err
}

// days are the places that are being dropped, from one up to but not including another. Everything below from was
// dropped.
type days struct{ from, until int64 }

func (d days) have(place int64) bool { return place < d.until }

// going reads which days are being dropped. A transaction that brings a finished task back locks that row until its
// commit.
func (w *work) going(text string) (d days, err error) {
	err = w.ask(func(rows *sql.Rows) error { return rows.Scan(&d.from, &d.until) }, text)
	return d, err
}

// dropDays drops the oldest days, as long as none of their tasks must be kept.
func (s *Store) dropDays(ctx context.Context, term int64, keep store.Retention) error {
	have, err := s.partitions(ctx, "tusk_task")
	if err != nil {
		return err
	}
	now := time.UnixMilli(s.places.next()>>placeShift + placeEpoch)
	shortest := shortest(keep)
	for _, p := range have {
		ended := time.UnixMilli(p.until>>placeShift + placeEpoch)
		if p.until == 0 || shortest == 0 || now.Before(ended.Add(max(shortest, day))) {
			return nil
		}
		if time.Since(time.Unix(0, s.refused.Load())) < lookEvery {
			return nil
		}
		if dropped, err := s.dropDay(ctx, term, p, keep); err != nil || !dropped {
			s.refused.Store(time.Now().UnixNano())
			return err
		}
	}
	return nil
}

// shortest returns the shortest of all retentions, or zero if all are unlimited.
func shortest(keep store.Retention) (d time.Duration) {
	all := []time.Duration{keep.Completed, keep.Cancelled, keep.Discarded}
	for _, own := range keep.Queues {
		all = append(all, own.Completed, own.Cancelled, own.Discarded)
	}
	for _, one := range all {
		if one > 0 && (d == 0 || one < d) {
			d = one
		}
	}
	return d
}

// dropDay drops a day if all of its tasks are finished and past their retention. While it checks, no task of that day
// can be retried.
func (s *Store) dropDay(ctx context.Context, term int64, p partition, keep store.Retention) (bool, error) {
	mark := func(from, until int64) error {
		return s.write(ctx, func(w *work) error {
			if err := w.leads(term); err != nil {
				return err
			}
			d, err := w.going(q("days.lock"))
			w.do(q("days.mark"), max(from, d.from), until)
			return err
		})
	}
	if kept, err := s.keeps(ctx, p, keep); err != nil || kept {
		return false, err
	}
	if err := mark(0, p.until); err != nil {
		return false, err
	}
	kept, err := s.keeps(ctx, p, keep)
	if err == nil && !kept {
		if err = s.eraseMarked(ctx, term, p); held(err) {
			kept, err = true, nil // an open transaction needs one of its tasks
		}
	}
	// Transactions from before the mark may not have been visible right after it; see reread.
	if err == nil && !kept {
		kept, err = s.keeps(ctx, p, keep)
	}
	if err != nil || kept {
		return false, errors.Join(err, mark(0, 0))
	}
	begun := false
	for _, table := range slices.Backward(cut) {
		have, err := s.partitions(ctx, table)
		if err != nil {
			return false, err
		}
		if !slices.Contains(have, p) {
			begun = true
			continue
		}
		if err := s.alter(ctx, 1, "alter table "+table+" drop partition "+p.name); err != nil {
			s.log.Warn("mysql: a day could not be dropped, it will be tried again", "table", table, "partition", p.name,
				"error", err)
			if begun { // what is left of the day's tasks must not come back
				return false, nil
			}
			return false, mark(0, 0)
		}
		begun = true
	}
	return true, mark(p.until, 0)
}

// keeps reports whether a day has tasks that must be kept.
func (s *Store) keeps(ctx context.Context, p partition, keep store.Retention) (kept bool, err error) {
	err = s.view(ctx, func(w *work) error {
		if _, err := w.clock(); err != nil {
			return err
		}
		condition, args := expired(keep, w.now)
		text := strings.Replace(strings.Replace(q("days.kept"), ":partition", p.name, 1), ":expired", condition, 1)
		return w.ask(func(*sql.Rows) error { kept = true; return nil }, text, args...)
	})
	return kept, err
}

// expired returns a condition for tasks that are past their retention.
func expired(keep store.Retention, now int64) (string, []any) {
	var b strings.Builder
	var args []any
	states := func(r store.Retention) {
		b.WriteString("(false")
		for state, kept := range map[store.State]time.Duration{store.Completed: r.Completed, store.Cancelled: r.Cancelled,
			store.Discarded: r.Discarded} {
			if kept > 0 {
				b.WriteString(" or state = ? and finished_at <= ?")
				args = append(args, state, now-kept.Microseconds())
			}
		}
		b.WriteString(")")
	}
	b.WriteString("case queue")
	for queue, own := range keep.Queues {
		b.WriteString(" when ? then ")
		args = append(args, []byte(queue))
		states(own)
	}
	if len(keep.Queues) == 0 {
		b.Reset()
		states(keep)
		return b.String(), args
	}
	b.WriteString(" else ")
	states(keep)
	b.WriteString(" end")
	return b.String(), args
}

// eraseMarked deletes separately those tasks of a day that something else depends on: a key, or the number of dead
// tasks in a group of errors.
func (s *Store) eraseMarked(ctx context.Context, term int64, p partition) error {
	from, last := int64(0), int64(0)
	for {
		deleted := 0
		err := s.hurry(ctx, hastyTries, func(w *work) error {
			if err := w.leads(term); err != nil {
				return err
			}
			var rows []*row
			text := strings.Replace(q("days.depended"), ":partition", p.name, 1)
			err := w.ask(func(found *sql.Rows) error {
				r, err := readRow(found)
				rows = append(rows, r)
				return err
			}, w.locking(text), from, maxPruned)
			if err != nil || len(rows) == 0 {
				return err
			}
			var ids []store.ID
			var keys []rules.KeyName
			for _, r := range rows {
				w.know(r)
				ids, keys = append(ids, r.ID), append(keys, nameOf(&r.Task))
			}
			if err := w.lockKeys(sortedKeys(keys)); err != nil {
				return err
			}
			deleted, last = len(rows), rows[len(rows)-1].place
			return w.decide(func(b *rules.Batch) error { return b.Delete(ids) })
		})
		if err != nil || deleted == 0 {
			return err
		}
		from = last
	}
}
