package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// The table of the original article and its statements, in autocommit. They claim a batch with one
// update under the id of the connection, read what was claimed, and mark it as done.
const articleTable = `create table queue (
	id      bigint not null auto_increment primary key,
	status  int not null default 0,
	owner   bigint not null default 0,
	ts      timestamp not null default current_timestamp,
	payload text not null,
	key (owner, status, ts)
) engine = innodb`

// article is the contender. It marks tasks as done one by one, or a whole batch with one statement.
type article struct {
	db      *sql.DB
	conns   []*sql.Conn // for the workers
	batched bool
}

func (a *article) name() string {
	if a.batched {
		return "article, batched"
	}
	return "article"
}

func (a *article) open(ctx context.Context, dsn string, workers int) (err error) {
	if a.db, err = sql.Open("mysql", driverDSN(dsn)); err != nil {
		return err
	}
	a.db.SetMaxOpenConns(workers + 2)
	a.db.SetMaxIdleConns(workers + 2)
	for range workers {
		conn, err := a.db.Conn(ctx)
		if err != nil {
			return err
		}
		a.conns = append(a.conns, conn)
	}
	_, err = a.db.ExecContext(ctx, articleTable)
	return err
}

func (a *article) close() error { return a.db.Close() }

func (a *article) fill(ctx context.Context, n int) error {
	for ; n > 0; n -= 500 {
		rows := strings.TrimSuffix(strings.Repeat("('"+args+"'),", min(n, 500)), ",")
		if _, err := a.db.ExecContext(ctx, "insert into queue (payload) values "+rows); err != nil {
			return err
		}
	}
	return nil
}

func (a *article) worker(ctx context.Context, i, batch int) (func() (int, error), error) {
	conn := a.conns[i]
	claim := fmt.Sprintf(
		"update queue set owner = connection_id(), ts = now() where owner = 0 and status = 0 order by ts limit %d", batch)
	return func() (int, error) {
		if _, err := conn.ExecContext(ctx, claim); err != nil {
			return 0, err
		}
		ids, err := readIDs(ctx, conn)
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		groups := ids
		if a.batched {
			groups = []string{strings.Join(ids, ",")}
		}
		for _, group := range groups {
			if _, err := conn.ExecContext(ctx, "update queue set status = 1, owner = 0, ts = now() where id in ("+group+
				")"); err != nil {
				return 0, err
			}
		}
		return len(ids), nil
	}, nil
}

func readIDs(ctx context.Context, conn *sql.Conn) (ids []string, err error) {
	rows, err := conn.QueryContext(ctx, "select id, payload from queue where owner = connection_id() and status = 0")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, payload string
		if err := rows.Scan(&id, &payload); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (a *article) chores(context.Context) error { return nil }
