package peers

import (
	"context"
	"database/sql"

	_ "modernc.org/sqlite" // the same driver for all contenders
)

// openFile opens a file as Tusk does: write-ahead logging, synchronous=FULL. SQLite has one writer,
// so one connection is enough.
func openFile(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func countRows(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
