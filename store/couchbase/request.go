package couchbase

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// mutate changes parts of a document. With a CAS, a mismatch may mean that an earlier try, whose answer was lost, has
// succeeded.
func (s *Store) mutate(
	ctx context.Context, in *gocb.Collection, id string, cas gocb.Cas, specs ...gocb.MutateInSpec,
) error {
	return s.again(ctx, func() error {
		_, err := in.MutateIn(id, specs, &gocb.MutateInOptions{Context: ctx, Cas: cas})
		return err
	})
}

var refusals = []error{gocb.ErrCasMismatch, gocb.ErrDocumentExists, gocb.ErrDocumentNotFound, gocb.ErrDocumentLocked,
	gocb.ErrPathNotFound, gocb.ErrPathExists, gocb.ErrPathMismatch, gocb.ErrValueNotJSON, gocb.ErrValueTooLarge,
	gocb.ErrInvalidArgument, gocb.ErrCollectionNotFound, gocb.ErrScopeNotFound, gocb.ErrDurabilityImpossible,
	gocb.ErrDurabilityLevelNotAvailable, gocb.ErrAuthenticationFailure, gocb.ErrPlanningFailure, gocb.ErrIndexNotFound}

// unknown reports whether a write may have happened despite an error: refusals are the errors after which nothing was
// written. gocb has no single error for a lost answer: a connection that ends causes an io.EOF.
func unknown(err error) bool {
	return err != nil && !isOf(err, refusals...)
}

func isOf(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// mismatch reports whether a document has changed since it was read. MutateIn reports this as ErrDocumentExists.
func mismatch(err error) bool {
	return isOf(err, gocb.ErrCasMismatch, gocb.ErrDocumentExists, gocb.ErrDocumentNotFound, gocb.ErrDocumentLocked)
}

// absent reports whether a document, or the part of it to change, does not exist.
func absent(err error) bool {
	return isOf(err, gocb.ErrPathNotFound, gocb.ErrDocumentNotFound)
}

// refusal returns nil if a write was refused because the document has changed, and err otherwise.
func refusal(err error) error {
	if mismatch(err) {
		return nil
	}
	return err
}

// answerWithin is how long a request is repeated while its answer is unknown.
const answerWithin = 10 * time.Second

// again repeats an idempotent request until its answer is known, or for answerWithin. It does not repeat a request for
// a missing collection, because the client has waited for the collection already.
func (s *Store) again(ctx context.Context, do func() error) error {
	begun := time.Now()
	for try := 1; ; try++ {
		err := do()
		switch {
		case !unknown(err):
			return err
		case missing(err):
			return fmt.Errorf("%w: %w", store.ErrSchemaMissing, err)
		case time.Since(begun) > answerWithin:
			return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
		if late := pause(ctx, try); late != nil {
			return fmt.Errorf("%w: %w", late, err)
		}
	}
}

// patient says which requests the client repeats: all except those for locked documents, which fail at once, and those
// whose connection ended. The engine repeats the latter itself, because the client would send them again while the
// first one may still be in transit.
type patient struct{}

// RetryAfter implements gocb.RetryStrategy.
func (patient) RetryAfter(request gocb.RetryRequest, reason gocb.RetryReason) gocb.RetryAction {
	switch reason {
	case gocb.SocketNotAvailableRetryReason, gocb.SocketCloseInFlightRetryReason, gocb.KVLockedRetryReason:
		return &gocb.NoRetryRetryAction{}
	}
	return gocb.NewBestEffortRetryStrategy(nil).RetryAfter(request, reason)
}

// until calls do until it is done or fails, with a pause before each try but the first.
func until(ctx context.Context, do func(try int) (done bool, err error)) error {
	for try := 0; ; try++ {
		if err := pause(ctx, try); err != nil {
			return err
		}
		if done, err := do(try); done || err != nil {
			return err
		}
	}
}

// pause waits for a random time, which grows with each try.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return ctx.Err()
	}
	return sleep(ctx, rand.N(min(time.Duration(try)*200*time.Microsecond, 20*time.Millisecond)))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}

func nonce() string { return strconv.FormatUint(rand.Uint64(), 36) }
