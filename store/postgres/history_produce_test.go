package postgres_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

// produce enqueues in a transaction that commits at once, late, in two phases,
// in parts, or not at all.
func (h *history) produce(ctx context.Context, r *rand.Rand) error {
	if r.IntN(3) == 0 {
		tasks := h.some(r)
		_, err := h.s.Enqueue(ctx, tasks)
		h.keepCommitted(tasks, err == nil)
		return err
	}
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	var stay []store.NewTask
	for range 1 + r.IntN(3) {
		kept, err := h.part(ctx, tx, r)
		if err != nil {
			return err
		}
		stay = append(stay, kept...)
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		}
	}
	switch r.IntN(6) {
	case 0:
		h.keepCommitted(stay, false)
		return tx.Rollback(ctx)
	case 1:
		return h.twoPhases(ctx, tx, r, stay)
	}
	err = tx.Commit(ctx)
	h.keepCommitted(stay, err == nil)
	return err
}

// part enqueues under a savepoint, which may be rolled back.
func (h *history) part(ctx context.Context, tx pgx.Tx, r *rand.Rand) (kept []store.NewTask, err error) {
	sub, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	u, err := h.s.Tx(sub)
	if err != nil {
		return nil, err
	}
	tasks := h.some(r)
	if r.IntN(2) == 0 {
		data, text := h.s.PackedCopy(tasks) // as outside of transactions, but at leisure
		_, err = sub.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(data), text)
	} else {
		_, err = u.Enqueue(ctx, tasks)
	}
	if err != nil {
		return nil, err
	}
	if r.IntN(4) == 0 {
		h.keepCommitted(tasks, false)
		return nil, sub.Rollback(ctx)
	}
	return tasks, sub.Commit(ctx)
}

func (h *history) twoPhases(ctx context.Context, tx pgx.Tx, r *rand.Rand, stay []store.NewTask) error {
	name := newID().String()
	if _, err := tx.Exec(ctx, "prepare transaction '"+name+"'"); err != nil {
		return err
	}
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	commit := r.IntN(4) > 0
	end := "rollback prepared '"
	if commit {
		end = "commit prepared '"
	}
	_, err := h.pool.Exec(ctx, end+name+"'")
	h.keepCommitted(stay, err == nil && commit)
	return err
}

// some makes tasks, many of which come in packs.
func (h *history) some(r *rand.Rand) []store.NewTask {
	n := 1 + r.IntN(20)
	if r.IntN(10) == 0 {
		n = 200
	}
	tasks := newPacks(n, historyQueues[r.IntN(2)]) // the last queue stays idle except for edits
	var p int16
	for i, alike := 0, 1+r.IntN(30); i < n; i++ {
		if i%alike == 0 {
			p = int16(r.IntN(2))
		}
		tasks[i].Priority = p
	}
	return tasks
}

func (h *history) keepCommitted(tasks []store.NewTask, yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range tasks {
		if yes {
			h.committed[tasks[i].ID] = true
		} else {
			h.never[tasks[i].ID] = true
		}
	}
}
