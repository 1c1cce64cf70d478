package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// siteIn returns a server without a network, for a bubble, and a function that enqueues at it.
func siteIn(t *testing.T, st store.Store) (s *Server, client *tusk.Client, enqueue func(key, body string) string) {
	t.Helper()
	client, err := tusk.NewClient(st, nil)
	if err == nil {
		s, err = New(client, Config{Logger: slog.New(slog.DiscardHandler), Dev: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, client, func(key, body string) string {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/tasks", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Body.String()
	}
}

func TestIdempotencyKeysAreForgottenAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mid := &between{Store: memory.New()}
		s, client, enqueue := siteIn(t, mid)
		send := func(key string) string { return enqueue(key, `{"kind":"k"}`) }
		left := func() int {
			if err := s.forgetOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			records, err := client.Store().Records(t.Context(), store.RecordFilter{Kind: onceKind})
			if err != nil {
				t.Fatal(err)
			}
			return len(records)
		}
		const many = 2*oncePage + 1
		first := send("order-1")
		for i := range many {
			send(fmt.Sprint("other-", i))
		}
		time.Sleep(23 * time.Hour)
		if again := send("order-1"); again != first {
			t.Errorf("after 23 hours, the repeat is %s, want %s", again, first)
		}
		if n := left(); n != many+1 {
			t.Errorf("after 23 hours, %d records are left of %d", n, many+1)
		}
		time.Sleep(2 * time.Hour)
		second := send("order-1")
		if again := send("order-1"); second == first || again != second {
			t.Errorf("after 25 hours: %s, then %s; at first %s", second, again, first)
		}
		if n := left(); n != 1 {
			t.Errorf("after 25 hours, %d records are left, want that of the second request", n)
		}
		time.Sleep(25 * time.Hour)
		mid.do = func() { left() }
		if third := send("order-1"); !strings.Contains(third, `"added"`) || third == second {
			t.Errorf("while the old record is deleted: %s", third)
		}
	})
}

// between calls do once, before a record is written together with tasks.
type between struct {
	store.Store
	do func()
}

func (b *between) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if do := b.do; do != nil && len(p.Tasks) > 0 {
		b.do = nil
		do()
	}
	return b.Store.PutRecord(ctx, p)
}

// searched calls do once, while a request looks for an earlier one with its key.
type searched struct {
	store.Store
	do func()
}

func (s *searched) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if do := s.do; do != nil && f.Kind == onceKind {
		s.do = nil
		do()
	}
	return s.Store.Records(ctx, f)
}

func TestARepeatNamesTheTaskOfTheWindowInWhichItWasEnqueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &losing{Store: memory.New()}
		mid := &searched{Store: l}
		_, _, send := siteIn(t, mid)
		const body = `{"kind":"k","unique":{"window":"24h"}}`
		time.Sleep(time.Until(time.Now().Truncate(24*time.Hour).Add(24*time.Hour)) - time.Second)
		var holder string
		mid.do = func() {
			time.Sleep(2 * time.Second) // a day ends meanwhile
			holder = send("order-1", body)
			l.lose.Store(true)
		}
		send("order-2", body)
		var want, got EnqueuedTask
		if err := json.Unmarshal([]byte(holder), &want); err != nil {
			t.Fatal(holder, err)
		}
		again := send("order-2", body)
		if err := json.Unmarshal([]byte(again), &got); err != nil || got.ID != want.ID || !got.Duplicate {
			t.Errorf("the repeat is told %s, %v, want the task %s", again, err, want.ID)
		}
	})
}

// losing commits one enqueue with a record and loses the answer.
type losing struct {
	store.Store
	lose atomic.Bool
}

func (l *losing) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	version, enqueued, err := l.Store.PutRecord(ctx, p)
	if err == nil && len(p.Tasks) > 0 && l.lose.CompareAndSwap(true, false) {
		return 0, nil, errors.New("connection reset by peer")
	}
	return version, enqueued, err
}

func TestARepeatAfterALostAnswerNamesTheTaskThatHasTheKey(t *testing.T) {
	l := &losing{Store: memory.New()}
	_, client, url := devSite(t, l)
	url += "/api/v1/tasks"
	id := func(a told) string {
		t.Helper()
		var e EnqueuedTask
		if err := json.Unmarshal([]byte(a.text), &e); err != nil || a.status/100 != 2 {
			t.Fatal(a, err)
		}
		return e.ID
	}
	holder := id(post(t, url, `{"kind":"k","key":"invoice-1"}`, ""))
	for policy, want := range map[string]string{"skip": "skipped", "once": "skipped", "replace": "replaced"} {
		body := `{"kind":"k","key":"invoice-1","on_conflict":"` + policy + `"}`
		l.lose.Store(true)
		if a := post(t, url, body, policy); a.status != 500 && a.status != 503 {
			t.Fatal(a)
		}
		for range 2 {
			if a := post(t, url, body, policy); id(a) != holder || !strings.Contains(a.text, want) || a.status != 200 {
				t.Errorf("%s: %v, want the task %s", policy, a, holder)
			}
		}
	}
	for name, unique := range map[string]string{"unique": `{}`, "window": `{"args":["id"],"window":"24h"}`} {
		body := `{"kind":"` + name + `","args":{"id":1},"unique":` + unique + `}`
		holder := id(post(t, url, body, ""))
		l.lose.Store(true)
		post(t, url, body, name)
		if a := post(t, url, body, name); id(a) != holder || !strings.Contains(a.text, "skipped") {
			t.Errorf("%s: %v, want the task %s", name, a, holder)
		}
	}
	all, err := client.List(t.Context(), tusk.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	others := len(all)
	l.lose.Store(true)
	body := `{"tasks":[{"kind":"k","key":"invoice-2"},{"kind":"k","key":"invoice-2"},{"kind":"k"}]}`
	post(t, url+"/batch", body, "batch")
	var batch EnqueuedBatch
	if err := json.Unmarshal([]byte(post(t, url+"/batch", body, "batch").text), &batch); err != nil {
		t.Fatal(err)
	}
	all, err = client.List(t.Context(), tusk.Filter{})
	if err != nil || len(all) != others+2 {
		t.Fatalf("%d tasks, %v", len(all), err)
	}
	for i, r := range batch.Results {
		parsed, err := tusk.ParseID(r.ID)
		if err == nil {
			_, err = client.Get(t.Context(), parsed)
		}
		if err != nil || r.Duplicate != (i == 1) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
	}
}
