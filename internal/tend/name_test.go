package tend

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// ran makes a task of a queue run and end at once.
func ran(t *testing.T, s store.Store, worker store.ID, queue string) {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), []store.NewTask{
		{ID: newID(), Queue: queue, Kind: "k", Args: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{queue}, Limit: 1,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 1 {
		t.Fatal(len(tasks), err)
	}
	lost, err := s.Finish(t.Context(), []store.Outcome{{Task: &tasks[0], State: store.Completed, Attempt: 1}})
	if err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
}

func names(t *testing.T, s store.Store) (names []string) {
	t.Helper()
	records, err := s.Records(t.Context(), store.RecordFilter{Kind: NameKind})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if string(r.Body) == "{}" {
			names = append(names, r.Name)
		}
	}
	return names
}

func remove(t *testing.T, s store.Store, name string) {
	t.Helper()
	records, err := s.Records(t.Context(), store.RecordFilter{Kind: NameKind})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(records, func(r store.Record) bool { return r.Name == name })
	records[i].Body = []byte(`{"removed":true}`)
	if _, _, err := s.PutRecord(t.Context(), store.PutRecord{Record: records[i]}); err != nil {
		t.Fatal(err)
	}
}

func TestNamesOfQueuesAreKeptUntilTheyAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, worker := memory.New(), newID()
		ran(t, s, worker, "early") // nobody leads yet
		_, kill := lead(s, 1)
		time.Sleep(ttl)
		ran(t, s, worker, "late")
		time.Sleep(2 * nameEvery)
		if got := names(t, s); !slices.Equal(got, []string{"early", "late"}) {
			t.Fatal(got)
		}
		remove(t, s, "early")
		kill()
		_, kill = lead(s, 2) // a new leader looks back
		time.Sleep(ttl + 2*nameEvery)
		if got := names(t, s); !slices.Equal(got, []string{"late"}) {
			t.Errorf("after the removal: %v", got)
		}
		time.Sleep(time.Minute)
		ran(t, s, worker, "early")
		time.Sleep(2 * nameEvery)
		if got := names(t, s); !slices.Equal(got, []string{"early", "late"}) {
			t.Errorf("after another task: %v", got)
		}
		remove(t, s, "early")
		time.Sleep(3 * nameSpan)
		if records, err := s.Records(t.Context(), store.RecordFilter{Kind: NameKind}); err != nil || len(records) != 1 {
			t.Error("what was removed long ago is still kept", len(records), err)
		}
		kill()
	})
}
