package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// outlook says which of the chores that mostly find nothing have work.
type outlook struct {
	leader leader
	now    int64
	due    sql.NullInt64 // when the next waiting task is due
	doomed bool          // some pending tasks can no longer run
	turns  bool          // some task waits for a turn, or has one
}

// peek reads the outlook with one statement, outside of a transaction. It fails unless term is the current term, or 0.
func (s *Store) peek(ctx context.Context, term int64) (o outlook, err error) {
	if err := s.ready(ctx); err != nil {
		return o, err
	}
	err = s.query(ctx, func(rows *sql.Rows) error {
		var id []byte
		err := rows.Scan(&id, &o.leader.term, &o.leader.expires, &o.now, &o.due, &o.doomed, &o.turns)
		copy(o.leader.id[:], id)
		return err
	}, q("peek"))
	if err == nil && term != 0 && !o.leader.leads(term, o.now) {
		err = store.ErrNotLeader
	}
	return o, err
}

// leads reports whether term is the current term.
func (l *leader) leads(term, now int64) bool {
	return !l.id.IsZero() && l.term == term && now < l.expires
}

// next returns the time until a task is due, or a negative duration if none waits.
func (o *outlook) next() time.Duration {
	if !o.due.Valid {
		return -1
	}
	return max(time.Duration(o.due.Int64-o.now)*time.Microsecond, 0)
}
