package sqlite

import "context"

// forgetStatistics deletes what ANALYZE, or a program's "pragma optimize", has stored about Tusk's tables. Every
// statement has one sensible plan, and SQLite finds it as long as it has no statistics. If a table had one row when it
// was analyzed, SQLite would read all rows from then on. Connections that are opened later have no statistics.
func (d *direct) forgetStatistics(ctx context.Context) error {
	var any bool
	err := d.conn.QueryRowContext(ctx, "select exists (select 1 from sqlite_schema where name = 'sqlite_stat1')").Scan(
		&any)
	if err != nil || !any {
		return err
	}
	deleted, err := d.conn.ExecContext(ctx, "delete from sqlite_stat1 where tbl glob 'tusk_*'")
	if err != nil {
		return err
	}
	if n, err := deleted.RowsAffected(); err != nil || n == 0 {
		return err
	}
	_, err = d.conn.ExecContext(ctx, "analyze sqlite_schema") // so that this connection forgets, too
	return err
}
