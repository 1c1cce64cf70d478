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

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// failing stops storing tasks at some point.
type failing struct {
	store.Store
	fails atomic.Bool
}

func (f *failing) Enqueue(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
	if f.fails.Load() {
		return nil, errors.New("connection reset by peer")
	}
	return f.Store.Enqueue(ctx, tasks)
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
	send := func(form url.Values) told {
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
	f.fails.Store(true)
	form := url.Values{"kind": {"k"}, "args": {`{"n":2}`}, "of": {e.ID.String()}, "edit": {"1"}}
	a := send(form)
	if a.status != 500 || !strings.Contains(a.text, "The task "+e.ID.String()+" is cancelled") ||
		!strings.Contains(a.text, `{"n":2}`) || strings.Contains(a.text, `name="edit"`) {
		t.Fatalf("%d %s", a.status, a.text)
	}
	f.fails.Store(false)
	form.Del("edit")
	if a := send(form); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	tasks, err := client.List(t.Context(), tusk.Filter{})
	if err != nil || len(tasks) != 2 || string(tasks[0].Args) != `{"n":2}` || tasks[1].State != tusk.StateCancelled {
		t.Errorf("%+v, %v", tasks, err)
	}
}
