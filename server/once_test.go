package server

import (
	"context"
	"encoding/json"
	"errors"
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

func TestIdempotencyKeysAreForgottenAfterTheirDay(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(client, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	kept := map[string]bool{}
	for age, keep := range map[time.Duration]bool{0: true, 24 * time.Hour: true, 48 * time.Hour: false,
		96 * time.Hour: false} {
		day, name := now.Add(-age), hash(age.String())
		if err := s.markDay(t.Context(), day); err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.Store().PutRecord(t.Context(),
			store.PutRecord{Record: store.Record{Kind: onceKind(day, name), Name: name, Body: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
		kept[onceKind(day, name)] = keep
	}
	if err := s.forgetOnce(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	for kind, keep := range kept {
		if records, err := client.Store().Records(t.Context(), kind); err != nil || len(records) == 1 != keep {
			t.Errorf("%s: %d records, %v", kind, len(records), err)
		}
	}
	if days, err := client.Store().Records(t.Context(), onceDays); err != nil || len(days) != 2 {
		t.Error(days, err)
	}
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
	l.lose.Store(true)
	body := `{"tasks":[{"kind":"k","key":"invoice-2"},{"kind":"k","key":"invoice-2"},{"kind":"k"}]}`
	post(t, url+"/batch", body, "batch")
	var batch EnqueuedBatch
	if err := json.Unmarshal([]byte(post(t, url+"/batch", body, "batch").text), &batch); err != nil {
		t.Fatal(err)
	}
	all, err := client.List(t.Context(), tusk.Filter{})
	if err != nil || len(all) != 3 {
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

func TestAnIdempotencyKeyOfTomorrowIsFoundAroundMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at midnight
		client, err := tusk.NewClient(memory.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(client, Config{Logger: slog.New(slog.DiscardHandler), Dev: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24*time.Hour - 10*time.Second)
		send := func() string {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/tasks",
				strings.NewReader(`{"kind":"k"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", "order-1")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			return w.Body.String()
		}
		first := send()
		name := hash("dev\x00/api/v1/tasks\x00order-1")
		today, tomorrow := onceKind(time.Now(), name), onceKind(time.Now().Add(time.Minute), name)
		records, err := client.Store().Records(t.Context(), today)
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		moved, gone := records[0], records[0] // as if written by a server for which it is tomorrow
		moved.Kind, moved.Version, gone.Body = tomorrow, 0, nil
		for _, r := range []store.Record{moved, gone} {
			if _, _, err := client.Store().PutRecord(t.Context(), store.PutRecord{Record: r}); err != nil {
				t.Fatal(err)
			}
		}
		if again := send(); again != first {
			t.Errorf("the repeat is %s, want %s", again, first)
		}
	})
}
