package postgres_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestTheLookForChoresRenewsTheTerm checks what the conformance suite only asks of engines that announce it.
func TestTheLookForChoresRenewsTheTerm(t *testing.T) {
	s, pool := fresh(t)
	c := store.Candidate{ID: store.ID{1}, TTL: time.Minute}
	l, err := s.Lead(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.Term = l.Term
	expires := func() (at time.Time) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "select expires_at from tusk.leader").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := expires()
	told, err := s.Oversee(t.Context(), c)
	if err != nil || told.Renewed.IsZero() || !expires().After(before) {
		t.Errorf("renewed at %v, %v: the term ends at %v, before at %v", told.Renewed, err, expires(), before)
	}
	c.TTL, before = 0, expires()
	if told, err := s.Oversee(t.Context(), c); err != nil || !told.Renewed.IsZero() || !expires().Equal(before) {
		t.Errorf("a look only renewed the term: %v, %v", told.Renewed, err)
	}
}
