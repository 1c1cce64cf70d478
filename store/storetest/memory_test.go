package storetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// inMemory is the reference engine. All its handles are the same.
var inMemory = storetest.Engine{
	New: func(testing.TB) func() store.Store {
		s := memory.New()
		return func() store.Store { return s }
	},
}

func TestTheReferenceEngineKeepsTheContract(t *testing.T) { storetest.Run(t, inMemory) }

func TestTheReferenceEngineDoesWhatItDoes(t *testing.T) { storetest.Compare(t, inMemory) }

func TestTheReferenceEngineReruns(t *testing.T) { storetest.Reruns(t, inMemory, 20_000) }

func BenchmarkTheReferenceEngine(b *testing.B) { storetest.Bench(b, inMemory) }

func TestTheReferenceEnginePrunesGroupsOfErrorsThatNoTaskIsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := memory.New(), t.Context()
		worker, keep := storetest.NewID(), store.Retention{Stats: time.Hour}
		if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}, TTL: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		fail := func(id store.ID, state store.State) {
			t.Helper()
			if _, err := s.Enqueue(ctx, []store.NewTask{{ID: id, Kind: "k", Queue: "q"}}); err != nil {
				t.Fatal(err)
			}
			tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1,
				Token: store.NewToken()})
			if err != nil || len(tasks) != 1 {
				t.Fatal(tasks, err)
			}
			o := store.Outcome{Task: &tasks[0], State: state, Error: id.String(), Fingerprint: id.String()}
			if _, err := s.Finish(ctx, []store.Outcome{o}); err != nil {
				t.Fatal(err)
			}
		}
		groups := func() (n int) {
			t.Helper()
			lead, err := s.Lead(ctx, store.Candidate{ID: worker, TTL: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Prune(ctx, lead.Term, keep, 10); err != nil {
				t.Fatal(err)
			}
			all, err := s.Errors(ctx, store.ErrorFilter{})
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		dead, stopped := storetest.NewID(), storetest.NewID()
		fail(dead, store.Discarded)
		fail(stopped, store.Cancelled)
		for _, want := range []int{2, 1} {
			if n := groups(); n != want {
				t.Errorf("%d groups, want %d", n, want)
			}
			time.Sleep(time.Hour)
		}
		if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{dead}, Change: store.Change{Op: store.Delete}}); err != nil {
			t.Fatal(err)
		}
		if n := groups(); n != 0 {
			t.Errorf("%d groups are left", n)
		}
	})
}
