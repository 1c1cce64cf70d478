package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Count implements store.Reader.
func (s *Store) Count(ctx context.Context) (counts []store.Count, err error) {
	err = s.view(ctx, func(w *work) error {
		var sums delta
		if err := w.deltas(&sums); err != nil {
			return err
		}
		if err := w.ask(func(rows *sql.Rows) error {
			var queue []byte
			var state store.State
			var tasks int64
			err := rows.Scan(&queue, &state, &tasks)
			sums.count(string(queue), state, tasks)
			return err
		}, q("count.all")); err != nil {
			return err
		}
		if _, err := w.clock(); err != nil {
			return err
		}
		oldest, err := w.oldest()
		counts = counts[:0]
		for of, n := range sums.counts {
			c := store.Count{Queue: of.queue, State: of.state, Tasks: n}
			if of.state == store.Available {
				c.Oldest = oldest[of.queue]
			}
			counts = append(counts, c)
		}
		return err
	})
	slices.SortFunc(counts, func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return counts, wrap("count", err)
}

// oldest returns how long the first available task of each queue has been due. It walks the lanes with available tasks
// one after the other, because the planner cannot be made to do that.
func (w *work) oldest() (map[string]time.Duration, error) {
	ages := map[string]time.Duration{}
	for queue, priority := []byte{}, int16(0); ; {
		found := false
		err := w.ask(func(rows *sql.Rows) error {
			found = true
			due := w.now
			err := rows.Scan(&queue, &priority, &due)
			ages[string(queue)] = max(ages[string(queue)], time.Duration(w.now-due)*time.Microsecond)
			return err
		}, q("ready.next lane"), slices.Clone(queue), priority, slices.Clone(queue))
		if err != nil || !found {
			return ages, err
		}
	}
}

// Workers implements store.Reader.
func (s *Store) Workers(ctx context.Context) (living []store.Worker, err error) {
	err = s.view(ctx, func(w *work) error {
		living = nil
		at := map[store.ID]int{}
		err := w.ask(func(rows *sql.Rows) error {
			one, err := readWorker(rows)
			at[one.ID] = len(living)
			living = append(living, one)
			return err
		}, q("worker.living"))
		if err != nil {
			return err
		}
		leases, err := w.readLeases(q("lease.all"))
		if err != nil {
			return err
		}
		stages, err := w.stages(leases)
		for _, l := range leases {
			i, known := at[l.worker]
			for _, r := range refsOf(l.spans) {
				if known && stages[r.anyLap()].holds(r.lap) {
					living[i].Running++
				}
			}
		}
		return err
	})
	return living, wrap("workers", err)
}

func readWorker(rows *sql.Rows) (one store.Worker, err error) {
	var id, host, queues, version, kinds []byte
	var started, beat, expires int64
	err = rows.Scan(&id, &host, &one.PID, &queues, &one.Concurrency, &version, &kinds, &started, &beat,
		&expires, &one.Hung)
	if err != nil {
		return one, err
	}
	copy(one.ID[:], id)
	one.Host, one.Version = string(host), string(version)
	one.StartedAt, one.BeatAt, one.ExpiresAt = instant(started), instant(beat), instant(expires)
	_ = json.Unmarshal(queues, &one.Queues) // an unreadable worker does not hide others
	_ = json.Unmarshal(kinds, &one.Kinds)
	return one, nil
}
