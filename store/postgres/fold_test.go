package postgres_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestStatisticsOfPrunedFlushesAreFoldedAndSayTheSame(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	w := startWorker(t, s)
	term := lead(t, s)
	for range 30 {
		goRound(t, s, w, 5)
	}
	filter := store.StatsFilter{From: time.Now().Add(-time.Hour), Bucket: time.Minute}
	before, err := s.Stats(ctx, filter)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // the second has nothing left to do
		if _, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond, Stats: time.Hour}, 10000); err != nil {
			t.Fatal(err)
		}
		if rows := number(t, pool, "select count(*) from tusk.stat where not folded"); rows != int64(30-30*round) {
			t.Errorf("round %d: %d loose rows", round, rows)
		}
		if err := s.Maintain(ctx, term); err != nil {
			t.Fatal(err)
		}
		if rows := number(t, pool, "select count(*) from tusk.stat"); rows > 2 {
			t.Errorf("round %d: %d rows for a minute or two", round, rows)
		}
		after, err := s.Stats(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("round %d: %+v became %+v", round, before, after)
		}
	}
}
