package server_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

// loaded counts the bytes of args that are read for lists of tasks by id.
type loaded struct {
	store.Store
	bytes atomic.Int64
}

func (l *loaded) Unwrap() store.Store { return l.Store }

func (l *loaded) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	tasks, err := l.Store.List(ctx, f)
	for i := range tasks {
		if !f.Detail {
			l.bytes.Add(int64(len(tasks[i].Args)))
		}
	}
	return tasks, err
}

// A thousand ids in a request of a few kilobytes must not load a thousand args.
func TestWhoMayChangeTasksIsFoundOutWithoutTheirArgs(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			l := &loaded{Store: open(t)}
			s := startOn(t, newClient(t, l))
			var ids []string
			var items []object
			for range 3 {
				id := s.enqueue(object{"kind": "k", "queue": "other", "args": object{"x": "y"}})
				ids = append(ids, id)
				items = append(items, object{"action": "complete", "lease_id": id + ".00000000000000000000000000000000"})
			}
			worker := s.tokenFor(access.Token{Name: "w", Role: access.Worker})
			s.as(worker, "POST", "/api/v1/lease/batch", object{"items": items}).want(t, 200, nil)
			s.do("POST", "/api/v1/tasks/edit", object{"ids": ids, "action": "reprioritize", "priority": 1}).want(t, 200, nil)
			if a := s.post("/tasks/selected", "action=reprioritize&priority=2&id="+ids[0]+"&id="+ids[1]); a.status != 303 {
				t.Errorf("%d %.300s", a.status, a.body)
			}
			if n := l.bytes.Load(); n > 0 {
				t.Errorf("%d bytes of args were read", n)
			}
		})
	}
}
