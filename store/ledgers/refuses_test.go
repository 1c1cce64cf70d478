package ledgers

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestOnlyADeadServerRefuses(t *testing.T) {
	for _, c := range []struct {
		err  error
		dead bool
	}{
		{syscall.ECONNREFUSED, true},
		{syscall.ECONNRESET, true},
		{syscall.EHOSTUNREACH, true},
		{io.EOF, true},
		{&pgconn.PgError{Code: "57P03"}, true},  // it starts
		{&pgconn.PgError{Code: "53300"}, false}, // too many clients
		{&pgconn.PgError{Code: "28P01"}, false}, // a wrong password
		{context.DeadlineExceeded, false},       // a slow login
		{syscall.EMFILE, false},                 // this process has too many files
	} {
		if dead := refuses(fmt.Errorf("connect: %w", c.err)); dead != c.dead {
			t.Errorf("%v: dead %t, want %t", c.err, dead, c.dead)
		}
	}
}
