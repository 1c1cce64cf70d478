package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"maragu.dev/goqite"
)

// goqiteSchema is the schema that goqite v0.4.0 tells its users to create.
//
//go:embed goqite.sql
var goqiteSchema string

// openPool opens a file as Tusk does: the same driver, write-ahead logging,
// synchronous=FULL. SQLite has one writer, so one connection will do.
func openPool(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func openGoqite(ctx context.Context, path string) (*sql.DB, *goqite.Queue, error) {
	db, err := openPool(path)
	if err != nil {
		return nil, nil, err
	}
	if _, err := db.ExecContext(ctx, goqiteSchema); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, goqite.New(goqite.NewOpts{DB: db, Name: "default", Timeout: time.Minute}), nil
}

func goqiteOneByOne(ctx context.Context, path string, s setting) (enqueue, consume time.Duration, err error) {
	db, queue, err := openGoqite(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	began := time.Now()
	for range s.tasks {
		if err := queue.Send(ctx, goqite.Message{Body: []byte(s.payload)}); err != nil {
			return 0, 0, err
		}
	}
	enqueue = time.Since(began)
	began = time.Now()
	for range s.tasks {
		m, err := queue.Receive(ctx)
		if err != nil || m == nil {
			return 0, 0, fmt.Errorf("received %v: %w", m, err)
		}
		if err := queue.Delete(ctx, m.ID); err != nil {
			return 0, 0, err
		}
	}
	return enqueue, time.Since(began), nil
}

// goqiteBatches has no calls for batches to make, so it puts many calls into one
// transaction. A message is deleted right after it was received: messages that
// are received and not deleted are in the way of those behind them.
func goqiteBatches(ctx context.Context, path string, s setting) (enqueue, consume time.Duration, err error) {
	db, queue, err := openGoqite(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	began := time.Now()
	err = inBatches(ctx, db, s, func(tx *sql.Tx) error {
		return queue.SendTx(ctx, tx, goqite.Message{Body: []byte(s.payload)})
	})
	if err != nil {
		return 0, 0, err
	}
	enqueue = time.Since(began)
	began = time.Now()
	err = inBatches(ctx, db, s, func(tx *sql.Tx) error {
		m, err := queue.ReceiveTx(ctx, tx)
		if err != nil || m == nil {
			return fmt.Errorf("received %v: %w", m, err)
		}
		return queue.DeleteTx(ctx, tx, m.ID)
	})
	return enqueue, time.Since(began), err
}

func inBatches(ctx context.Context, db *sql.DB, s setting, each func(tx *sql.Tx) error) error {
	for left := s.tasks; left > 0; left -= s.batch {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for range min(s.batch, left) {
			if err := each(tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
