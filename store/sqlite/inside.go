package sqlite

import (
	"context"
	"database/sql"
)

// inside is a session in a user's transaction. It prepares a statement when a call runs it for the second time. The
// transaction keeps what was prepared until it ends, and may have thousands of calls that run each statement once.
type inside struct {
	tx    *sql.Tx
	stmts map[string]*sql.Stmt // nil for a statement that has run once
}

// named returns a prepared statement, or nil and the text of a statement to run directly.
func (i *inside) named(ctx context.Context, name string) (*sql.Stmt, string, error) {
	text, ok := statements()[name]
	if !ok {
		text = name
	}
	stmt, again := i.stmts[name]
	if stmt == nil && again {
		var err error
		if stmt, err = i.tx.PrepareContext(ctx, text); err != nil {
			return nil, "", err
		}
	}
	i.stmts[name] = stmt
	return stmt, text, nil
}

// close closes the prepared statements.
func (i *inside) close() {
	for _, stmt := range i.stmts {
		if stmt != nil {
			stmt.Close()
		}
	}
	clear(i.stmts)
}

func (i *inside) exec(ctx context.Context, name string, args ...any) (int64, error) {
	stmt, text, err := i.named(ctx, name)
	if err != nil {
		return 0, err
	}
	var result sql.Result
	if stmt != nil {
		result, err = stmt.ExecContext(ctx, values(args)...)
	} else {
		result, err = i.tx.ExecContext(ctx, text, values(args)...)
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (i *inside) each(ctx context.Context, name string, fn func(row) error, args ...any) error {
	stmt, text, err := i.named(ctx, name)
	if err != nil {
		return err
	}
	if stmt == nil {
		return i.dynamic(ctx, text, fn, args...)
	}
	rows, err := stmt.QueryContext(ctx, values(args)...)
	if err != nil {
		return err
	}
	return scan(rows, fn)
}

func (i *inside) dynamic(ctx context.Context, text string, fn func(row) error, args ...any) error {
	rows, err := i.tx.QueryContext(ctx, text, values(args)...)
	if err != nil {
		return err
	}
	return scan(rows, fn)
}

func scan(rows *sql.Rows, fn func(row) error) error {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	r, dest := make(row, len(columns)), make([]any, len(columns))
	for i := range dest {
		dest[i] = new(any)
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for i := range dest {
			r[i] = *dest[i].(*any)
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func values(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = value(arg)
	}
	return out
}
