package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/tuskqueue/tusk/internal/disk"
	"github.com/tuskqueue/tusk/store"
)

var _ store.Examiner = (*Store)(nil)

// Examine implements store.Examiner. It knows open transactions and the purge backlog only if the user has the
// privilege PROCESS, and the disk only if the server runs on this machine.
func (s *Store) Examine(ctx context.Context) (store.Health, error) {
	h := store.UnknownHealth()
	conn, err := s.conn(ctx)
	if err != nil {
		return h, wrap("examine", err)
	}
	defer conn.Close()
	var now, expires, renewed int64
	var id []byte
	var version, host, data string
	err = conn.QueryRowContext(ctx, q("health")).Scan(&now, &version, &host, &data, &h.ConnectionsMost, &id,
		&h.Leader.Term, &expires, &renewed, &h.Bytes, &h.Segments)
	if err != nil {
		return h, wrap("examine", err)
	}
	h.Now, h.Server = instant(now), version
	if h.Leader.Held = len(id) > 0 && now < expires; renewed > 0 {
		h.Leader.Renewed = instant(renewed)
	}
	if own, err := os.Hostname(); err == nil && own == host {
		if space, ok := disk.Of(data); ok {
			h.DiskFree, h.DiskSize = space.Free, space.Size
		}
	}
	var name string
	if err := conn.QueryRowContext(ctx, "show global status like 'Threads_connected'").Scan(&name,
		&h.Connections); err != nil {
		return h, wrap("examine", err)
	}
	// If the server refuses, the report only contains less.
	if err := examineOpen(ctx, conn, &h); err != nil && codeOf(err) == 0 {
		return h, wrap("examine", err)
	}
	return h, nil
}

// examineOpen finds the oldest open transaction. InnoDB reports its start in the time zone of the server's system.
func examineOpen(ctx context.Context, conn *sql.Conn, h *store.Health) error {
	if _, err := conn.ExecContext(ctx,
		"set @tusk_zone = @@session.time_zone, session time_zone = 'SYSTEM'"); err != nil {
		return err
	}
	defer func() {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), "set session time_zone = @tusk_zone"); err != nil {
			abandon(ctx, conn, err)
		}
	}()
	if err := conn.QueryRowContext(ctx, q("health.purge")).Scan(&h.DeadRows); err != nil && err != sql.ErrNoRows {
		return err
	}
	var thread, seconds int64
	var state, user string
	switch err := conn.QueryRowContext(ctx, q("health.open")).Scan(&thread, &seconds, &state, &user); err {
	case sql.ErrNoRows:
		h.OpenFor = 0
	case nil:
		h.OpenFor = time.Duration(seconds) * time.Second
		h.OpenBy, h.OpenEnd = fmt.Sprintf("connection %d, user %s, %s", thread, user, state), fmt.Sprintf("kill %d", thread)
	default:
		return err
	}
	return nil
}

// Connections implements store.Connected.
func (s *Store) Connections() store.Connections {
	now := s.db.Stats()
	return store.Connections{Most: now.MaxOpenConnections, Used: now.InUse, Waits: now.WaitCount}
}
