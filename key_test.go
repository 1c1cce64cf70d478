package tusk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// Anybody can compute the key of a unique task or of a schedule, but callers cannot enqueue with it.
func TestKeysOfUniqueTasksAndSchedulesCannotBeTaken(t *testing.T) {
	s, ctx := newShop(t), context.Background()
	unique := s.get(s.enqueue(count{7}, &tusk.Options{Unique: &tusk.Unique{}, Delay: time.Hour}))
	if !tusk.ReservedKey(unique.Key) {
		t.Fatalf("the key of a unique task is %q", unique.Key)
	}
	for _, key := range []string{unique.Key, "unique:", "schedule:nightly", "schedule:nightly:2026-01-01T00:00:00Z"} {
		o := &tusk.Options{Key: key, OnConflict: tusk.Replace}
		_, one := s.client.Enqueue(ctx, count{8}, o)
		_, many := s.client.EnqueueMany(ctx, []tusk.NewTask{{Args: count{8}, Options: o}, {Args: count{9}}})
		for _, err := range []error{one, many, s.client.Validate(count{8}, o)} {
			if !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("key %q: %v", key, err)
			}
		}
		var invalid *tusk.InvalidError
		if !errors.As(one, &invalid) || invalid.Code != "reserved" || invalid.Field != "key" {
			t.Errorf("key %q: %v", key, one)
		}
	}
	if got := s.get(unique.ID); string(got.Args) != string(unique.Args) {
		t.Errorf("args %s", got.Args)
	}
	for _, key := range []string{"unique", "uniquely:1", "a schedule:1", "Schedule:1"} {
		if _, err := s.client.Enqueue(ctx, count{8}, &tusk.Options{Key: key}); err != nil {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestUniqueTasksAndSchedulesKeepTheirKeys(t *testing.T) {
	s, ctx := newShop(t), context.Background()
	o := &tusk.Options{Unique: &tusk.Unique{}}
	first := s.enqueue(count{7}, o)
	if again, err := s.client.Enqueue(ctx, count{7}, o); err != nil || again.Result != tusk.Skipped || again.ID != first {
		t.Errorf("%+v, %v", again, err)
	}
	s.schedule(tusk.Schedule{Name: "nightly", Spec: "0 3 * * *"})
	until := time.Now().Truncate(time.Hour)
	for _, want := range []tusk.Enqueued{{Result: tusk.Added}, {Result: tusk.Skipped}} {
		results, err := s.client.BackfillSchedule(ctx, "nightly", until.Add(-24*time.Hour), until)
		if err != nil || len(results) != 1 || results[0].Result != want.Result {
			t.Errorf("backfill: %+v, %v; want %v", results, err, want.Result)
		}
	}
}
