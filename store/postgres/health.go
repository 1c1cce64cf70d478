package postgres

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/disk"
	"github.com/tuskqueue/tusk/store"
)

var _ store.Examiner = (*Store)(nil)

// Examine implements store.Examiner. The disk is known if the server runs on this
// machine and the user may read its settings. The transactions of other roles are known
// only to a superuser or a member of pg_read_all_stats.
func (s *Store) Examine(ctx context.Context) (store.Health, error) {
	h := store.UnknownHealth()
	c, err := s.acquire(ctx)
	if err != nil {
		return h, fmt.Errorf("examine: %w", translate(err))
	}
	defer c.Release()
	var backend int
	var version, directory string
	var open float64
	var renewed, oldest *time.Time
	err = c.QueryRow(ctx, s.sql["health"], s.schema).Scan(&h.Now, &version, &backend, &directory, &h.Connections,
		&h.ConnectionsMost, &h.Leader.Term, &h.Leader.Held, &renewed, &open, &h.OpenBy, &h.OpenEnd, &h.DeadRows, &h.LiveRows,
		&h.Bytes, &h.Segments, &h.Behind, &oldest)
	if err != nil {
		return h, fmt.Errorf("examine: %w", translate(err))
	}
	h.Server = "PostgreSQL " + version
	h.Pooled = uint32(backend) != c.Conn().PgConn().PID()
	h.OpenFor = time.Duration(open * float64(time.Second))
	if renewed != nil {
		h.Leader.Renewed = *renewed
	}
	if oldest != nil {
		h.OldestCompleted = *oldest
	}
	if directory != "" && isHere(backend) {
		if space, ok := disk.Of(directory); ok {
			h.DiskFree, h.DiskSize = space.Free, space.Size
		}
	}
	return h, nil
}

// isHere reports whether a server's process runs on this machine.
func isHere(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasPrefix(string(name), "postgres:")
}

// Connections implements store.Connected.
func (s *Store) Connections() store.Connections {
	now := s.pool.Stat()
	return store.Connections{Most: int(now.MaxConns()), Used: int(now.AcquiredConns()), Waits: now.EmptyAcquireCount()}
}
