package server

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// failing stops storing or cancelling tasks at some point.
type failing struct {
	store.Store
	fails, cancels atomic.Bool
}

func (f *failing) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	if f.cancels.Load() && e.Change.Op == store.Cancel {
		return nil, errors.New("connection reset by peer")
	}
	return f.Store.Edit(ctx, e)
}

func (f *failing) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if f.fails.Load() {
		return nil, errors.New("connection reset by peer")
	}
	return f.Store.Enqueue(ctx, tasks)
}

// submit sends the form of a new task, and follows the redirect of the response.
func submit(t *testing.T, at string, form url.Values) told {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", at+"/tasks/new", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", plainForm)
	var page strings.Builder
	a, err := http.DefaultClient.Do(r)
	if err == nil {
		err = a.Write(&page)
	}
	if err != nil {
		t.Fatal(err)
	}
	return told{a.StatusCode, html.UnescapeString(page.String())}
}

// An edit without a key cancels first and then enqueues. If only the first succeeds, the page says so, and its form
// does the rest.
func TestAnEditThatIsHalfDoneSaysSo(t *testing.T) {
	f := &failing{Store: memory.New()}
	_, client, at := devSite(t, f)
	e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Delay: 1e12})
	if err != nil {
		t.Fatal(err)
	}
	f.fails.Store(true)
	form := url.Values{"kind": {"k"}, "args": {`{"n":2}`}, "of": {e.ID.String()}, "edit": {"1"}}
	a := submit(t, at, form)
	if a.status != 500 || !strings.Contains(a.text, "The task "+e.ID.String()+" is cancelled") ||
		!strings.Contains(a.text, `{"n":2}`) || strings.Contains(a.text, `name="edit"`) {
		t.Fatalf("%d %s", a.status, a.text)
	}
	f.fails.Store(false)
	form.Del("edit")
	if a := submit(t, at, form); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	tasks, err := client.List(t.Context(), tusk.Filter{})
	if err != nil || len(tasks) != 2 || string(tasks[0].Args) != `{"n":2}` || tasks[1].State != tusk.StateCancelled {
		t.Errorf("%+v, %v", tasks, err)
	}
}

// A task that may begin at any moment is postponed before it is cancelled. If only the first succeeds, the page says
// so.
func TestAnEditThatOnlyPostponedTheTaskSaysSo(t *testing.T) {
	f := &failing{Store: memory.New()}
	_, client, at := devSite(t, f)
	e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.cancels.Store(true)
	form := url.Values{"kind": {"k"}, "args": {`{"n":2}`}, "of": {e.ID.String()}, "edit": {"1"}}
	a := submit(t, at, form)
	if a.status != 500 || !strings.Contains(a.text, "The task "+e.ID.String()+" was postponed by up to a minute") ||
		!strings.Contains(a.text, `name="edit"`) {
		t.Fatalf("%d %s", a.status, a.text)
	}
	f.cancels.Store(false)
	if a := submit(t, at, form); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	tasks, err := client.List(t.Context(), tusk.Filter{})
	if err != nil || len(tasks) != 2 || string(tasks[0].Args) != `{"n":2}` || tasks[1].State != tusk.StateCancelled {
		t.Errorf("%+v, %v", tasks, err)
	}
}

// racing has a worker claim all tasks right before an edit.
type racing struct {
	store.Store
	claim func()
}

func (r *racing) Edit(ctx context.Context, e store.Edit) ([]store.Edited, error) {
	r.claim()
	return r.Store.Edit(ctx, e)
}

// A task that a worker takes while somebody edits it runs on, and the page says so.
func TestAnEditOfATaskThatHasJustBegunLeavesItAlone(t *testing.T) {
	s := &racing{Store: memory.New()}
	_, client, at := devSite(t, s)
	e, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	worker := store.Worker{ID: tusk.NewID(), Queues: []string{tusk.DefaultQueue}, Kinds: []string{"k"}}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: worker, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	s.claim = func() {
		_, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker.ID, Queues: worker.Queues, Limit: 1,
			Token: store.Token(tusk.NewID())})
		if err != nil {
			t.Error(err)
		}
	}
	a := submit(t, at, url.Values{"kind": {"k"}, "args": {`{"n":2}`}, "of": {e.ID.String()}, "edit": {"1"}})
	if a.status != http.StatusConflict || !strings.Contains(a.text, "The task is running by now and was not changed.") {
		t.Errorf("%d %s", a.status, a.text)
	}
	tasks, err := client.List(t.Context(), tusk.Filter{Detail: true})
	if err != nil || len(tasks) != 1 || tasks[0].State != tusk.StateRunning || tasks[0].Detail.CancelRequested {
		t.Errorf("%+v, %v", tasks, err)
	}
}
