package ledgers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Transactor = (*Store)(nil)

// Tx implements store.Transactor, with the types of store/postgres. It covers the ledgers in the transaction's
// database, or all ledgers of a Citus cluster. For tasks that belong in another database, methods fail with
// store.ErrUnsupported.
func (s *Store) Tx(tx any) (store.Tx, error) {
	switch own := tx.(type) {
	case pgx.Tx:
		return &userTx{s: s, tx: tx, c: driverCaller{own}}, nil
	case *sql.Tx:
		return &userTx{s: s, tx: tx, c: sqlCaller{own}}, nil
	}
	return nil, fmt.Errorf("transaction of type %T: %w: want pgx.Tx, or *sql.Tx of pgx/v5/stdlib", tx,
		store.ErrUnsupported)
}

// userTx is a caller's transaction.
type userTx struct {
	s      *Store
	tx     any
	c      caller
	here   []int // ledgers in its database; nil until local is called
	wrote  bool  // it may have stored tasks
	joined bool  // Citus commits it on all nodes together
}

// local returns all ledgers, and the numbers of those in the transaction's database.
func (u *userTx) local(ctx context.Context) ([]*ledger, []int, error) {
	all, err := u.s.ledgers(ctx)
	if err != nil || u.here != nil {
		return all, u.here, err
	}
	var names string
	var of postgres.Running
	const ask = `select coalesce(pg_catalog.string_agg(nspname, ' '), ''), pg_catalog.current_database(),
		pg_catalog.pg_postmaster_start_time(), pg_catalog.pg_current_xact_id_if_assigned() is not null
		from pg_catalog.pg_namespace`
	err = u.c.row(ctx, ask).Scan(&names, &of.Database, &of.Since, &u.wrote)
	if err != nil {
		return nil, nil, err
	}
	u.wrote = u.wrote || u.s.net != nil // maybe on another node
	schemas, is := strings.Fields(names), map[*server]bool{}
	here := []int{}
	var away error
	for _, l := range all {
		at, name := l.whereabouts()
		if at == nil || !slices.Contains(schemas, name) {
			continue
		}
		if _, asked := is[at]; !asked { // the schema may be an old copy
			runs, err := l.runs(ctx, at, of)
			switch {
			case errors.Is(err, store.ErrUnavailable): // another ledger of the server may answer
				away = err
				continue
			case err != nil:
				return nil, nil, err
			}
			is[at] = runs
		}
		if is[at] {
			here = append(here, l.no)
		}
	}
	if len(here) == 0 && away != nil && u.s.net == nil {
		return nil, nil, away
	}
	u.here = here
	if len(u.here) == 0 && u.s.net == nil {
		return nil, nil, fmt.Errorf("%w: the transaction's database has no ledger of this queue", store.ErrUnsupported)
	}
	return all, u.here, nil
}

// runs reports whether a transaction is in the database that has the ledger. A server is recognized by its start time.
// The error is store.ErrUnavailable if the ledger is away.
func (l *ledger) runs(ctx context.Context, at *server, of postgres.Running) (bool, error) {
	at.mu.Lock()
	known := at.running
	at.mu.Unlock()
	if known.Is(of) {
		return true, nil
	}
	known, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) (postgres.Running, error) {
		return e.Running(ctx)
	})
	if err != nil {
		return false, err
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	at.running = known
	return known.Is(of), nil
}

// at returns the engine of a ledger in the transaction. It returns the error elsewhere if the transaction cannot reach
// the ledger.
func (u *userTx) at(ctx context.Context, l *ledger, elsewhere error) (store.Tx, error) {
	engine, _, err := l.present()
	if err != nil {
		return nil, err
	}
	here := slices.Contains(u.here, l.no)
	if u.s.net == nil && !here {
		return nil, elsewhere
	}
	if u.s.net != nil && !u.joined {
		if err := commitTogether(ctx, u.c); err != nil {
			return nil, err
		}
		u.joined = true
	}
	if here {
		return engine.Tx(u.tx)
	}
	at, _ := l.whereabouts()
	slot, err := u.s.net.slotOf(ctx, at)
	if err != nil {
		return nil, err
	}
	return engine.TxOver(&delegated{u.c, slot}), nil
}

