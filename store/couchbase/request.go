package couchbase

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/couchbase/gocb/v2"
)

// mutate changes parts of a document. With a CAS a lost answer is no refusal: the caller looks.
func (s *Store) mutate(
	ctx context.Context, in *gocb.Collection, id string, cas gocb.Cas, specs ...gocb.MutateInSpec,
) error {
	return s.again(ctx, func() error {
		_, err := in.MutateIn(id, specs, &gocb.MutateInOptions{Context: ctx, Cas: cas})
		return err
	})
}

// cut takes a part out of a document, unless that has gone already.
func (s *Store) cut(ctx context.Context, in *gocb.Collection, id, path string) error {
	err := s.mutate(ctx, in, id, 0, gocb.RemoveSpec(path, nil))
	if absent(err) {
		return nil
	}
	return err
}

// refusals are the errors after which it is known that nothing was written.
var refusals = []error{gocb.ErrCasMismatch, gocb.ErrDocumentExists, gocb.ErrDocumentNotFound, gocb.ErrDocumentLocked,
	gocb.ErrPathNotFound, gocb.ErrPathExists, gocb.ErrPathMismatch, gocb.ErrValueNotJSON, gocb.ErrValueTooLarge,
	gocb.ErrInvalidArgument, gocb.ErrCollectionNotFound, gocb.ErrScopeNotFound, gocb.ErrDurabilityImpossible,
	gocb.ErrDurabilityLevelNotAvailable, gocb.ErrAuthenticationFailure, gocb.ErrDocumentNotLocked}

// unknown reports whether an error leaves it open whether a write happened. gocb has no one error for that: a
// connection that ends is an io.EOF.
func unknown(err error) bool {
	return err != nil && !isOf(err, refusals...)
}

func isOf(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// mismatch reports whether a document is not as it was read. A MutateIn says that it exists.
func mismatch(err error) bool {
	return isOf(err, gocb.ErrCasMismatch, gocb.ErrDocumentExists, gocb.ErrDocumentNotFound, gocb.ErrDocumentLocked)
}

// absent reports whether a document, or the part of it that was to change, is not there.
func absent(err error) bool {
	return isOf(err, gocb.ErrPathNotFound, gocb.ErrDocumentNotFound)
}

// refusal is nil for a write that was refused because the document is not as it was read.
func refusal(err error) error {
	if mismatch(err) {
		return nil
	}
	return err
}

// answerWithin is for how long a request is repeated whose answer is not known.
const answerWithin = 10 * time.Second

// again repeats what does no harm twice until its answer is known, or the time is over. The client has waited by itself
// for a collection that is not there.
func (s *Store) again(ctx context.Context, do func() error) error {
	begun := time.Now()
	for try := 1; ; try++ {
		err := do()
		if !unknown(err) || missing(err) || time.Since(begun) > answerWithin {
			return err
		}
		if late := pause(ctx, try); late != nil {
			return err
		}
	}
}

// retries say for which reasons the client, which repeats requests by default, is not to repeat one, and after how many
// attempts.
type retries map[gocb.RetryReason]uint32

var (
	// The engine itself repeats requests whose connection ended, because the client routes them again while the first
	// attempt may still be being sent.
	patient = retries{gocb.SocketNotAvailableRetryReason: 0, gocb.SocketCloseInFlightRetryReason: 0}
	// failFast has a request for a locked document fail at once, instead of blocking until it times out.
	failFast = patient.but(gocb.KVLockedRetryReason, 0)
	// briefly has an unlock try again for a few milliseconds where it is to. Servers before 7.6 say so too of a
	// document whose lock has ended already. A lock that is left ends by itself.
	briefly = patient.but(gocb.KVTemporaryFailureRetryReason, 3)
)

func (r retries) but(reason gocb.RetryReason, most uint32) retries {
	r = maps.Clone(r)
	r[reason] = most
	return r
}

// RetryAfter implements gocb.RetryStrategy.
func (r retries) RetryAfter(request gocb.RetryRequest, reason gocb.RetryReason) gocb.RetryAction {
	if most, is := r[reason]; is && request.RetryAttempts() >= most {
		return &gocb.NoRetryRetryAction{}
	}
	return gocb.NewBestEffortRetryStrategy(nil).RetryAfter(request, reason)
}

// pause waits a moment, at random and longer with each try.
func pause(ctx context.Context, try int) error {
	if try > 0 {
		most := min(int64(try)*200_000, 20_000_000)
		t := time.NewTimer(time.Duration(rand.Int64N(most)))
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return ctx.Err()
}

func nonce() string { return strconv.FormatUint(rand.Uint64(), 36) }
