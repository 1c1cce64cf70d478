package mysql

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Measure implements store.Meter. The server's processor time is known only if the server runs on this machine.
func (s *Store) Measure(ctx context.Context) (store.Measures, error) {
	m := store.Measures{ServerCPU: -1, WALBytes: -1, DeadRows: -1,
		RoundTrips: s.trips.Load(), Queries: s.claims.Load(), Conflicts: s.Conflicts()}
	var name string
	err := s.db.QueryRowContext(ctx, "show global status like 'Innodb_os_log_written'").Scan(&name, &m.WALBytes)
	if err != nil {
		return m, wrap("measure", err)
	}
	var host, file string
	if err := s.db.QueryRowContext(ctx, "select @@hostname, @@pid_file").Scan(&host, &file); err != nil {
		return m, wrap("measure", err)
	}
	if own, err := os.Hostname(); err == nil && own == host {
		m.ServerCPU = serverCPU(file)
	}
	return m, nil
}

// Conflicts implements store.Meter.
func (s *Store) Conflicts() int64 { return s.conflicts.Load() + s.deadlocks.Load() }

// serverCPU returns the processor time of the process in a pid file, or -1 if that is not visible.
func serverCPU(pidFile string) time.Duration {
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		return -1
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	if err != nil {
		return -1
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return -1
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return -1
	}
	const tick = 10 * time.Millisecond // Linux counts in hundredths of a second
	return time.Duration(user+system) * tick
}