// Enqueue implements store.Enqueuer.
func (u *userTx) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	all, here, err := u.local(ctx)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	anywhere := byID(tasks[0].ID, len(all))
	if len(here) > 0 && !slices.Contains(here, anywhere) {
		anywhere = here[anywhere%len(here)]
	}
	near := here
	if u.s.net != nil { // it reaches all ledgers
		near = nil
	}
	places, err := u.s.placesFrom(ctx, all, tasks, anywhere, near, u.parentsOf)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if err := u.s.hear(ctx, all, places.far); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	results := make([]store.Enqueued, len(tasks))
	for no, l := range all {
		var part []store.NewTask
		var index []int
		for i, at := range places.at {
			if at == no {
				part, index = append(part, tasks[i]), append(index, i)
			}
		}
		if len(part) == 0 {
			continue
		}
		_, name := l.whereabouts()
		tx, err := u.at(ctx, l, fmt.Errorf("enqueue: %w: task %v lives in the ledger %s, which is not in the "+
			"transaction's database: leave out its key and workflow, or enqueue it outside of the transaction",
			store.ErrUnsupported, part[0].ID, name))
		if err != nil {
			return nil, err
		}
		got, err := tx.Enqueue(ctx, part)
		if err != nil {
			return nil, err
		}
		for k := range got {
			results[index[k]] = got[k]
		}
		u.wrote = true
	}
	return results, nil
}

// parentsOf is Store.parentsOf in the transaction. What the transaction has stored is not visible to other connections,
// so a task that is found nowhere may appear when it commits.
func (u *userTx) parentsOf(ctx context.Context, all []*ledger, ids []store.ID) (map[store.ID]spot, error) {
	found, err := u.s.parentsOf(ctx, all, ids)
	if err == nil && u.wrote && len(all) > 1 {
		expect(found, ids)
	}
	return found, err
}

// Finish implements store.Tx.
func (u *userTx) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	all, here, err := u.local(ctx)
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	parts, unknown, wait := u.s.partsOf(ctx, all, outcomes, make([]map[store.ID]store.ID, len(all)), u.parentsOf)
	if wait.err != nil {
		return nil, fmt.Errorf("finish: %w", wait.err)
	}
	finish := func(l *ledger, part []store.Outcome) ([]store.ID, error) {
		_, name := l.whereabouts()
		tx, err := u.at(ctx, l, fmt.Errorf("finish: %w: task %v lives in the ledger %s, which is not in the "+
			"transaction's database", store.ErrUnsupported, part[0].Task.ID, name))
		if err != nil {
			return nil, err
		}
		return tx.Finish(ctx, part)
	}
	for no, part := range parts {
		if len(part) == 0 {
			continue
		}
		l, err := finish(all[no], part)
		if err != nil {
			return nil, err
		}
		lost = append(lost, l...)
	}
	for _, l := range all { // outcomes whose ledger is unknown go to the first ledger that accepts them
		if len(unknown) == 0 || u.s.net == nil && !slices.Contains(here, l.no) {
			continue
		}
		refused, err := finish(l, unknown)
		if err != nil {
			return nil, err
		}
		unknown = slices.DeleteFunc(unknown, func(o store.Outcome) bool { return !slices.Contains(refused, o.Task.ID) })
	}
	return append(lost, idsOf(unknown)...), nil
}

// row is a row of either driver.
type row interface{ Scan(into ...any) error }

// driverCaller is a transaction of pgx.
type driverCaller struct{ tx pgx.Tx }

func (c driverCaller) exec(ctx context.Context, text string, args ...any) error {
	_, err := c.tx.Exec(ctx, text, args...)
	return err
}

func (c driverCaller) row(ctx context.Context, text string, args ...any) row {
	return c.tx.QueryRow(ctx, text, args...)
}

func (c driverCaller) texts(ctx context.Context, text string, args ...any) ([]string, error) {
	rows, err := c.tx.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// sqlCaller is a transaction of database/sql.
type sqlCaller struct{ tx *sql.Tx }

func (c sqlCaller) exec(ctx context.Context, text string, args ...any) error {
	_, err := c.tx.ExecContext(ctx, text, args...)
	return err
}

func (c sqlCaller) row(ctx context.Context, text string, args ...any) row {
	return c.tx.QueryRowContext(ctx, text, args...)
}

func (c sqlCaller) texts(ctx context.Context, text string, args ...any) (all []string, err error) {
	rows, err := c.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
