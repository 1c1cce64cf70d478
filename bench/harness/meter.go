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

// PostgresMeter reads a PostgreSQL server of this machine.
type PostgresMeter struct {
	DSN string // of the database that is measured
	PID int    // of the server's first process
	// Counts says that the server loads pg_stat_statements, and the database has it.
	Counts bool
}

// Read implements Meter. Dead rows are as the server's statistics know them when
// nobody is connected.
func (m PostgresMeter) Read(ctx context.Context) (c Counters, err error) {
	conn, err := pgx.Connect(ctx, m.DSN)
	if err != nil {
		return c, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `
		select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
		       (select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables),
		       pg_database_size(current_database())`).Scan(&c.WAL, &c.Dead, &c.Size)
	c.CPU = familyCPU(m.PID)
	if err == nil && m.Counts {
		err = conn.QueryRow(ctx, `
			select coalesce(sum(s.calls), 0)::bigint
			from pg_stat_statements s join pg_database d on d.oid = s.dbid and d.datname = current_database()`).Scan(&c.Statements)
	}
	return c, err
}

// RedisMeter reads a Redis server of this machine.
type RedisMeter struct {
	Client *redis.Client
	PID    int
}

// Read implements Meter. The log is the append-only file.
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

// MySQLMeter reads a MySQL or MariaDB server of this machine.
type MySQLMeter struct {
	Admin    *sql.DB
	Database string // that is measured
	PID      int
}

// Read implements Meter. The log is InnoDB's; it counts no dead rows.
func (m MySQLMeter) Read(ctx context.Context) (c Counters, err error) {
	err = m.Admin.QueryRowContext(ctx, `
		select (select variable_value from information_schema.global_status where variable_name = 'Innodb_lsn_current'),
		       (select variable_value from information_schema.global_status where variable_name = 'Questions'),
		       (select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = ?)`, m.Database).Scan(&c.WAL, &c.Statements, &c.Size)
	c.Dead, c.CPU = -1, familyCPU(m.PID)
	return c, err
}

// FileMeter reads a file: there is no server, so its processor time is the
// client's.
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

// familyCPU is the processor time of a process and its children, those that have
// ended included: their parent counts them from then on, so that the sum is taken
// again when one ends meanwhile.
func familyCPU(pid int) time.Duration {
	file := fmt.Sprintf("/proc/%d/stat", pid)
	for {
		parent, _ := readStat(file)
		total := parent.self + parent.children
		all, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is sound
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

// exactly is what a process of one thread has used, to the nanosecond, if the kernel tells.
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

// readStat reads what the kernel counts of a process, in hundredths of a second.
func readStat(file string) (s stat, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third on
	if len(fields) < 15 {
		return s, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i-3]); return n }
	const tick = 10 * time.Millisecond
	return stat{number(4), time.Duration(number(14)+number(15)) * tick, time.Duration(number(16)+number(17)) * tick}, true
}

// resetPeakMemory lets the kernel measure a process's memory anew. Where it
// cannot, the peak counts from the process's start.
func resetPeakMemory(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// peakMemory is the most memory that a process has held, in bytes.
func peakMemory(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // none: 0
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	value, _, _ := strings.Cut(rest, "kB")
	kb, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	return kb << 10
}
