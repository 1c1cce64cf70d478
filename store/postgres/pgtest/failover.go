package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// FailOver lets an asynchronous standby take the server's place at the server's address.
// The standby has everything that was acknowledged when before returns. Then FailOver stops
// the replication and calls cut: everything that is acknowledged from then on will be lost.
// When cut returns, FailOver kills the server and promotes the standby.
func (s *Server) FailOver(before, cut func()) error {
	second, err := s.standby()
	if err != nil {
		return err
	}
	defer second.Stop()
	before()
	if err := s.follow(second); err != nil {
		return err
	}
	cut()
	old := s.cmd
	if err := s.Kill(); err != nil {
		return err
	}
	for syscall.Kill(old.Process.Pid, 0) == nil {
		time.Sleep(time.Millisecond)
	}
	if err := second.shutDown(); err != nil {
		return err
	}
	s.killLeft()
	data := filepath.Join(s.Dir, "data")
	if err := errors.Join(os.RemoveAll(data), os.Rename(filepath.Join(second.Dir, "data"), data)); err != nil {
		return err
	}
	if err := s.Run(); err != nil {
		return err
	}
	return s.exec(context.Background(), "select pg_promote()")
}

// standby creates a standby that follows the server.
func (s *Server) standby() (*Server, error) {
	account, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(s.Dir), "tusk-pg-")
	if err != nil {
		return nil, err
	}
	second := &Server{Dir: dir, bin: s.bin, settings: s.settings}
	if account != nil {
		if err := os.Chown(dir, int(account.Uid), int(account.Gid)); err != nil {
			return nil, err
		}
	}
	copied := exec.Command(filepath.Join(s.bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(s.port),
		"-U", "postgres", "-D", filepath.Join(dir, "data"), "-R", "-c", "fast", "--no-sync")
	second.prepare(copied, account)
	out, err := copied.CombinedOutput()
	if err == nil {
		err = second.launch(s.settings)
	}
	if err != nil {
		second.Stop()
		return nil, fmt.Errorf("standby: %w: %s", err, out)
	}
	return second, nil
}

// follow waits until the standby has everything that has been acknowledged by now, and ends
// the replication.
func (s *Server) follow(second *Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	first, err := pgx.Connect(ctx, s.DSN)
	if err != nil {
		return err
	}
	defer first.Close(ctx)
	c, err := pgx.Connect(ctx, second.DSN)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var upto string
	if err := first.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&upto); err != nil {
		return err
	}
	if err := await(ctx, c, "select coalesce(pg_last_wal_receive_lsn() >= $1::pg_lsn, false)", upto); err != nil {
		return fmt.Errorf("the standby does not follow: %w", err)
	}
	for _, text := range []string{"alter system set primary_conninfo = ''", "select pg_reload_conf()"} {
		if _, err := c.Exec(ctx, text); err != nil {
			return err
		}
	}
	return await(ctx, c, "select not exists (select from pg_stat_wal_receiver)")
}

// await repeats a query until it returns true.
func await(ctx context.Context, c *pgx.Conn, query string, args ...any) error {
	for yes := false; !yes; time.Sleep(10 * time.Millisecond) {
		if err := c.QueryRow(ctx, query, args...).Scan(&yes); err != nil {
			return err
		}
	}
	return nil
}

// shutDown ends the server in an orderly way, and keeps its data.
func (s *Server) shutDown() error {
	pid := s.PID()
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("the server does not shut down")
		}
	}
	s.cmd = nil
	return nil
}
