package alert

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// Slow receivers take longer than the patience of another process, which must not take the post over from a living
// one.
func TestSlowReceiversAreToldOnce(t *testing.T) {
	const alerts, patience, slow = abreast + 4, 2 * time.Second, 1500 * time.Millisecond
	var mu sync.Mutex
	arrived, distinct := 0, map[string]bool{}
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		arrived++
		distinct[r.Header.Get("webhook-id")] = true
		mu.Unlock()
		time.Sleep(slow)
	}))
	t.Cleanup(h.Close)
	s := memory.New()
	client := clientOf(t, s)
	if _, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: "q"}); err != nil {
		t.Fatal(err)
	}
	book := NewBook(s, nil, notifytest.Sender(t))
	for i := range alerts {
		_, _, err := book.Put(t.Context(), Rule{Name: fmt.Sprint("a", i), Kind: NoWorker, Queue: "q",
			To: []notify.Receiver{{Via: notify.Webhook, Address: h.URL}}}, "ada")
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range 2 {
		r := New(book, client, slog.New(slog.DiscardHandler), 200*time.Millisecond, patience)
		work.Go(func() { r.Run(ctx) })
	}
	time.Sleep(2*slow + patience + time.Second)
	cancel()
	work.Wait()
	if len(distinct) != alerts || arrived != alerts {
		t.Errorf("%d messages arrived, %d times", len(distinct), arrived)
	}
}

// ahead is a database whose clock is ahead of this process's.
type ahead struct{ store.Recorder }

func (a ahead) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	records, err := a.Recorder.Records(ctx, f)
	for i := range records {
		records[i].UpdatedAt = records[i].UpdatedAt.Add(time.Hour)
	}
	return records, err
}

func TestAMuteGoesByTheClockOfTheDatabase(t *testing.T) {
	book := bookOf(t, ahead{memory.New()}, nil, notify.Receivers(nil, []string{"http://127.0.0.1:1"}, nil))
	if err := book.Mute(t.Context(), "a", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	a, err := book.Get(t.Context(), "a")
	if left := time.Until(a.MutedUntil); err != nil || left < 69*time.Minute || left > 71*time.Minute {
		t.Errorf("muted for %v here, %v; want an hour and ten minutes", left, err)
	}
	if err := book.Mute(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	if a, err = book.Get(t.Context(), "a"); err != nil || !a.MutedUntil.IsZero() {
		t.Error(a.MutedUntil, err)
	}
}
