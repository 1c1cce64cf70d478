package harness

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// PostgresMeter reads a PostgreSQL server on this machine.
type PostgresMeter struct {
	DSN string // of the measured database
	PID int    // of the server's main process
	// Counts says that the server loads pg_stat_statements and the database has the extension.
	Counts bool
}

// Read implements Meter. Dead rows are as the server's statistics report them when no client is
// connected. Before and CPU leave out what the meter's own session costs.
func (m PostgresMeter) Read(ctx context.Context) (c Counters, err error) {
	c.Before = familyCPU(m.PID)
	conn, err := pgx.Connect(ctx, m.DSN)
	if err != nil {
		return c, err
	}
	backend := conn.PgConn().PID()
	err = conn.QueryRow(ctx, `
		select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
		       (select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables),
		       pg_database_size(current_database())`).Scan(&c.WAL, &c.Dead, &c.Size)
	if err == nil && m.Counts {
		err = conn.QueryRow(ctx, `
			select coalesce(sum(s.calls), 0)::bigint
			from pg_stat_statements s
			join pg_database d on d.oid = s.dbid and d.datname = current_database()`).Scan(&c.Statements)
	}
	conn.Close(ctx)
	awaitEnd(int(backend))
	c.CPU = familyCPU(m.PID)
	return c, err
}

// awaitEnd waits until a process has ended, but not for long.
func awaitEnd(pid int) {
	for range 200 {
		if _, running := readStat(fmt.Sprintf("/proc/%d/stat", pid)); !running {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// RedisMeter reads a Redis server on this machine.
type RedisMeter struct {
	Client *redis.Client
	PID    int
}

// Read implements Meter. WAL is the size of the append-only file.
func (m RedisMeter) Read(ctx context.Context) (c Counters, err error) {
	info, err := m.Client.Info(ctx, "persistence", "memory").Result()
	c.WAL, c.Size = infoField(info, "aof_current_size"), infoField(info, "used_memory")
	c.CPU = familyCPU(m.PID)
	return c, err
}

func infoField(info, name string) int64 {
	_, rest, _ := strings.Cut(info, name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// MySQLMeter reads a MySQL or MariaDB server on this machine.
type MySQLMeter struct {
	Admin    *sql.DB
	Database string // the measured database
	PID      int
}

// Read implements Meter. WAL is InnoDB's log. Dead rows are not counted.
func (m MySQLMeter) Read(ctx context.Context) (c Counters, err error) {
	err = m.Admin.QueryRowContext(ctx, `
		select (select variable_value from information_schema.global_status where variable_name = 'Innodb_lsn_current'),
		       (select variable_value from information_schema.global_status where variable_name = 'Questions'),
		       (select coalesce(sum(data_length + index_length), 0)
		        from information_schema.tables where table_schema = ?)`,
		m.Database).Scan(&c.WAL, &c.Statements, &c.Size)
	c.Dead, c.CPU = -1, familyCPU(m.PID)
	return c, err
}

// FileMeter reads a file. There is no server, so all processor time is the client's.
type FileMeter struct{ Path string }

// Read implements Meter.
func (m FileMeter) Read(context.Context) (c Counters, err error) {
	c.WAL = -1
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(m.Path + suffix); err == nil {
			c.Size += info.Size()
		}
	}
	return c, nil
}

// familyCPU returns the processor time of a process and its children, including children that have
// ended. Their parent counts those from then on, so the sum is taken again if one ends meanwhile.
func familyCPU(pid int) time.Duration {
	file := fmt.Sprintf("/proc/%d/stat", pid)
	for {
		parent, _ := readStat(file)
		total := parent.self + parent.children
		all, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
		for _, file := range all {
			if s, ok := readStat(file); ok && s.parent == pid {
				total += exactly(filepath.Dir(file), s.self) + s.children
			}
		}
		if now, _ := readStat(file); now.children == parent.children {
			return total
		}
	}
}

// exactly returns what a process with one thread has used, to the nanosecond if the kernel tells.
func exactly(dir string, roughly time.Duration) time.Duration {
	text, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) == 0 {
		return roughly
	}
	ns, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return roughly
	}
	return time.Duration(ns)
}

func processCPU(pid int) time.Duration {
	s, _ := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	return s.self + s.children
}

type stat struct {
	parent         int
	self, children time.Duration
}

// readStat reads the kernel's counters of a process. They have a resolution of 10 ms.
func readStat(file string) (s stat, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third field on
	if len(fields) < 15 {
		return s, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i-3]); return n }
	const tick = 10 * time.Millisecond
	return stat{number(4), time.Duration(number(14)+number(15)) * tick, time.Duration(number(16)+number(17)) * tick}, true
}

// resetPeakMemory makes the kernel measure a process's peak memory from now on. If that fails, the
// peak counts from the start of the process.
func resetPeakMemory(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// peakMemory returns the most memory that a process has held, in bytes.
func peakMemory(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // empty if unreadable, which gives 0
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	value, _, _ := strings.Cut(rest, "kB")
	kb, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	return kb << 10
}
