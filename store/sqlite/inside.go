package sqlite

import (
	"context"
	"database/sql"
)

// inside is a session in a user's transaction.
type inside struct {
	tx    *sql.Tx
	stmts map[string]*sql.Stmt
}

func (i *inside) named(ctx context.Context, name string) (*sql.Stmt, error) {
	if stmt, ok := i.stmts[name]; ok {
		return stmt, nil
	}
	text, ok := statements()[name]
	if !ok {
		text = name
	}
	stmt, err := i.tx.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	i.stmts[name] = stmt
	return stmt, nil
}

func (i *inside) exec(ctx context.Context, name string, args ...any) (int64, error) {
	stmt, err := i.named(ctx, name)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, values(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (i *inside) each(ctx context.Context, name string, fn func(row) error, args ...any) error {
	stmt, err := i.named(ctx, name)
	if err != nil {
		return err
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
