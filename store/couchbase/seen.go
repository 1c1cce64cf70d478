package couchbase

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/couchbase/gocb/v2"
)

// seen holds the tokens of this handle's latest writes, so that its queries see these writes.
type seen struct {
	mu sync.Mutex
	of map[uint64]gocb.MutationToken // by vbucket
}

// wrote records a write that an index must know before it answers this handle.
func (s *Store) wrote(done *gocb.MutationResult) {
	if done == nil || done.MutationToken() == nil {
		return
	}
	token := *done.MutationToken()
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	if s.seen.of == nil {
		s.seen.of = map[uint64]gocb.MutationToken{}
	}
	if old, known := s.seen.of[token.PartitionID()]; !known || old.SequenceNumber() < token.SequenceNumber() ||
		old.PartitionUUID() != token.PartitionUUID() {
		s.seen.of[token.PartitionID()] = token
	}
}

func (s *seen) tokens() []gocb.MutationToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.of))
}

// forget removes those tokens that no later ones have replaced.
func (s *seen) forget(tokens []gocb.MutationToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range tokens {
		if s.of[token.PartitionID()] == token {
			delete(s.of, token.PartitionID())
		}
	}
}

// scanTimedOut is the code of a scan whose index did not catch up in time. docs.couchbase.com: "SQL++ Error Codes".
const scanTimedOut = 12015

// late reports whether a query failed because an index did not catch up in time, or may have failed for that reason.
func late(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	var of *gocb.QueryError
	return errors.Is(err, gocb.ErrTimeout) || errors.As(err, &of) && hasCode(of, scanTimedOut)
}

func hasCode(err *gocb.QueryError, codes ...uint32) bool {
	return slices.ContainsFunc(err.Errors, func(e gocb.QueryErrorDesc) bool { return slices.Contains(codes, e.Code) })
}
