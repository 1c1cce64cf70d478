package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/bench/peers"
	"github.com/tuskqueue/tusk/bench/scenario"
	"github.com/tuskqueue/tusk/bench/servers"
)

// house has the servers and the programs of a benchmark. Each is made when it is first needed.
type house struct {
	postgres  *servers.Postgres
	mysql     *servers.MySQL
	redis     map[peers.Server]*servers.Redis
	dir       string // for files
	installed map[string]error

	postgresMore []string // in addition to the settings of every benchmark
	n            int
}

func (h *house) close() {
	if h.postgres != nil {
		h.postgres.Stop()
	}
	if h.mysql != nil {
		h.mysql.Stop()
	}
	for _, r := range h.redis {
		r.Stop()
	}
	if h.dir != "" {
		os.RemoveAll(h.dir)
	}
}

// place is where a run keeps its tasks.
type place struct {
	target string
	where  scenario.Target
	meter  harness.Meter
	relay  *harness.Relay
	leave  func()
}

type counted struct {
	trips       float64
	connections int
}

func (p place) counted() (c counted) {
	if p.relay != nil {
		trips, connections := p.relay.Counted()
		c = counted{float64(trips), connections}
	}
	return c
}

func (h *house) folder() (string, error) {
	var err error
	if h.dir == "" {
		h.dir, err = os.MkdirTemp("", "tusk-bench-")
	}
	return h.dir, err
}

// place makes an empty place on a kind of server.
func (h *house) place(ctx context.Context, s peers.Server, relayed bool) (place, error) {
	switch s {
	case peers.Postgres:
		return h.placeInPostgres(ctx, relayed)
	case peers.SQLite:
		dir, err := h.folder()
		h.n++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", h.n))
		leave := func() {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				os.Remove(path + suffix)
			}
		}
		return place{target: path, where: scenario.Target{File: path}, meter: harness.FileMeter{Path: path}, leave: leave},
			err
	case peers.MySQL:
		return h.placeInMySQL(relayed)
	case peers.Couchbase:
		return place{leave: func() {}, meter: harness.FileMeter{}}, nil // its adapter reports that there is no server
	default:
		return h.placeInRedis(ctx, s, relayed)
	}
}

func (h *house) placeInPostgres(ctx context.Context, relayed bool) (p place, err error) {
	if h.postgres == nil {
		if h.postgres, err = servers.StartPostgres(h.postgresMore...); err != nil {
			return p, err
		}
	}
	dsn, err := h.postgres.Database(ctx)
	if err != nil {
		return p, err
	}
	p = place{target: dsn, where: scenario.Target{DSN: dsn}, meter: harness.PostgresMeter{DSN: dsn, PID: h.postgres.PID}}
	if relayed {
		if p.relay, err = harness.NewRelay(h.postgres.Addr); err != nil {
			return p, err
		}
		u, err := url.Parse(dsn)
		if err != nil {
			return p, err
		}
		u.Host = p.relay.Addr()
		p.target = u.String()
	}
	p.leave = func() {
		if p.relay != nil {
			p.relay.Close()
		}
		if err := h.postgres.Drop(context.WithoutCancel(ctx)); err != nil {
			say("drop: %v", err)
		}
	}
	return p, nil
}

func (h *house) placeInMySQL(relayed bool) (p place, err error) {
	if h.mysql == nil {
		if h.mysql, err = servers.StartMySQL(); err != nil {
			return p, err
		}
	}
	dsn, err := h.mysql.Database()
	if err != nil {
		return p, err
	}
	p = place{target: dsn, where: scenario.Target{MySQL: dsn},
		meter: harness.MySQLMeter{Admin: h.mysql.Admin, Database: h.mysql.Name, PID: h.mysql.PID}}
	if relayed {
		if p.relay, err = harness.NewRelay(h.mysql.Addr); err != nil {
			return p, err
		}
		p.target = strings.Replace(dsn, h.mysql.Addr, p.relay.Addr(), 1)
	}
	p.leave = func() {
		if p.relay != nil {
			p.relay.Close()
		}
		if err := h.mysql.Drop(); err != nil {
			say("drop: %v", err)
		}
	}
	return p, nil
}

