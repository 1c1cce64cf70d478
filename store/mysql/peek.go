package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Overseer = (*Store)(nil)

// outlook says which of the chores that mostly find nothing have work.
type outlook struct {
	leader leader
	now    int64
	due    sql.NullInt64 // when the next waiting task is due
	doomed bool          // some pending tasks can no longer run
	turns  bool          // some task waits for a turn, or has one
	dead   bool          // a worker may be dead, or a dead one still has leases
}

// choresQuery returns the query that reads the leader, the time, and the named columns.
func choresQuery(names ...string) string {
	asked := make([]string, len(names))
	for i, name := range names {
		asked[i] = q(name)
	}
	return withLate(strings.Replace(q("chores"), ":asked", strings.Join(asked, ",\n"), 1))
}

// read reads a row of a choresQuery.
func (o *outlook) read(rows *sql.Rows, into ...any) error {
	var id []byte
	err := rows.Scan(append([]any{&id, &o.leader.term, &o.leader.expires, &o.now}, into...)...)
	copy(o.leader.id[:], id)
	return err
}

// peek reads when waiting tasks are due and whether tasks run in turns, with one statement, outside of a transaction.
// It fails unless term is the current term, or 0.
func (s *Store) peek(ctx context.Context, term int64) (o outlook, err error) {
	err = s.outlook(ctx, term, &o, []any{&o.due, &o.doomed, &o.turns}, choresQuery("chores.waiting"))
	return o, err
}

// rescueDue checks with one statement whether there may be anything to take back. It fails unless term is the current
// term.
func (s *Store) rescueDue(ctx context.Context, term int64) (due bool, err error) {
	var o outlook
	err = s.outlook(ctx, term, &o, []any{&o.dead}, choresQuery("chores.rescue"), clockSlack)
	return o.dead || !s.lookedForStrays(o.now), err
}

func (s *Store) outlook(ctx context.Context, term int64, o *outlook, into []any, text string, args ...any) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := s.query(ctx, func(rows *sql.Rows) error { return o.read(rows, into...) }, text, args...)
	if err == nil && term != 0 && !o.leader.leads(term, o.now) {
		err = store.ErrNotLeader
	}
	return err
}

// Oversee implements store.Overseer.
func (s *Store) Oversee(ctx context.Context, by store.Candidate, kinds ...string) (c store.Chores, err error) {
	if err := s.ready(ctx); err != nil {
		return c, wrap("oversee", err)
	}
	var o outlook
	locks, err := s.attendant.lockPrefix(ctx)
	if err != nil {
		return c, wrap("oversee", err)
	}
	var free, leases, moved bool
	names := []string{"chores.waiting", "chores.rescue", "chores.free", "chores.leases", "chores.moved"}
	into := []any{&o.due, &o.doomed, &o.turns, &o.dead, &free, &leases, &moved}
	args := []any{clockSlack, locks, s.strays.Load(), straysEvery.Microseconds()}
	have := make([]bool, len(kinds))
	for i, kind := range kinds {
		names, into, args = append(names, "chores.records"), append(into, &have[i]), append(args, []byte(kind))
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return c, wrap("oversee", err)
	}
	defer conn.Close()
	t := session{store: s, ctx: ctx, on: conn, multi: s.multi}
	var renewed int
	if by.TTL > 0 {
		t.do(q("leader.renew"), by.TTL.Microseconds(), by.ID[:], by.Term)
		t.buf = append(t.buf, stmt{"select row_count()", nil, func(rows *sql.Rows) error { return rows.Scan(&renewed) }})
	}
	err = t.ask(func(rows *sql.Rows) error { return o.read(rows, into...) }, choresQuery(names...), args...)
	if err != nil {
		abandon(ctx, conn, err)
		return c, wrap("oversee", err)
	}
	switch {
	case renewed > 0:
		c.Renewed = instant(o.now)
	case !o.leader.leads(by.Term, o.now):
		return c, wrap("oversee", store.ErrNotLeader)
	}
	if c.Admit = o.next(); o.doomed {
		c.Admit = 0
	}
	strays := !s.lookedForStrays(o.now)
	if strays && !leases {
		s.strays.Store(o.now + straysEvery.Microseconds())
	}
	if moved { // until the next Maintain, each call says that there is something to add up
		s.moved.Add(1)
	}
	c.Turns, c.Rescue, c.Moved = o.turns, o.dead || free || strays && leases, s.moved.Load()+1
	for i, kind := range kinds {
		if have[i] {
			c.Records = append(c.Records, kind)
		}
	}
	return c, nil
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
