//go:build unix

package storm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// If the storm's clock keeps PostgreSQL from ending a wait, the storm blames Tusk for it.
func TestTimeoutsEndWhereTheClockIsAhead(t *testing.T) {
	g := &ground{}
	if g.makeClock(t); g.clock == nil {
		t.Skip("no clock to set")
	}
	if err := g.clock.set(2 * time.Hour); err != nil {
		t.Fatal(err)
	}
	var server *pgtest.Server
	err := with(g.environment(), func() (err error) {
		server, err = pgtest.Start()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	holds, waits := dial(t, server.DSN), dial(t, server.DSN)
	for _, text := range []string{"create table held (a int)", "begin", "lock table held"} {
		if _, err := holds.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	_, err = waits.Exec(ctx, "set lock_timeout = '20ms'; lock table held")
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "55P03" {
		t.Errorf("a wait for a lock ended with %v, want lock_not_available", err)
	}
}

func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}