func (h *house) placeInRedis(ctx context.Context, s peers.Server, relayed bool) (p place, err error) {
	r := h.redis[s]
	if r == nil {
		fsync := map[peers.Server]string{peers.Redis: "always", peers.RedisEvery: "everysec"}[s]
		if r, err = servers.StartRedis(ctx, fsync); err != nil {
			return p, err
		}
		if h.redis == nil {
			h.redis = map[peers.Server]*servers.Redis{}
		}
		h.redis[s] = r
	}
	if err := r.Client.FlushAll(ctx).Err(); err != nil {
		return p, err
	}
	p = place{target: r.Addr, meter: harness.RedisMeter{Client: r.Client, PID: r.PID}}
	if relayed {
		if p.relay, err = harness.NewRelay(r.Addr); err != nil {
			return p, err
		}
		p.target = p.relay.Addr()
	}
	p.leave = func() {
		if p.relay != nil {
			p.relay.Close()
		}
	}
	return p, nil
}

// command returns the command that runs a contender's runner.
func (h *house) command(c peers.Contender) []string {
	program := filepath.Join(peers.Dir, c.Script)
	switch {
	case c.Script == "":
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		return []string{self, "run"}
	case strings.HasSuffix(c.Script, ".js"):
		return []string{nodeBinary(), program}
	case strings.HasSuffix(c.Script, ".py"):
		return []string{filepath.Join(peers.Dir, "python/.venv/bin/python"), program}
	}
	return []string{filepath.Join(h.dir, c.Script)}
}

// nodeBinary returns the Node.js that was installed with the peers, or else the machine's.
func nodeBinary() string {
	// Glob fails only if the pattern is malformed.
	found, _ := filepath.Glob(filepath.Join(peers.Dir, "node/node_modules/node-linux-*/bin/node"))
	if len(found) > 0 {
		return found[0]
	}
	return "node"
}

// install installs what a contender needs. Contenders that share it install it once.
func (h *house) install(ctx context.Context, c peers.Contender) error {
	if c.SQL != "" && os.Getenv(c.SQL) == "" {
		return fmt.Errorf("its SQL is not in Debian's, Go's or npm's packages; set %s to the file that installs it", c.SQL)
	}
	var steps [][]string
	key := filepath.Dir(c.Script)
	node, python := filepath.Join(peers.Dir, "node"), filepath.Join(peers.Dir, "python")
	switch {
	case c.Script == "":
		return nil
	case strings.HasSuffix(c.Script, ".js"):
		if upToDate(filepath.Join(node, "node_modules/.package-lock.json"), filepath.Join(node, "package-lock.json")) {
			return nil
		}
		steps = [][]string{{"npm", "ci", "--prefix", node, "--no-audit", "--no-fund", "--loglevel=error"}}
	case strings.HasSuffix(c.Script, ".py"):
		venv, wanted := filepath.Join(python, ".venv"), filepath.Join(python, "requirements.txt")
		if upToDate(filepath.Join(venv, "pyvenv.cfg"), wanted) {
			return nil
		}
		steps = [][]string{{"python3", "-m", "venv", "--clear", venv},
			{filepath.Join(venv, "bin/pip"), "install", "-q", "-r", wanted}}
	default:
		dir, err := h.folder()
		if err != nil {
			return err
		}
		key = c.Script
		steps = [][]string{{"go", "-C", filepath.Join(peers.Dir, c.Script), "build", "-o", filepath.Join(dir, c.Script), "."}}
	}
	if h.installed == nil {
		h.installed = map[string]error{}
	}
	if _, done := h.installed[key]; !done {
		h.installed[key] = carryOut(ctx, steps)
	}
	return h.installed[key]
}

// upToDate reports whether a file is at least as new as the one that it was made from.
func upToDate(made, of string) bool {
	m, err := os.Stat(made)
	o, errOf := os.Stat(of)
	return err == nil && errOf == nil && !m.ModTime().Before(o.ModTime())
}

func carryOut(ctx context.Context, steps [][]string) error {
	for _, step := range steps {
		say("%s", strings.Join(step, " "))
		out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput()
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", strings.Join(step[:min(2, len(step))], " "), err),
				errors.New(strings.TrimSpace(string(out[max(0, len(out)-500):]))))
		}
	}
	return nil
}

// versions returns the versions of the servers that were started.
func (h *house) versions(ctx context.Context) map[string]string {
	all := map[string]string{}
	if h.postgres != nil {
		version, err := h.postgres.Version(ctx)
		if err != nil {
			version = err.Error()
		}
		all["PostgreSQL"] = version + " with " + strings.Join(servers.PostgresSettings, ", ")
	}
	if h.mysql != nil {
		version, err := h.mysql.Version(ctx)
		if err != nil {
			version = err.Error()
		}
		all["MariaDB"] = version + " with " + strings.Join(servers.MySQLSettings, ", ")
	}
	for name, r := range h.redis {
		all[string(name)] = r.Version(ctx)
	}
	return all
}
