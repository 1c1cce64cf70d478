package tend

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// held is a store in which a user's transaction holds a task.
type held struct {
	store.Store
	task store.ID
}

func (h *held) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	if !slices.Contains(e.IDs, h.task) {
		return h.Store.Edit(ctx, e)
	}
	e.IDs = slices.DeleteFunc(slices.Clone(e.IDs), func(id store.ID) bool { return id == h.task })
	if edited, err := h.Store.Edit(ctx, e); err != nil {
		return edited, err
	}
	return nil, &store.HeldError{Tasks: []store.ID{h.task}}
}

func put(t *testing.T, s store.Store, kind, name string, of any) {
	t.Helper()
	body, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.PutRecord(t.Context(),
		store.PutRecord{Record: store.Record{Kind: kind, Name: name, Body: body}}); err != nil {
		t.Fatal(err)
	}
}

// An error on the first page ended the sweep, and any other page was read again as long as the transaction was open:
// all its other tasks rose each time.
func TestATaskThatIsHeldHasTheOthersRiseOnce(t *testing.T) {
	const tasks = store.MaxPage + 10 // the newest come first
	for name, at := range map[string]int{"on the first page": tasks - 1, "on the second page": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := make([]store.NewTask, tasks)
				for i := range all {
					all[i] = store.NewTask{ID: newID(), Kind: "k", Queue: "q", Args: []byte("{}"), Priority: 100}
				}
				s := &held{Store: memory.New(), task: all[at].ID}
				put(t, s, QueueKind, "q", map[string]Aging{"aging": {Every: time.Minute}})
				if _, err := s.Enqueue(t.Context(), all); err != nil {
					t.Fatal(err)
				}
				_, kill := lead(s, 1)
				time.Sleep(110 * time.Second)
				kill()
				at := map[int16]int{}
				for f := (store.Filter{Limit: store.MaxPage}); ; {
					page, err := s.List(t.Context(), f)
					if err != nil {
						t.Fatal(err)
					}
					for i := range page {
						at[page[i].Priority]++
						f.Before = page[i].ID
					}
					if len(page) < f.Limit {
						break
					}
				}
				if at[50] != tasks-1 || at[100] != 1 {
					t.Errorf("after a sweep, tasks by priority: %v", at)
				}
			})
		})
	}
}

// greedy is a store that counts the lists of tasks, and those with args.
type greedy struct {
	store.Store
	lists, args atomic.Int64
}

func (g *greedy) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if g.lists.Add(1); !f.NoArgs {
		g.args.Add(1)
	}
	return g.Store.List(ctx, f)
}

// Args may be megabytes, and the leader reads a thousand tasks at a time.
func TestTheLeaderReadsNoArgs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &greedy{Store: memory.New()}
		put(t, s, QueueKind, "ages", map[string]Aging{"aging": {Every: time.Minute}})
		put(t, s, allot.RecordKind, "rated", allot.Limits{Rate: &allot.Rate{Allowed: 1, Period: time.Hour}})
		if _, err := s.Enqueue(t.Context(), []store.NewTask{
			{ID: newID(), Kind: "k", Queue: "ages", Args: []byte("{}"), Priority: 100},
			{ID: newID(), Kind: "k", Queue: "rated", Args: []byte("{}"), Turn: true}}); err != nil {
			t.Fatal(err)
		}
		_, kill := lead(s, 1)
		time.Sleep(3 * time.Minute)
		kill()
		if lists, args := s.lists.Load(), s.args.Load(); lists < 2 || args > 0 {
			t.Errorf("%d lists, %d of them with args", lists, args)
		}
	})
}
