// Package servers starts the servers in which contenders keep their tasks, on this machine in
// temporary folders, and stops them. The servers are Debian's packages.
package servers

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// PostgresSettings are set in addition to the defaults: a size that fits the machine, and no
// checkpoint in the middle of a run. Durability has its defaults: fsync and synchronous_commit are
// on.
var PostgresSettings = []string{"shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=30min",
	"max_connections=400"}

// Postgres is a running server.
type Postgres struct {
	server *pgtest.Server
	PID    int
	Addr   string
	n      int
}

// StartPostgres starts a server, with settings in addition to PostgresSettings.
func StartPostgres(more ...string) (*Postgres, error) {
	s, err := pgtest.Start(slices.Concat(PostgresSettings, more)...)
	if err != nil {
		return nil, err
	}
	p := &Postgres{server: s}
	text, err := os.ReadFile(filepath.Join(s.Dir, "data", "postmaster.pid"))
	if err == nil {
		p.PID, err = strconv.Atoi(strings.Fields(string(text))[0])
	}
	u, parseErr := url.Parse(s.DSN)
	if err == nil {
		err = parseErr
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	p.Addr = u.Host
	return p, nil
}

// Database creates an empty database and returns its DSN. It also makes a checkpoint, so that none
// happens during a run.
func (p *Postgres) Database(ctx context.Context) (dsn string, err error) {
	p.n++
	name := fmt.Sprintf("bench_%d", p.n)
	if err := p.exec(ctx, "create database "+name, "checkpoint"); err != nil {
		return "", err
	}
	u, err := url.Parse(p.server.DSN)
	u.Path = "/" + name
	return u.String(), err
}

// Drop drops the database of the last run.
func (p *Postgres) Drop(ctx context.Context) error {
	return p.exec(ctx, fmt.Sprintf("drop database bench_%d with (force)", p.n))
}

// Version returns the server's version.
func (p *Postgres) Version(ctx context.Context) (version string, err error) {
	c, err := pgx.Connect(ctx, p.server.DSN)
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	err = c.QueryRow(ctx, "show server_version").Scan(&version)
	return version, err
}

func (p *Postgres) exec(ctx context.Context, statements ...string) error {
	c, err := pgx.Connect(ctx, p.server.DSN)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// Stop ends the server and removes its data.
func (p *Postgres) Stop() { p.server.Stop() }

// Redis is a running server with an append-only file.
type Redis struct {
	Addr    string
	PID     int
	Client  *redis.Client
	command *exec.Cmd
	dir     string
}

// StartRedis starts a server. fsync is "always" or "everysec".
func StartRedis(ctx context.Context, fsync string) (*Redis, error) {
	dir, err := os.MkdirTemp("", "tusk-redis-")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Redis{Addr: l.Addr().String(), dir: dir}
	l.Close() // the port is free again
	_, port, _ := strings.Cut(r.Addr, ":")
	r.command = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", fsync)
	if err := r.command.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	r.PID, r.Client = r.command.Process.Pid, redis.NewClient(&redis.Options{Addr: r.Addr})
	for range 100 {
		if err = r.Client.Ping(ctx).Err(); err == nil {
			return r, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.Stop()
	return nil, err
}

// Version returns the server's version.
func (r *Redis) Version(ctx context.Context) string {
	info, _ := r.Client.Info(ctx, "server").Result() // it has answered before
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r\n")
	return version
}

// Stop ends the server and removes its data.
func (r *Redis) Stop() {
	r.Client.Close()
	_ = r.command.Process.Kill() // its data is no longer needed
	_ = r.command.Wait()
	os.RemoveAll(r.dir)
}
