//go:build unix

package storm

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tuskqueue/tusk"
)

// These handlers end in their own transactions. They record what they ask and how the commit answered, because the
// witness does not see into the transaction.

// errNoAnswer is the error of a handler that did not wait for the answer to its commit.
var errNoAnswer = errors.New("no answer to the commit")

// tx writes a row and completes, in a transaction that commits at once. Every third call does not wait for the
// answer: its commit is in progress when the attempt fails.
func (h *hands) tx(ctx context.Context, t *tusk.Task[load]) error {
	tx, call, err := h.completeTx(ctx, t)
	if err != nil {
		return err
	}
	if rand.IntN(3) > 0 {
		return h.answered(call, tx.Commit())
	}
	answer := make(chan error, 1)
	go func() { answer <- tx.Commit() }()
	select {
	case err = <-answer:
		return h.answered(call, err)
	case <-time.After(rand.N(20 * time.Millisecond)):
		return h.answered(call, []error{errNoAnswer, tusk.RetryAfter(0, errNoAnswer)}[rand.IntN(2)])
	}
}

// linger does the same and adds notes, in a transaction that stays open for longer than a lease. It commits, or in
// its first attempt fails and rolls back, or fails and abandons the transaction.
func (h *hands) linger(_ context.Context, t *tusk.Task[load]) error {
	t.SetProgress(50, "half")
	t.Logger().Info("on my way")
	tx, call, err := h.completeTx(context.Background(), t)
	if err != nil {
		return err
	}
	t.Logger().Info("waiting for the commit") // the next beat finds the note held
	open := stormLease + rand.N(2*stormLease)
	switch way := rand.IntN(3); {
	case way == 0 || t.Attempt > 1:
		time.Sleep(open)
		return h.answered(call, tx.Commit())
	case way == 1:
		time.Sleep(open)
		tx.Rollback()
	default:
		time.AfterFunc(open, func() { tx.Rollback() })
	}
	return h.answered(call, errPlanned)
}

// completeTx begins a transaction, writes a row in it, and completes the task in it. The transaction ends with the
// context: it is rolled back, or its commit is cancelled. Of several servers, the one that has the task accepts this.
func (h *hands) completeTx(ctx context.Context, t *tusk.Task[load]) (tx *sql.Tx, call int64, err error) {
	var failed error
	for _, i := range rand.Perm(len(h.dbs)) {
		if tx, call, err = h.completeIn(ctx, h.dbs[i], t); err == nil {
			return tx, call, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, 0, failed
}

func (h *hands) completeIn(
	ctx context.Context, db *sql.DB, t *tusk.Task[load],
) (tx *sql.Tx, call int64, err error) {
	if tx, err = db.BeginTx(ctx, nil); err != nil {
		return nil, 0, err
	}
	if _, err := tx.ExecContext(ctx, h.part.insert("storm_effect"), t.ID.String(), t.Lease.String()); err != nil {
		return nil, 0, errors.Join(err, tx.Rollback())
	}
	call = h.log.call(event{Op: opFinish, Text: "tx",
		Items: []item{{ID: t.ID, Token: t.Lease.String(), State: tusk.StateCompleted.String(), Attempt: t.Attempt}}})
	if err := t.CompleteTx(ctx, tx); err != nil {
		err = errors.Join(err, tx.Rollback())
		h.log.write(event{Op: opFinished, Call: call, Err: errNone})
		return nil, 0, err
	}
	return tx, call, nil
}

// answered records how a commit answered. After an error, its result is unknown.
func (h *hands) answered(call int64, err error) error {
	answer := event{Op: opFinished, Call: call}
	if err != nil {
		answer.Err = "unknown: " + err.Error()
	}
	h.log.write(answer)
	return err
}
