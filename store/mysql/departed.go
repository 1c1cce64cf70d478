package mysql

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// patience is the least time between two looks at a lock.
const patience = 400 * time.Millisecond

// look is when a worker's lock was first found free, and the worker's beat at that time.
type look struct{ at, beatAt int64 }

// departed is a worker whose lock is free, and its latest beat.
type departed struct {
	worker store.ID
	beatAt int64
}

// gone returns the workers whose lock is free in two looks and whose beat is overdue. The leader calls it again and
// again. If it fails, the beat decides. Only the leader waits for its queries.
func (w *witness) gone(ctx context.Context) (gone []departed) {
	if w.store.galera {
		return nil
	}
	before, looks := w.lastLooks(), map[store.ID]look{}
	runs := map[store.ID]int64{}
	err := w.free(ctx, func(worker store.ID, beatAt, lateAt, run, now int64) {
		first, seen := before[worker]
		if !seen || first.beatAt != beatAt {
			first = look{now, beatAt}
		}
		looks[worker], runs[worker] = first, run
		if now-first.at >= patience.Microseconds() && lateAt <= now {
			gone = append(gone, departed{worker, beatAt})
		}
	})
	if w.looked(looks); err != nil || len(gone) == 0 {
		return nil
	}
	conn, err := w.store.conn(ctx)
	if err != nil {
		return nil
	}
	defer conn.Close()
	run, err := startOf(ctx, conn)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(gone, func(d departed) bool {
		return time.Duration(run-runs[d.worker]).Abs()*time.Microsecond > sameRun
	})
}

func (w *witness) lastLooks() map[store.ID]look {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

func (w *witness) looked(now map[store.ID]look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = now
}

// free finds the living workers that said they hold a lock and no longer hold it.
func (w *witness) free(ctx context.Context, each func(worker store.ID, beatAt, lateAt, run, now int64)) error {
	prefix, err := w.lockPrefix(ctx)
	if err != nil {
		return err
	}
	return w.store.query(ctx, func(rows *sql.Rows) error {
		var id []byte
		var beatAt, lateAt, run, now int64
		var holder sql.NullInt64
		err := rows.Scan(&id, &beatAt, &lateAt, &run, &holder, &now)
		if err == nil && !holder.Valid {
			each(store.ID(id), beatAt, lateAt, run, now)
		}
		return err
	}, q("witness.watched"), prefix)
}
