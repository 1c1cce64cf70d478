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

// Measure implements store.Meter. The server's processor time is known when it
// runs on this machine.
func (s *Store) Measure(ctx context.Context) (store.Measures, error) {
	m := store.Measures{
		ServerCPU: -1, WALBytes: -1, DeadRows: -1,
		RoundTrips: s.trips.Load(), Queries: s.claims.Load(), Conflicts: s.repeats.Load(),
	}
	var wal float64
	var backend int
	if err := s.scan(ctx, "wal", []any{&wal}); err != nil {
		return m, fmt.Errorf("measure: %w", translate(err))
	}
	m.WALBytes = int64(wal)
	for _, c := range s.pool.AcquireAllIdle(ctx) {
		_, _ = c.Exec(ctx, s.sql["flush_statistics"]) // unknown before PostgreSQL 15, which tells sooner
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

// tick is the unit of /proc/*/stat: a hundredth of a second on every Linux.
const tick = 10 * time.Millisecond

// serverCPU adds up what the server's processes used, those that have ended
// included: their parent has counted them.
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

// process is what /proc/*/stat says of a process.
type process struct {
	parent         int
	self, children time.Duration
}

func readStat(pid int) (p process, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	after := bytes.LastIndexByte(text, ')') // the name before it may hold anything
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
