//go:build unix

package storm

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// session picks a connection of the storm's processes, or returns 0 if there is none.
func (s *storm) session() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	pids, err := s.ground.sessions(ctx)
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	return pids[s.random.IntN(len(pids))], nil
}

// endSessions ends a few sessions, or their current statements.
func endSessions(s *storm, what, postgres, mysql string) error {
	for range 1 + s.random.IntN(6) {
		pid, err := s.session()
		if err != nil || pid == 0 {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if s.ground.my != nil {
			s.ground.exec(ctx, fmt.Sprintf(mysql, pid)) // it may be gone
		} else {
			s.ground.exec(ctx, postgres, pid)
		}
		cancel()
		s.count(what)
		time.Sleep(time.Duration(s.random.IntN(100)) * time.Millisecond)
	}
	return nil
}

func readOnly(s *storm) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.ground.exec(ctx, "alter system set default_transaction_read_only = on"); err != nil {
		return err
	}
	if err := s.ground.exec(ctx, "select pg_reload_conf()"); err != nil {
		return err
	}
	time.Sleep(time.Second)
	return writable(ctx, s)
}

// writable makes the server writable again, on a connection that is not read-only itself.
func writable(ctx context.Context, s *storm) error {
	c, err := s.ground.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, statement := range []string{"set default_transaction_read_only = off",
		"alter system reset default_transaction_read_only",
		"select pg_reload_conf()", "reset default_transaction_read_only"} {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// takeConnections takes all connections that the server has left.
func takeConnections(s *storm) error {
	db, err := engines[s.ground.engine].pool(s.ground.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(0)
	db.SetMaxIdleConns(600)
	var held []*sql.Conn
	for range 600 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		c, err := db.Conn(ctx)
		cancel()
		if err != nil {
			break
		}
		held = append(held, c)
	}
	if pids, err := s.ground.sessions(context.Background()); err == nil { // so that the processes notice
		for range min(6, len(pids)) {
			s.ground.proxy.cut(every)
			time.Sleep(200 * time.Millisecond)
		}
	}
	time.Sleep(time.Second)
	for _, c := range held {
		c.Close()
	}
	return nil
}

func holdWriteLock(s *storm) error {
	tx, err := s.ground.admin.Begin() // an immediate transaction
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(500+s.random.IntN(1500)) * time.Millisecond)
	return tx.Rollback()
}

// pinHorizon holds a transaction open that keeps vacuum and purge from working, while the storm continues.
func pinHorizon(s *storm) error {
	tx, err := s.ground.admin.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	if _, err := tx.Exec("select count(*) from storm_effect"); err != nil {
		tx.Rollback()
		return err
	}
	s.later(10*time.Second, func() { tx.Rollback() })
	return nil
}

// lockTable locks one of Tusk's tables for longer than a lease.
func lockTable(s *storm) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	find := "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'tusk' order by 1"
	if s.ground.my != nil {
		find = "select table_name from information_schema.tables where table_schema = database() and table_name like " +
			"'tusk%' and table_type = 'BASE TABLE' order by 1"
	}
	rows, err := s.ground.admin.QueryContext(ctx, find)
	if err != nil {
		return err
	}
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil || len(tables) == 0 {
		return fmt.Errorf("no tables to lock: %w", err)
	}
	c, err := s.ground.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	begin, lock, end := "begin", "lock table %s in access exclusive mode", "rollback"
	if s.ground.my != nil {
		begin, lock, end = "set lock_wait_timeout = 3", "lock tables %s write", "unlock tables"
	}
	if _, err = c.ExecContext(ctx, begin); err == nil {
		if _, err = c.ExecContext(ctx, fmt.Sprintf(lock, tables[s.random.IntN(len(tables))])); err == nil {
			time.Sleep(stormLease + stormLease/4)
		}
	}
	_, undo := c.ExecContext(ctx, end)
	if err == nil {
		err = undo
	}
	return err
}
