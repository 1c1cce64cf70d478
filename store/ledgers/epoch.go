package ledgers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The comment on a ledger's schema stores its epoch. The epoch rises with each fence and each opening. Commands decide
// by a look at all servers, and another command may have moved the ledger since. So whoever changes a schema checks in
// the same transaction that its epoch is unchanged.

const (
	epochWords = "tusk epoch "  // begins the comment
	epochLock  = 0x7475736b6570 // advisory lock of transactions that change schemas
)

// errChanged means that a schema has changed since the look at all servers.
var errChanged = errors.New("another command, or this one before it was cut off, has changed it: see tusk ledgers list")

// epochOf parses the comment on a schema. The result is zero if it has no epoch.
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

// bare returns the name of the schema when it is not fenced.
func (one schema) bare() string { return strings.TrimSuffix(one.text, fencedEnd) }

// change runs do in a transaction if the schema has not changed since the look. Only one command at a time changes
// schemas in a database.
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

// turnWithin is how long a transaction that changes schemas waits for that of another command. Tests reduce it.
var turnWithin = 5 * time.Second

// lock waits for other commands on the server, and excludes them until the transaction of c ends. The wait is limited,
// because two commands may wait for each other on different servers.
func (at *server) lock(ctx context.Context, c interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
}) error {
	text := fmt.Sprintf("set local lock_timeout = %d; select pg_advisory_xact_lock(%d)", turnWithin.Milliseconds(),
		epochLock)
	_, err := c.Exec(ctx, text)
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

// open makes a fenced schema usable. others are fenced schemas of the ledger with the same content on other servers.
// They are marked as old copies before the schema is open, so that nobody opens one of them as well. open waits for
// other commands, because a ledger whose move has failed would stay fenced otherwise.
func (one schema) open(ctx context.Context, epoch int64, others []schema) error {
	return patiently(ctx, func(time.Duration) error {
		return one.change(ctx, func(tx pgx.Tx) error {
			err := one.settleIn(ctx, tx)
			if err == nil {
				err = one.rename(ctx, tx, one.bare(), epoch)
			}
			for err == nil && len(others) > 0 {
				if err = others[0].mark(ctx, one.epoch-1); err == nil {
					others = others[1:] // another try finds it changed
				}
			}
			return err
		})
	})
}
