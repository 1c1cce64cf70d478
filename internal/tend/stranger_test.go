package tend

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestAsManyKindsAreNotedAsThereIsRoomFor(t *testing.T) {
	s := memory.New()
	for i := range mostStrangers {
		if noted, err := NoteStranger(t.Context(), s, fmt.Sprint("k", i)); !noted || err != nil {
			t.Fatal(i, noted, err)
		}
	}
	if noted, err := NoteStranger(t.Context(), s, "one.more"); noted || err != nil {
		t.Error(noted, err)
	}
	if noted, err := NoteStranger(t.Context(), s, "k7"); !noted || err != nil {
		t.Error("it is not noted again:", noted, err)
	}
}

func TestAKindOfWhichNothingIsPutOffAnyMoreIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		_, kill := lead(s, 1)
		if noted, err := NoteStranger(t.Context(), s, "k"); !noted || err != nil {
			t.Fatal(noted, err)
		}
		left := func() int {
			records, err := s.Records(t.Context(), store.RecordFilter{Kind: StrangerKind})
			if err != nil {
				t.Fatal(err)
			}
			return len(records)
		}
		time.Sleep(strangerAge - time.Minute)
		if left() != 1 {
			t.Error("it is forgotten while tasks may be put off")
		}
		time.Sleep(2 * time.Minute)
		if left() != 0 {
			t.Error("it is not forgotten")
		}
		kill()
	})
}

// A worker that has not yet seen the new worker may put off tasks after the recall.
func TestARecallIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		_, kill := lead(s, 1)
		puts := beating(t, s, "other")
		if noted, err := NoteStranger(t.Context(), s, "k"); !noted || err != nil {
			t.Fatal(noted, err)
		}
		time.Sleep(recallIdle)
		beating(t, s, "k")
		time.Sleep(2 * recallEvery)
		id := putOff(t, s, puts)
		time.Sleep(recallAgain + 3*recallEvery)
		tasks, err := s.List(t.Context(), store.Filter{IDs: []store.ID{id}})
		if err != nil || tasks[0].State != store.Available {
			t.Errorf("it is %v, %v", tasks[0].State, err)
		}
		kill()
	})
}

// beating is a worker that lives for long.
func beating(t *testing.T, s store.Store, kind string) store.ID {
	t.Helper()
	w := store.Worker{ID: newID(), Queues: []string{"q"}, Concurrency: 1, Kinds: []string{kind}}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: w, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return w.ID
}

// putOff makes a worker put off a task of the kind k.
func putOff(t *testing.T, s store.Store, worker store.ID) store.ID {
	t.Helper()
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, []store.NewTask{{ID: newID(), Kind: "k", Queue: "q", Args: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
	end := lifecycle.End{Err: &lifecycle.UnknownKindError{Noted: true}}
	out := lifecycle.After(&tasks[0], lifecycle.Settings{}, end, 0)
	if lost, err := s.Finish(ctx, []store.Outcome{out}); len(lost) > 0 || err != nil {
		t.Fatal(lost, err)
	}
	return tasks[0].ID
}
