package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
)

// largest records the largest write of a schedule.
type largest struct {
	store.Store
	mu           sync.Mutex
	tasks, bytes int
}

func (l *largest) UpdateRecords(ctx context.Context, term int64, puts []store.PutRecord) ([]store.Updated, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range puts {
		l.tasks, l.bytes = max(l.tasks, len(p.Tasks)), max(l.bytes, len(p.Tasks)*len(p.Record.Body))
	}
	return l.Store.UpdateRecords(ctx, term, puts)
}

// TestMissedTicksOfAScheduleAreWrittenInParts fires a schedule after nobody has led for three hours.
func TestMissedTicksOfAScheduleAreWrittenInParts(t *testing.T) {
	onEachEngine(t, func(t *testing.T, client *tusk.Client) {
		const missed, most = 300, 1 << 20
		s := &largest{Store: client.Store()}
		body, err := json.Marshal(tick.Schedule{Spec: "@every 36s", Kind: "k", Queue: "q", Overlap: tick.OverlapAllow,
			Args: fmt.Appendf(nil, `"%0*d"`, 50<<10, 0), Missed: tick.MissedAll, Cap: missed,
			Next: time.Now().Add(-4 * time.Hour).Truncate(36 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.PutRecord(t.Context(),
			store.PutRecord{Record: store.Record{Kind: tick.RecordKind, Name: "late", Body: body}}); err != nil {
			t.Fatal(err)
		}
		leading, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- leading.Lead(ctx, nil) }()
		count := func() int64 {
			n, err := countUnfinished(t.Context(), s, "q")
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		eventually(t, func() bool { return count() >= missed },
			func() string { return fmt.Sprint(count(), " have fired") })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s.bytes > most || s.tasks < 2 {
			t.Errorf("a write had %d tasks, one %d bytes", s.tasks, s.bytes)
		}
		seen := map[time.Time]bool{}
		for f := (store.Filter{Queues: []string{"q"}, Limit: 100}); ; {
			page, err := s.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range page {
				var settings struct{ Tick time.Time }
				if err := json.Unmarshal(task.Settings, &settings); err != nil || seen[settings.Tick] {
					t.Fatalf("tick %v has fired twice, or has none: %v", settings.Tick, err)
				}
				seen[settings.Tick] = true
			}
			if len(page) < f.Limit {
				break
			}
			f.Before = page[len(page)-1].ID
		}
		if len(seen) < missed || len(seen) > missed+1 {
			t.Errorf("%d ticks have fired, want %d", len(seen), missed)
		}
	})
}
