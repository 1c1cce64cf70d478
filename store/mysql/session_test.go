package mysql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	driversql "github.com/go-sql-driver/mysql"

	"github.com/tuskqueue/tusk/store"
)

// An error that came after a commit was sent says that nothing was stored only if that is certain.
func TestOnlyARefusedCommitStoresNothing(t *testing.T) {
	code := func(number uint16) error { return &driversql.MySQLError{Number: number} }
	s := &Store{}
	s.checked.Store(true)
	s.seenDue.Store(math.MaxInt64)
	for _, test := range []struct {
		err     error
		refused bool
	}{
		{code(codeLockTimeout), true}, {code(codeReadOnlyOption), true}, {code(codeTableFull), true}, {code(1644), true},
		{code(codeConflict), true}, {fmt.Errorf("x: %w", driversql.ErrPktTooLarge), true},
		{code(2003), false}, {code(2006), false}, {code(2013), false}, {code(2055), false}, {code(codeNotReady), false},
		{code(codeShutdown), false}, {code(codeStatementTimeMySQL), false}, {code(codeCommitFailed), false},
		{driversql.ErrInvalidConn, false}, {driversql.ErrPktSync, false}, {driversql.ErrPktSyncMul, false},
		{driversql.ErrMalformPkt, false}, {io.ErrShortWrite, false}, {context.DeadlineExceeded, false},
	} {
		err := s.again(t.Context(), oneTry, func() (bool, error) { return true, test.err })
		if errors.Is(err, store.ErrNotCommitted) != test.refused {
			t.Errorf("%v: %v", test.err, err)
		}
		err = s.again(t.Context(), oneTry, func() (bool, error) { return false, test.err })
		if !errors.Is(err, store.ErrNotCommitted) {
			t.Errorf("%v before the commit: %v", test.err, err)
		}
	}
	for _, err := range []error{errCareful, store.ErrNotLeader, store.ErrConflict, store.ErrWorkerDead} {
		if got := s.again(t.Context(), oneTry, func() (bool, error) { return true, err }); got != err {
			t.Errorf("%v: %v", err, got)
		}
	}
}
