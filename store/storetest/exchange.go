package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// Exchanging makes an engine end attempts, and claim single tasks, only with Exchange. Everything that the suite
// tests about the two calls must hold for it too.
func Exchanging(e Engine) Engine {
	open, begin := e.New, e.Begin
	e.New = func(t testing.TB) func() store.Store {
		another := open(t)
		return func() store.Store { return exchanging{another(), another().(store.Exchanger)} }
	}
	if begin != nil {
		e.Begin = func(t testing.TB, s store.Store) (tx any, commit, rollback func() error) {
			return begin(t, s.(exchanging).Store)
		}
	}
	return e
}

type exchanging struct {
	store.Store
	// finisher is a handle of its own. It claims nothing, so it must not affect the claims of the other handle.
	finisher store.Exchanger
}

// Unwrap makes capabilities visible to store.As.
func (e exchanging) Unwrap() store.Store { return e.Store }

// Close closes the handle that claims, as the end of a process would.
func (e exchanging) Close() error { return e.Store.(interface{ Close() error }).Close() }

// Claim exchanges an outcome of a task that never existed.
func (e exchanging) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
	if r.Limit != 1 {
		return e.Store.Claim(ctx, r)
	}
	never := store.Task{ID: NewID(), Kind: "k", Queue: "q", Attempt: 1, Lease: store.NewToken(), Worker: r.Worker}
	x := e.Store.(store.Exchanger).Exchange(ctx, to(store.Completed, &never), r)
	if x.FinishErr == nil && !x.Lost {
		return nil, errors.New("an attempt that never was has ended")
	}
	return x.Tasks, x.ClaimErr
}

// Finish exchanges with a claim that finds no task.
func (e exchanging) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	held := new(store.HeldError)
	for _, o := range outcomes {
		r := store.ClaimRequest{Worker: o.Task.Worker, Queues: []string{"nowhere"}, Limit: 1, Token: store.NewToken()}
		x := e.finisher.Exchange(ctx, o, r)
		if x.ClaimErr == nil && len(x.Tasks) > 0 {
			return lost, errors.New("claimed a task from nowhere")
		}
		switch {
		case errors.As(x.FinishErr, new(*store.HeldError)):
			held.Tasks = append(held.Tasks, o.Task.ID)
		case x.FinishErr != nil:
			return lost, x.FinishErr
		case x.Lost:
			lost = append(lost, o.Task.ID)
		}
	}
	if len(held.Tasks) > 0 {
		return lost, held
	}
	return lost, nil
}

// exchanger returns the engine's Exchanger, and skips the clause if the engine is not one.
func (t *T) exchanger() store.Exchanger {
	t.Helper()
	x, ok := t.Store.(store.Exchanger)
	if !ok {
		t.Skip("the engine is no Exchanger")
	}
	return x
}

// swap completes a task and claims the next one in one exchange. Neither may fail.
func (t *T) swap(worker store.ID, done *store.Task) *store.Task {
	t.Helper()
	x := t.exchanger().Exchange(t.ctx(), to(store.Completed, done), one(worker))
	if x.ClaimErr != nil || x.FinishErr != nil || x.Lost {
		t.Fatalf("exchange: %+v", x)
	}
	if len(x.Tasks) == 0 {
		return nil
	}
	return &x.Tasks[0]
}

func one(worker store.ID) store.ClaimRequest {
	return store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
}

var exchangeClauses = []clause{
	{"exchange/each task is completed when the next is claimed, in order, until there is none", func(t *T) {
		t.exchanger()
		worker, ids := t.worker(), t.addMany(10)
		task := t.takeOne(worker)
		for i, id := range ids {
			if task == nil || task.ID != id || task.State != store.Running || task.Attempt != 1 || task.Worker != worker ||
				task.Queue != "q" {
				t.Fatalf("task %d is %+v", i, task)
			}
			done := task
			task = t.swap(worker, done)
			t.is(id, store.Completed)
		}
		if task != nil {
			t.Errorf("claimed %v of an empty queue", task.ID)
		}
		if n := t.counts()["q running"]; n != 0 {
			t.Errorf("%d run", n)
		}
	}},
	{"exchange/an outcome that is refused does not keep the next task away, nor does a dead worker's claim its outcome",
		func(t *T) {
			x := t.exchanger()
			worker, ids := t.worker(), t.addMany(3)
			first := t.takeOne(worker)
			second := t.swap(worker, first)
			got := x.Exchange(t.ctx(), to(store.Completed, first), one(worker))
			if !got.Lost || got.FinishErr != nil || got.ClaimErr != nil || len(got.Tasks) != 1 || got.Tasks[0].ID != ids[2] {
				t.Errorf("what had ended before: %+v", got)
			}
			t.is(ids[2], store.Running)
			t.addOne()
			dead := one(NewID())
			got = x.Exchange(t.ctx(), to(store.Completed, second), dead)
			if got.Lost || got.FinishErr != nil || !errors.Is(got.ClaimErr, store.ErrWorkerDead) || len(got.Tasks) != 0 {
				t.Errorf("of a worker that never was: %+v", got)
			}
			t.is(ids[1], store.Completed)
		}},
	{"exchange/what it claimed is claimed again under its token", func(t *T) {
		x := t.exchanger()
		worker, ids := t.worker(), t.addMany(3)
		first := t.takeOne(worker)
		r := one(worker)
		if got := x.Exchange(t.ctx(), to(store.Completed, first), r); len(got.Tasks) != 1 || got.Tasks[0].ID != ids[1] {
			t.Fatalf("%+v", got)
		}
		if tasks, err := t.Claim(t.ctx(), r); err != nil || len(tasks) != 0 {
			t.Errorf("the token alone: %v, %v", tasks, err)
		}
		if got := x.Exchange(t.ctx(), to(store.Completed, first), r); len(got.Tasks) != 0 || !got.Lost ||
			got.ClaimErr != nil {
			t.Errorf("the same once more: %+v", got)
		}
		r.Again = true
		if tasks, err := t.Claim(t.ctx(), r); err != nil || len(tasks) != 1 || tasks[0].ID != ids[1] {
			t.Errorf("again: %v, %v", tasks, err)
		}
		t.is(ids[2], store.Available)
	}},
}
