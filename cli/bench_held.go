package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// holders open, by engine, a transaction that reads, on its own connection, and keep it open, as a forgotten
// transaction would.
var holders = map[string]func(ctx context.Context, dsn string) (release func(), err error){
	"sqlite":   holdSQLite,
	"postgres": holdPostgres,
	"mysql":    holdMySQL,
}

func hold(ctx context.Context, where dsn) (release func(), err error) {
	open := holders[where.engine]
	if open == nil {
		return nil, &Problem{Code: "unsupported", Exit: exitUsage,
			Text: "--scenario held cannot hold a transaction open on " + where.engine}
	}
	if release, err = open(ctx, where.text); err != nil {
		return nil, fmt.Errorf("hold: %w", err)
	}
	return release, nil
}

// holdSQLite keeps the write-ahead log from being emptied.
func holdSQLite(ctx context.Context, dsn string) (release func(), err error) {
	pool, err := sqlitefile.Pool(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	var tables int
	_, err = conn.ExecContext(ctx, "begin deferred")
	if err == nil {
		err = conn.QueryRowContext(ctx, "select count(*) from sqlite_schema").Scan(&tables)
	}
	release = func() { _, _ = conn.Close(), pool.Close() } // this ends the transaction
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// holdPostgres keeps rows that die meanwhile from being removed.
func holdPostgres(ctx context.Context, dsn string) (release func(), err error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	delete(config.RuntimeParams, "tusk_schema") // this parameter is the engine's own
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) } // this ends the transaction
	for _, statement := range []string{"begin isolation level repeatable read", "select pg_current_xact_id()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// holdMySQL keeps rows that die meanwhile from being purged.
func holdMySQL(ctx context.Context, dsn string) (release func(), err error) {
	pool, _, err := mysql.Pool(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	release = func() { _, _ = conn.Close(), pool.Close() } // this ends the transaction
	_, err = conn.ExecContext(ctx,
		"set transaction isolation level repeatable read; start transaction with consistent snapshot")
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
