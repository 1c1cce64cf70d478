package ledgers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The comment on a ledger's schema is its epoch. It rises with each fence and each opening. Commands decide by what
// they saw when they looked at all servers, and somebody else may have moved the ledger since. So whoever changes a
// schema makes sure in the same transaction that it is as it was.

const (
	epochWords = "tusk epoch "  // begins the comment
	epochLock  = 0x7475736b6570 // the advisory lock of a transaction that changes a schema
)

// errChanged says that a schema is not as it was when all servers were looked at.
var errChanged = errors.New("another command, or this one before it was cut off, has changed it: see tusk ledgers list")

// epochOf reads the comment on a schema. Without an epoch in it, that is zero.
func epochOf(comment string) (epoch int64) {
	if number, said := strings.CutPrefix(comment, epochWords); said {
		epoch, _ = strconv.ParseInt(number, 10, 64)
	}
	return epoch
}

// epochText returns the statement that sets the epoch of a schema.
func epochText(schema string, epoch int64) string {
	return fmt.Sprintf("comment on schema %s is '%s%d'", schema, epochWords, epoch)
}

// bare returns the name of the schema while it is open.
func (one schema) bare() string { return strings.TrimSuffix(one.text, fencedEnd) }

// change changes a schema, if it is as it was. Commands for schemas of one database wait for each other.
func (one schema) change(ctx context.Context, do func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	return pgx.BeginTxFunc(ctx, one.at.pool, options, func(tx pgx.Tx) error {
		if err := one.at.lock(ctx, tx); err != nil {
			return err
		}
		var comment string
		err := tx.QueryRow(ctx, `
			select coalesce(obj_description(n.oid, 'pg_namespace'), '') from pg_namespace n
			where n.nspname = $1`, one.text).Scan(&comment)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && epochOf(comment) != one.epoch {
			err = fmt.Errorf("%s on %s: %w", one.text, one.at.name, errChanged)
		}
		if err != nil {
			return err
		}
		return do(tx)
	})
}

// lock waits for other commands on the server, and keeps them out until the transaction of c ends. The wait is limited,
// because a command may wait for one on another server that waits for this one.
func (at *server) lock(ctx context.Context, c interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
}) error {
	_, err := c.Exec(ctx, fmt.Sprintf("set local lock_timeout = '5s'; select pg_advisory_xact_lock(%d)", epochLock))
	if err != nil {
		return fmt.Errorf("another command may be at work on %s: try again: %w", at.name, err)
	}
	return nil
}

// rename renames a schema, and sets its epoch.
func (one schema) rename(ctx context.Context, tx pgx.Tx, to string, epoch int64) error {
	_, err := tx.Exec(ctx, "alter schema "+one.text+" rename to "+to)
	if err == nil {
		_, err = tx.Exec(ctx, epochText(to, epoch))
	}
	return err
}

// mark sets the epoch of a schema.
func (one schema) mark(ctx context.Context, epoch int64) error {
	return one.change(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, epochText(one.text, epoch))
		return err
	})
}

// open makes a fenced schema usable. Others are fenced schemas of the ledger on other servers, with the same content.
// Before the schema is open, they become old copies, so that nobody opens one of them as well.
func (one schema) open(ctx context.Context, epoch int64, others []schema) error {
	return one.change(ctx, func(tx pgx.Tx) error {
		err := one.settleIn(ctx, tx)
		if err == nil {
			err = one.rename(ctx, tx, one.bare(), epoch)
		}
		for _, other := range others {
			if err == nil {
				err = other.mark(ctx, one.epoch-1)
			}
		}
		return err
	})
}
