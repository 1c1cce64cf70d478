package tend

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// What rescue reads of a task may be unreadable. The others are rescued, and so is that one (rails/solid_queue#699,
// riverqueue/river PR 1324).
func TestATaskThatCannotBeReadHoldsUpNoRescue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		ctx := t.Context()
		worker := store.ID{99}
		tasks := []store.NewTask{{ID: newID(), Queue: "q", Kind: "k", Args: []byte("no JSON"),
			Settings: []byte("no settings")}, {ID: newID(), Queue: "q", Kind: "k", Args: []byte("{}")}}
		if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Second}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		if claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 5,
			Token: store.NewToken()}); err != nil || len(claimed) != 2 {
			t.Fatal(len(claimed), err)
		}
		_, kill := lead(s, 1)
		time.Sleep(10 * time.Second)
		kill()
		list, err := s.List(ctx, store.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range list {
			if task.State == store.Running || task.Crashes != 1 {
				t.Errorf("task %v is %v with %d crashes", task.ID, task.State, task.Crashes)
			}
		}
	})
}

// Open transactions hold more attempts than one rescue takes. Younger attempts are still rescued.
func TestRescueGoesOnPastWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keptBack{Store: memory.New(), held: map[store.ID]bool{}}
		ctx := t.Context()
		worker := store.ID{99}
		tasks := make([]store.NewTask, 1005)
		for i := range tasks {
			tasks[i] = store.NewTask{ID: newID(), Queue: "q", Kind: "k", Args: []byte("{}")}
		}
		if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Second}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
		claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: len(tasks),
			Token: store.NewToken()})
		if err != nil || len(claimed) != len(tasks) {
			t.Fatal(len(claimed), err)
		}
		for _, task := range claimed[:1000] {
			s.held[task.ID] = true
		}
		_, kill := lead(s, 1)
		time.Sleep(30 * time.Second)
		kill()
		for _, task := range claimed[1000:] {
			list, err := s.List(ctx, store.Filter{IDs: []store.ID{task.ID}})
			if err != nil || len(list) != 1 || list[0].State == store.Running {
				t.Errorf("a task that nobody holds was not rescued: %+v, %v", list, err)
			}
		}
	})
}

// keptBack is a store in which open transactions hold some tasks.
type keptBack struct {
	store.Store
	held map[store.ID]bool
}

func (s *keptBack) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	held := &store.HeldError{}
	free := slices.DeleteFunc(slices.Clone(outcomes), func(o store.Outcome) bool {
		if s.held[o.Task.ID] {
			held.Tasks = append(held.Tasks, o.Task.ID)
		}
		return s.held[o.Task.ID]
	})
	lost, err := s.Store.Finish(ctx, free)
	if err == nil && len(held.Tasks) > 0 {
		err = held
	}
	return lost, err
}

// picky is a store that cannot hold one task's failure.
type picky struct {
	store.Store
	bad     store.ID
	refusal error
}

func (s *picky) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	for _, o := range outcomes {
		if o.Task.ID == s.bad && o.State != store.Discarded {
			return nil, s.refusal
		}
	}
	return s.Store.Finish(ctx, outcomes)
}

func TestATaskThatCannotBeWrittenBackHoldsUpNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		state   store.State
	}{
		"what no store could hold is a dead letter": {store.ErrUnstorable, store.Discarded},
		"what is held is taken back later":          {errPlanned, store.Running},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &picky{Store: memory.New(), refusal: c.refusal}
				tasks := make([]store.NewTask, 99)
				for i := range tasks {
					tasks[i] = store.NewTask{ID: newID(), Kind: "k", Queue: "q", Args: []byte("{}")}
				}
				s.bad = tasks[40].ID
				if _, err := s.Enqueue(t.Context(), tasks); err != nil {
					t.Fatal(err)
				}
				w := store.Worker{ID: store.ID{9}, Queues: []string{"q"}}
				if _, err := s.Extend(t.Context(), store.Beat{Worker: w, TTL: time.Second}); err != nil {
					t.Fatal(err)
				}
				claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: w.ID, Queues: []string{"q"}, Limit: 99,
					Token: store.NewToken()})
				if err != nil || len(claimed) != 99 {
					t.Fatal(len(claimed), err)
				}
				_, kill := lead(s, 1)
				time.Sleep(10 * time.Second)
				kill()
				for i := range tasks {
					list, err := s.List(t.Context(), store.Filter{IDs: []store.ID{tasks[i].ID}})
					if err != nil || len(list) != 1 {
						t.Fatal(len(list), err)
					}
					if of := list[0]; of.ID == s.bad && of.State != c.state || of.ID != s.bad && of.State != store.Available {
						t.Errorf("task %d is %v", i, of.State)
					}
				}
			})
		})
	}
}
