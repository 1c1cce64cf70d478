package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	// patience is the minimum time between two checks of a lock.
	patience = 400 * time.Millisecond
	// forgetful is how old the last check may be. In a longer gap, the lock may have been held again.
	forgetful = 3 * time.Second
)

// look is when a worker's lock was first found free, and the worker's beat at that time.
type look struct{ at, beatAt int64 }

// departed is a worker whose lock is free, and its latest beat.
type departed struct {
	worker store.ID
	beatAt int64
}

// looks are the workers whose lock was free in the last check, and when that was.
type looks struct {
	at   int64
	free map[store.ID]look
}

// gone returns the workers whose lock was free in two checks and whose beat is overdue. The leader calls it
// repeatedly. If it fails, or if the workers cannot be declared dead, earlier checks no longer count, because beats may
// have failed as well. Only the leader waits for its queries.
func (a *attendant) gone(ctx context.Context) (gone []departed) {
	if a.store.galera {
		return nil
	}
	before, seen := a.lastLooks(), looks{free: map[store.ID]look{}}
	runs := map[store.ID]int64{}
	err := a.free(ctx, func(worker store.ID, beatAt, lateAt, run, now int64) {
		seen.at = now
		first, known := before.free[worker]
		if !known || first.beatAt != beatAt || microseconds(now-before.at).Abs() > forgetful {
			first = look{now, beatAt}
		}
		seen.free[worker], runs[worker] = first, run
		if microseconds(now-first.at) >= patience && lateAt <= now {
			gone = append(gone, departed{worker, beatAt})
		}
	})
	if err != nil {
		a.looked(looks{})
		return nil
	}
	if a.looked(seen); len(gone) == 0 {
		return nil
	}
	conn, err := a.store.conn(ctx)
	if err != nil {
		a.looked(looks{})
		return nil
	}
	defer conn.Close()
	run, err := runOf(ctx, conn)
	if err != nil {
		a.looked(looks{})
		return nil
	}
	return slices.DeleteFunc(gone, func(d departed) bool { return microseconds(run-runs[d.worker]).Abs() > sameRun })
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func (a *attendant) lastLooks() looks {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.looks
}

func (a *attendant) looked(now looks) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks = now
}

// free finds the live workers that said they hold a lock and no longer hold it.
func (a *attendant) free(ctx context.Context, each func(worker store.ID, beatAt, lateAt, run, now int64)) error {
	prefix, err := a.lockPrefix(ctx)
	if err != nil {
		return err
	}
	return a.store.query(ctx, func(rows *sql.Rows) error {
		var id []byte
		var beatAt, lateAt, run, now int64
		var holder sql.NullInt64
		err := rows.Scan(&id, &beatAt, &lateAt, &run, &holder, &now)
		if err == nil && !holder.Valid {
			each(store.ID(id), beatAt, lateAt, run, now)
		}
		return err
	}, withLate(q("witness.watched")), prefix)
}

// withLate completes a statement that finds the workers whose locks are checked.
func withLate(text string) string { return strings.ReplaceAll(text, ":late", q("witness.late")) }
