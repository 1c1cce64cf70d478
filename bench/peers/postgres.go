package peers

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
)

func openPool(ctx context.Context, dsn string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	return pgxpool.NewWithConfig(ctx, config)
}

func count(ctx context.Context, pool *pgxpool.Pool, query string) (n int, err error) {
	err = pool.QueryRow(ctx, query).Scan(&n)
	return n, err
}

// install executes a file of SQL.
func install(ctx context.Context, pool *pgxpool.Pool, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, string(text)).ReadAll()
	return err
}
