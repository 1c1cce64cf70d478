package postgres

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Meter = (*Store)(nil)

// Measure implements store.Meter. The processor time of the server is known if it
// runs on this machine.
func (s *Store) Measure(ctx context.Context) (store.Measures, error) {
	m := store.Measures{
		ServerCPU: -1, WALBytes: -1, DeadRows: -1,
		RoundTrips: s.trips.Load(), Queries: s.claims.Load(), Conflicts: s.Conflicts(),
	}
	var wal float64
	var backend int
	if err := s.scan(ctx, "wal", []any{&wal}); err != nil {
		return m, fmt.Errorf("measure: %w", translate(err))
	}
	m.WALBytes = int64(wal)
	for _, c := range s.pool.AcquireAllIdle(ctx) {
		_, _ = c.Exec(ctx, s.sql["flush_statistics"]) // fails before PostgreSQL 15, which reports statistics sooner
		c.Release()
	}
	if err := s.scan(ctx, "dead_rows", []any{&m.DeadRows}, s.schema); err != nil {
		return m, fmt.Errorf("measure: %w", translate(err))
	}
	if err := s.scan(ctx, "backend", []any{&backend}); err != nil {
		return m, fmt.Errorf("measure: %w", translate(err))
	}
	if cpu, ok := serverCPU(backend); ok {
		m.ServerCPU = cpu
	}
	return m, nil
}

// Conflicts implements store.Meter.
func (s *Store) Conflicts() int64 { return s.repeats.Load() }

// tick is the unit of times in /proc/*/stat: a hundredth of a second on every Linux.
const tick = 10 * time.Millisecond

// serverCPU adds up the processor time of the server's processes. It includes those
// that have ended, which their parent has counted.
func serverCPU(backend int) (time.Duration, bool) {
	if !isHere(backend) {
		return 0, false
	}
	own, ok := readStat(backend)
	if !ok {
		return 0, false
	}
	parent, ok := readStat(own.parent)
	if !ok {
		return 0, false
	}
	total := parent.self + parent.children
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if p, ok := readStat(pid); ok && p.parent == own.parent {
			total += p.self + p.children
		}
	}
	return total, true
}

// process holds what /proc/*/stat says about a process.
type process struct {
	parent         int
	self, children time.Duration
}

func readStat(pid int) (p process, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	after := bytes.LastIndexByte(text, ')') // the name before it may contain anything
	fields := strings.Fields(string(text[after+1:]))
	if len(fields) < 15 {
		return p, false
	}
	var n [5]int
	for i, at := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.Atoi(fields[at]); err != nil {
			return p, false
		}
	}
	p.parent, p.self, p.children = n[0], time.Duration(n[1]+n[2])*tick, time.Duration(n[3]+n[4])*tick
	return p, true
}
