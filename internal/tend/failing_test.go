package tend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// partly is a store that cannot list the second page of one queue, or write the end of some tasks.
type partly struct {
	store.Store
	queue string
	tasks []store.ID
}

func (p *partly) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if p.queue != "" && slices.Contains(f.Queues, p.queue) && !f.Before.IsZero() {
		return nil, errPlanned
	}
	return p.Store.List(ctx, f)
}

func (p *partly) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	for i := range outcomes {
		if slices.Contains(p.tasks, outcomes[i].Task.ID) {
			return nil, errPlanned
		}
	}
	return p.Store.Finish(ctx, outcomes)
}

// A queue with a failing page made all others wait up to five seconds between two pages.
func TestAQueueThatCannotBeListedPutsOffNoOtherThatAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks = 20 * store.MaxPage
		s := &partly{Store: memory.New(), queue: "bad"}
		for _, queue := range []string{"bad", "good"} {
			put(t, s, QueueKind, queue, map[string]Aging{"aging": {Every: time.Minute}})
			all := make([]store.NewTask, tasks)
			for i := range all {
				all[i] = store.NewTask{ID: newID(), Kind: "k", Queue: queue, Args: []byte("{}"), Priority: 100}
			}
			if _, err := s.Enqueue(t.Context(), all); err != nil {
				t.Fatal(err)
			}
		}
		_, kill := lead(s, 1)
		time.Sleep(90 * time.Second)
		kill()
		risen := 0
		for f := (store.Filter{Queues: []string{"good"}, Limit: store.MaxPage}); ; {
			page, err := s.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page {
				if f.Before = page[i].ID; page[i].Priority == 50 {
					risen++
				}
			}
			if len(page) < f.Limit {
				break
			}
		}
		if risen != tasks {
			t.Errorf("%d of %d tasks have risen 30 seconds after their minute", risen, tasks)
		}
	})
}

// An end that could not be written made the rescue of all others wait up to five seconds.
func TestATaskThatCannotBeTakenBackPutsOffNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partly{Store: memory.New()}
		ctx := t.Context()
		die := func(worker byte) store.ID {
			t.Helper()
			id := newID()
			if _, err := s.Enqueue(ctx, []store.NewTask{{ID: id, Queue: "q", Kind: "k", Args: []byte("{}")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: store.ID{worker}}, TTL: time.Second}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Claim(ctx, store.ClaimRequest{Worker: store.ID{worker}, Queues: []string{"q"}, Limit: 1,
				Token: store.NewToken()}); err != nil {
				t.Fatal(err)
			}
			return id
		}
		s.tasks = []store.ID{die(101)}
		_, kill := lead(s, 1)
		defer kill()
		time.Sleep(60 * time.Second) // it fails again and again
		for i := range byte(8) {
			id := die(102 + i)
			time.Sleep(time.Second + 1500*time.Millisecond) // its lease, and a look each second
			list, err := s.List(ctx, store.Filter{IDs: []store.ID{id}})
			if err != nil || len(list) != 1 || list[0].State == store.Running {
				t.Errorf("another task is not rescued after a second: %+v, %v", list, err)
			}
		}
	})
}

// A campaign that is cut short may have won. The process that stops gives up what it may have won.
func TestACampaignThatIsCutLeavesNoTermBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mute{Store: memory.New()}
		l := candidate(s, 1)
		if _, err := l.campaign(t.Context()); !errors.Is(err, errPlanned) {
			t.Fatal(err)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, err := s.Store.Lead(t.Context(), store.Candidate{ID: store.ID{2}, TTL: ttl})
		if err != nil || next.Term == 0 {
			t.Errorf("another process does not lead at once: %+v, %v", next, err)
		}
	})
}

// mute is a store whose first answer to a candidate is lost.
type mute struct {
	store.Store
	asked bool
}

func (m *mute) Lead(ctx context.Context, c store.Candidate) (store.Leadership, error) {
	l, err := m.Store.Lead(ctx, c)
	if first := !m.asked; first && err == nil {
		m.asked = true
		return store.Leadership{}, errPlanned
	}
	return l, err
}
